/* Sums over a row; a step's expected embeddings (dInfer) move as much, a row less where kept. */
#include "sim/step/graph.h"

const struct op_type op_type_add = {
    .memory = MEMORY_SUM,
    .eager = {6, 2, 0},
    .pass = PASS_ADD,
    .wide = WIDE_HIDDEN,
    .work = op_pass_work,
};

const struct op_type op_type_add_expected = {
    .pass = PASS_ADD,
    .wide = WIDE_HIDDEN,
    .work = op_pass_work,
};

const struct op_type op_type_keep_expected = {
    .pass = PASS_ADD,
    .wide = WIDE_HIDDEN,
    .work = op_pass_work,
};
