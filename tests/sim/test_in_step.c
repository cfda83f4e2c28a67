/* What operators take in a whole step: what events took is taken off, and the sum is the step's. */
#include "sim/price/in_step.h"

#include "tests/support/suite.h"

static double sum_of(const struct in_step_part *parts, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += parts[i].ns;
    }
    return sum;
}

/* A product of 64 us and a pass of 2 us, 32 times each, and something that runs once; 3 us an
 * event. */
TEST(every_execution_gives_as_much_to_its_events) {
    struct in_step_part parts[] = {{.between_ns = 32 * 67e3, .executions = 32},
                                   {.between_ns = 32 * 5e3, .executions = 32},
                                   {.between_ns = 13e3, .executions = 1}};
    in_step_share(parts, 3, 32 * 66e3 + 10e3);
    ck_assert_double_eq_tol(parts[0].ns, 32 * 64e3, 1e-3);
    ck_assert_double_eq_tol(parts[1].ns, 32 * 2e3, 1e-3);
    ck_assert_double_eq_tol(parts[2].ns, 10e3, 1e-3);
}

TEST(a_part_that_has_run_keeps_some_of_its_time) {
    struct in_step_part parts[] = {{.between_ns = 1000, .executions = 1},
                                   {.between_ns = 100, .executions = 9}};
    in_step_share(parts, 2, 600); /* 50 an event, more than the short ones took */
    ck_assert_double_eq_tol(parts[0].ns, 600 * 950.0 / 960, 1e-9);
    ck_assert_double_eq_tol(parts[1].ns, 600 * 10.0 / 960, 1e-9);
}

/* 5 an event, whatever lies between the events of what has not run. */
TEST(what_has_not_run_has_no_part) {
    struct in_step_part parts[] = {{.between_ns = 50, .executions = 0},
                                   {.between_ns = 95, .executions = 1},
                                   {.between_ns = 25, .executions = 3}};
    in_step_share(parts, 3, 100);
    ck_assert_double_eq(parts[0].ns, 0);
    ck_assert_double_eq_tol(parts[1].ns, 90, 1e-9);
    ck_assert_double_eq_tol(parts[2].ns, 10, 1e-9);
    in_step_share(parts, 1, 100);
    ck_assert_double_eq(parts[0].ns, 0);
}

TEST(what_a_step_takes_beyond_its_parts_is_theirs_in_proportion) {
    struct in_step_part parts[] = {{.between_ns = 30, .executions = 3},
                                   {.between_ns = 60, .executions = 1}};
    in_step_share(parts, 2, 99);
    ck_assert_double_eq_tol(parts[0].ns, 33, 1e-9);
    ck_assert_double_eq_tol(parts[1].ns, 66, 1e-9);
}

TEST(parts_add_up_to_their_step) {
    for (int step_ns = 1; step_ns < 3000; step_ns += 7) {
        struct in_step_part parts[] = {{.between_ns = 1500, .executions = 4},
                                       {.between_ns = 20, .executions = 32},
                                       {.between_ns = 300, .executions = 32}};
        in_step_share(parts, 3, step_ns);
        ck_assert_double_eq_tol(sum_of(parts, 3), step_ns, 1e-9 * step_ns);
        ck_assert(parts[0].ns > 0 && parts[1].ns > 0 && parts[2].ns > 0);
    }
}

/* A part that no profile has rows of is in the time of the operator before it, but runs, too. */
TEST(an_operator_runs_as_often_as_its_price_says_or_its_segment_repeats) {
    static struct graph graph;
    struct step_shape shape = {.sym[SYM_TOKENS] = 64};
    const struct op_price priced = {.executions = 5}, none = {0};
    graph.segments[0].repeat = 32;
    for (int part = 0; part < 2; part++) {
        graph.ops[0] = (struct op){.kind = part ? OP_KEEP : OP_LINEAR, .rows = SYM_TOKENS};
        shape.sym[SYM_TOKENS] = 64;
        ck_assert_int_eq(op_type_of(&graph.ops[0])->is_part, part);
        ck_assert_uint_eq(in_step_executions(&graph, 0, &shape, &priced), 5);
        ck_assert_uint_eq(in_step_executions(&graph, 0, &shape, &none), part ? 32 : 0);
        shape.sym[SYM_TOKENS] = 0;
        ck_assert_uint_eq(in_step_executions(&graph, 0, &shape, &none), 0);
    }
}

SUITE("in_step")
