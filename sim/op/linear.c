/* Products and the activation between those of an FFN. */
#include "sim/graph/graph.h"

const struct op_type op_type_linear = {
    .family = FAMILY_PRODUCT,
    .memory = MEMORY_PRODUCT,
    .table = PROFILE_GEMM,
    .work = op_product_work,
};

const struct op_type op_type_gate_up = {
    .family = FAMILY_PRODUCT,
    .table = PROFILE_GATE_UP,
    .work = op_product_work,
    .activates = true,
};

static struct op_pass swiglu_pass(const struct graph *graph, const struct op *op) {
    int64_t gates_and_ups = graph->tensors[op->in[0]].bytes.per / graph->element_bytes;
    return (struct op_pass){PASS_SWIGLU, gates_and_ups / 2};
}

const struct op_type op_type_swiglu = {
    .memory = MEMORY_ACTIVATION,
    .eager = {10, 6, 0},
    .pass = swiglu_pass,
    .work = op_pass_work,
};
