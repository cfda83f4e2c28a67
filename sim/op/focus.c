/* FOCUS: what each masked token matters, and the choice of those that go on. */
#include "sim/graph/graph.h"

const struct op_type op_type_importance = {
    .work = op_pass_work,
};

const struct op_type op_type_evict = {
    .work = op_pass_work,
};
