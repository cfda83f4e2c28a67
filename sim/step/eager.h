/* Passes of eager PyTorch: what an operator becomes where no kernel of its own exists, one kernel
 * a line of Python, each through memory.
 *
 * `bytes` of an element are counted operator by operator in the released modelling code, reads and
 * writes of every kernel. `sm_rate` is what such kernels reach where memory is faster: conversions,
 * broadcasts and strided copies are bound by their instructions, at 1 request as at 64. It is bytes
 * a nanosecond (GB/s) of one multiprocessor, measured on an H200 (132 of them) in one profiled step
 * of 16 requests of 512 tokens; 0: memory binds them. The steps of all other batches and programs
 * are predictions. */
#ifndef UNMASK_SIM_STEP_EAGER_H
#define UNMASK_SIM_STEP_EAGER_H

#include "sim/step/op.h"

/* Operators that are one such pass wherever they stand have it in their descriptor (struct
 * op_type); copies, and what is in double precision, are one of these. */
enum eager_kind {
    EAGER_JOIN_CACHED, /* cached rows of every head, concatenated along tokens with */
    EAGER_JOIN_FRESH,  /* the step's own */
    EAGER_JOIN_TOKENS, /* both, where all heads of a row lie together */
    EAGER_PICK,        /* rows by an index, gathered or scattered */
    EAGER_CAST_DOUBLE, /* logits to float64 */
    EAGER_SOFTMAX_DOUBLE,
    EAGER_SLICE, /* logits copied out of those of the whole canvas, and their exponentials */
};
enum { EAGER_KINDS = EAGER_SLICE + 1 };

extern const struct eager_pass eager_passes[EAGER_KINDS];

#endif
