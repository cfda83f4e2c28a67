/* The numbers of entropy-bounded renoising, for the decoder and for the engine, which reads logits.
 */
#ifndef UNMASK_SIM_POLICY_DECODER_RENOISE_H
#define UNMASK_SIM_POLICY_DECODER_RENOISE_H

#include "sim/policy/decoder/decoder.h"

/* The state of a decoder that renoises (DECODER_RENOISES). */
struct renoise {
    double entropy_bound;        /* nats that accepted positions may add up to before the last */
    double t_min, t_max;         /* temperatures of the last pass, nearly, and of the first */
    double confidence_threshold; /* nats of mean entropy; 0: a canvas never halts */
    uint32_t max_steps, seed;
};

#endif
