/* Products and the activation between those of an FFN. */
#include "sim/step/graph.h"

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

const struct op_type op_type_swiglu = {
    .memory = MEMORY_ACTIVATION,
    .eager = {10, 6, 0},
    .pass = PASS_SWIGLU,
    .wide = WIDE_GATED,
    .work = op_pass_work,
};
