/* The inside of issuing, shared by the files that make the calls of operators and by nobody else.
 */
#ifndef UNMASK_ENGINE_OP_ISSUE_IMPL_H
#define UNMASK_ENGINE_OP_ISSUE_IMPL_H

#include "engine/op/issue.h"

/* One turn of one operator. */
struct turn_of {
    struct issue *issue;
    const struct packed *packed;
    unsigned char *arrays;
    const struct turn *turn;
    const struct op *op;
    const struct graph *graph;
    const struct model *model;
    const struct device_table *table;
    struct device *device;
    enum kernel_dtype dtype;
};

static inline unsigned char *tensor_at(struct issue *issue, int tensor) {
    int64_t offset = issue->placement->offset_bytes[tensor];
    int64_t end = offset + issue->placement->bytes[tensor];
    issue->peak_bytes = end > issue->peak_bytes ? end : issue->peak_bytes;
    return issue->room->workspace + offset;
}

static inline unsigned char *input(const struct turn_of *t, int i) {
    return tensor_at(t->issue, t->op->in[i]);
}

static inline unsigned char *output(const struct turn_of *t, int i) {
    return tensor_at(t->issue, t->op->out[i]);
}

static inline int64_t row_elements(const struct turn_of *t, int tensor) {
    return tensor_row_elements(t->graph, tensor);
}

/* The turn's first row of a tensor; where it holds a chunk, the chunk's first. */
static inline unsigned char *rows_at(const struct turn_of *t, int tensor) {
    int64_t first = t->graph->tensors[tensor].loop >= 0 ? 0 : t->turn->first_row;
    return tensor_at(t->issue, tensor) + first * row_elements(t, tensor) * t->graph->element_bytes;
}

static inline const void *weight(const struct turn_of *t, enum weight_slot slot) {
    return weights_at(t->issue->weights, slot, t->turn->layer);
}

static inline const void *op_weight(const struct turn_of *t) {
    const unsigned char *whole = weight(t, (enum weight_slot)t->op->weight);
    return whole + t->op->weight_rows_before * t->op->k * t->graph->element_bytes;
}

static inline int32_t *narrow(const struct turn_of *t, enum packed_array array) {
    return (int32_t *)(void *)(t->arrays + t->packed->offset_bytes[array]);
}

static inline int64_t *wide(const struct turn_of *t, enum packed_array array) {
    return (int64_t *)(void *)(t->arrays + t->packed->offset_bytes[array]);
}

static inline const struct packed_counts *counts(const struct turn_of *t) {
    return &t->packed->n;
}

/* A mixture of experts; issue_moe.c. */
int issue_moe_choose(const struct turn_of *t);
int issue_moe_gate_up(const struct turn_of *t);
int issue_moe_down(const struct turn_of *t);
int issue_moe_combine(const struct turn_of *t);

/* Iteration smoothing; issue_smooth.c. next_step: before a step's decisions, which go by the room's
 * thresholds then. */
int issue_softmax(const struct turn_of *t);
int issue_keep_expected(const struct turn_of *t);
int issue_add_expected(const struct turn_of *t);
int issue_next_step(const struct turn_of *t);

#endif
