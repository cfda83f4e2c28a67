/* FOCUS: what each masked token matters, and the choice of those that go on. */
#include "sim/step/graph.h"

const struct op_type op_type_importance = {
    .work = op_pass_work,
};

/* Only where some queries go no further is there a choice. */
static bool evicts_some(const int64_t *sym) {
    return sym[SYM_KEPT_Q] > 0 && sym[SYM_KEPT_Q] < sym[SYM_BLOCK_Q];
}

const struct op_type op_type_evict = {
    .work = op_pass_work,
    .waits = evicts_some,
};
