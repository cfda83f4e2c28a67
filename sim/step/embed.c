#include "sim/step/graph.h"

const struct op_type op_type_embed = {
    .memory = MEMORY_EMBEDDING,
    .pass = PASS_EMBED,
    .wide = WIDE_HIDDEN,
    .work = op_pass_work,
};
