/* Rotation, and what is stored of what it writes. */
#include "sim/step/graph.h"

const struct op_type op_type_rope = {
    .memory = MEMORY_ROTATION,
    .eager = {52, 12, 19.0},
    .pass = PASS_ROPE,
    .wide = WIDE_ROTATED,
    .work = op_pass_work,
    .is_variable = true,
};

/* The rotation's bytes count the writes already. */
const struct op_type op_type_keep = {
    .memory = MEMORY_NONE,
    .pass = PASS_KEEP,
    .wide = WIDE_KV,
    .work = op_no_work,
    .is_part = true,
};
