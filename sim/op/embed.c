#include "sim/graph/graph.h"

static struct op_pass pass(const struct graph *graph, const struct op *op) {
    (void)op;
    return (struct op_pass){PASS_EMBED, graph->model->hidden};
}

const struct op_type op_type_embed = {
    .memory = MEMORY_EMBEDDING,
    .pass = pass,
    .work = op_pass_work,
};
