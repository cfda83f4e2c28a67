#include "sim/graph/graph.h"

/* With the residual added first where it has a second input. */
static struct op_pass pass(const struct graph *graph, const struct op *op) {
    return (struct op_pass){op->in[1] >= 0 ? PASS_NORM_ADD : PASS_NORM, graph->model->hidden};
}

const struct op_type op_type_rmsnorm = {
    .memory = MEMORY_NORM,
    .pass = pass,
    .work = op_pass_work,
    .eager = {34, 10, 19.3},
    .is_variable = true,
};
