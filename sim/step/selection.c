/* Which cached rows are kept (Sparse-dLLM, dLLM-Serve), and which have changed (dLLM-Cache). */
#include "sim/step/graph.h"

const struct op_type op_type_select = {
    .pass = PASS_SELECT,
    .wide = WIDE_KV,
    .work = op_pass_work,
};

const struct op_type op_type_pack = {
    .pass = PASS_PACK,
    .wide = WIDE_KV,
    .work = op_pass_work,
};

const struct op_type op_type_similarity = {
    .work = op_pass_work,
    .eager = {20, 6, 15.6},
};
