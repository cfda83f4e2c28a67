/* Usage: the bytes that a step's tensors hold at each of its operators.
 *
 * A tensor is live from its first operator to its last, whatever repeats in between; its bytes are
 * those of the placement, rounded up to its alignment. An operator counts as often as the step
 * executes it: the repetitions of its segment, times the chunks of its loop where it is in one; not
 * at all where it has no rows. */
#ifndef UNMASK_SIM_MEMORY_USAGE_H
#define UNMASK_SIM_MEMORY_USAGE_H

#include "sim/memory/placement.h"

/* What a workspace tensor is for. */
enum tensor_class {
    TENSOR_RESIDUAL,  /* carried from layer to layer */
    TENSOR_ATTENTION, /* of a layer before its second norm */
    TENSOR_FFN,       /* of a layer from its second norm on */
    TENSOR_LOGITS,    /* of the head: logits, what is made of them and what is read off them */
    TENSOR_OTHER,
};
enum { TENSOR_CLASS_COUNT = TENSOR_OTHER + 1 };
extern const char *const tensor_class_names[TENSOR_CLASS_COUNT];

/* The class of what an operator writes, and of a tensor that owns its memory. */
enum tensor_class op_class(const struct graph *graph, uint32_t op);
enum tensor_class tensor_class(const struct graph *graph, int root);

struct usage {
    int64_t bytes[GRAPH_MAX_OPS];        /* of all tensors live at each operator */
    int64_t logits_bytes[GRAPH_MAX_OPS]; /* of those, logits and their copies */
    int64_t executions[GRAPH_MAX_OPS];   /* of each operator in this step */
    int64_t n_executions;
    /* Over the operators executed. */
    int64_t most_bytes;
    double mean_bytes; /* each as often as it is executed */
    /* Where the placement reaches its peak: of the operators at which its last tensor is live, the
     * one with the most live bytes. Classes and the unused room between them add up to the peak. */
    uint32_t peak_op;
    int64_t class_bytes[TENSOR_CLASS_COUNT], unused_bytes;
};

void usage_measure(const struct graph *graph, const struct step_shape *shape,
                   const struct placement *placement, struct usage *out);

/* The peak-to-average ratio of activation memory (Mosaic, Figure 12). The paper does not say what
 * it averages over; here it is the operators executed. */
double usage_peak_to_average(const struct usage *usage);

#endif
