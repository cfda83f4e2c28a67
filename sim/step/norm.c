#include "sim/step/graph.h"

const struct op_type op_type_rmsnorm = {
    .memory = MEMORY_NORM,
    .pass = PASS_NORM,
    .pass_of_two = PASS_NORM_ADD, /* with the residual added first */
    .wide = WIDE_HIDDEN,
    .work = op_pass_work,
    .eager = {34, 10, 19.3},
    .is_variable = true,
};
