/* Rotation, and what is stored of what it writes. */
#include "sim/graph/graph.h"

static struct op_pass pass(const struct graph *graph, const struct op *op) {
    (void)graph;
    return (struct op_pass){PASS_ROPE, op->n + 2 * op->k};
}

const struct op_type op_type_rope = {
    .memory = MEMORY_ROTATION,
    .eager = {52, 12, 19.0},
    .pass = pass,
    .work = op_pass_work,
    .is_variable = true,
};

static struct op_pass keep_pass(const struct graph *graph, const struct op *op) {
    (void)op;
    return (struct op_pass){PASS_KEEP, (int64_t)graph->model->kv_heads * graph->model->head_dim};
}

/* The rotation's bytes count the writes already. */
const struct op_type op_type_keep = {
    .memory = MEMORY_NONE,
    .pass = keep_pass,
    .work = op_no_work,
    .is_part = true,
};
