/* Sums over a row; a step's expected embeddings (dInfer) move as much, a row less where kept. */
#include "sim/graph/graph.h"

static struct op_pass pass(const struct graph *graph, const struct op *op) {
    (void)op;
    return (struct op_pass){PASS_ADD, graph->model->hidden};
}

const struct op_type op_type_add = {
    .memory = MEMORY_SUM,
    .eager = {6, 2, 0},
    .pass = pass,
    .work = op_pass_work,
};

const struct op_type op_type_add_expected = {
    .pass = pass,
    .work = op_pass_work,
};

const struct op_type op_type_keep_expected = {
    .pass = pass,
    .work = op_pass_work,
};
