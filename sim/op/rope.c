#include "sim/graph/graph.h"

static struct op_pass pass(const struct graph *graph, const struct op *op) {
    (void)graph;
    return (struct op_pass){PASS_ROPE, op->n + 2 * op->k};
}

const struct op_type op_type_rope = {
    .memory = MEMORY_ROTATION,
    .pass = pass,
    .work = op_pass_work,
    .is_variable = true,
};
