/* Operators on the engine's side: what their descriptors must say. */
#include <check.h>

#include "engine/op/op.h"
#include "tests/support/suite.h"

TEST(every_operator_is_launched_or_says_why_not) {
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const struct op_launch *how = op_launches[kind];
        ck_assert_msg((how->launch != NULL) != (how->why_not != NULL), "%s", op_kind_names[kind]);
    }
}

/* What is measured at sizes of a kind is named by a row of a profile. */
TEST(what_calibration_measures_has_rows_of_a_profile) {
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const struct op_launch *how = op_launches[kind];
        const struct op_type *type = op_types[kind];
        bool by_rows = how->sizes == OP_SIZES_PASS || how->sizes == OP_SIZES_PRODUCT;
        bool has_rows = type->wide != WIDE_NONE || type->family == FAMILY_PRODUCT ||
                        type->family == FAMILY_EXPERTS;
        ck_assert_msg(!by_rows || (has_rows && how->launch != NULL), "%s", op_kind_names[kind]);
        ck_assert_msg((how->sizes == OP_SIZES_OWN) <= (how->points != NULL), "%s",
                      op_kind_names[kind]);
    }
}

/* A step's graph has these once at most. */
TEST(decisions_evictions_and_choices_are_one_operator_each) {
    static const unsigned facts[] = {OP_EVICTS,  OP_COMMITS, OP_READS_LOGITS, OP_CHOOSES_EXPERTS,
                                     OP_SELECTS, OP_SMOOTHS, OP_IS_PAGED};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        int n = 0;
        for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
            n += (op_launches[kind]->facts & facts[i]) != 0;
        }
        ck_assert_int_eq(n, 1);
    }
}

SUITE("op launch")
