/* How programs share a database: every order of their steps, with trouble at each. */
#include <stdio.h>
#include <time.h>

#include "tests/analysis/crowd.h"
#include "tests/support/suite.h"

/* UNMASK_CROWD=all in the environment looks at what takes minutes and gigabytes, too. */
enum { MOST_STATES = 40000000 };

#define SWEEP_OF(n_, first, second, third, at_once)                                                \
    { .n_points = n_, .ids = {first, second, third}, .n_at_once = at_once }
#define MERGE_INTO(database)                                                                       \
    {                                                                                              \
        .is_merge = true, .to = database, .n_points = 3, .ids = { 0, 1, 2 }                        \
    }

static const struct {
    const char *name;
    bool is_long;
    struct crowd crowd;
} crowds[] = {
    {"two sweeps, nothing happens",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 0, 0, false}, {0, 0}}},
    {"two sweeps, a lock",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {1, 0, 0, 0, false}, {0, 0}}},
    {"two sweeps, a death",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 1, 0, 0, false}, {0, 0}}},
    {"two sweeps, an interrupt",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 1, 0, false}, {0, 0}}},
    {"two sweeps, a full disk",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 0, 2, false}, {0, 0}}},
    {"two sweeps, no claims, a full disk",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 0, 2, true}, {0, 0}}},
    {"two sweeps, no claims, a lock and a death",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {1, 1, 0, 0, true}, {0, 0}}},
    {"two sweeps in two orders, two points at once, a lock",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 2), SWEEP_OF(3, 2, 0, 1, 1)}, {1, 0, 0, 0, false}, {0, 0}}},
    {"two sweeps in two orders, two points at once, a full disk",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 2), SWEEP_OF(3, 2, 0, 1, 1)}, {0, 0, 0, 2, false}, {0, 0}}},
    {"two sweeps in two orders, two points at once, a death",
     false,
     {2, {SWEEP_OF(3, 0, 1, 2, 2), SWEEP_OF(3, 2, 0, 1, 1)}, {0, 1, 0, 0, false}, {0, 0}}},
    {"two sweeps with equal points, a full disk",
     false,
     {2, {SWEEP_OF(3, 0, 0, 1, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 0, 2, false}, {0, 0}}},
    {"merges in opposite directions, nothing happens",
     false,
     {2, {MERGE_INTO(0), MERGE_INTO(1)}, {0, 0, 0, 0, false}, {3, 6}}},
    {"merges in opposite directions, a lock",
     false,
     {2, {MERGE_INTO(0), MERGE_INTO(1)}, {1, 0, 0, 0, false}, {3, 6}}},
    {"merges in opposite directions, a death",
     false,
     {2, {MERGE_INTO(0), MERGE_INTO(1)}, {0, 1, 0, 0, false}, {3, 6}}},
    {"merges in opposite directions, a full disk",
     false,
     {2, {MERGE_INTO(0), MERGE_INTO(1)}, {0, 0, 0, 2, false}, {3, 6}}},
    {"merges in opposite directions beside a sweep, nothing happens",
     false,
     {3, {MERGE_INTO(0), MERGE_INTO(1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 0, 0, false}, {1, 6}}},
    {"merges in opposite directions beside a sweep, a lock",
     false,
     {3, {MERGE_INTO(0), MERGE_INTO(1), SWEEP_OF(3, 0, 1, 2, 1)}, {1, 0, 0, 0, false}, {1, 6}}},
    {"merges in opposite directions beside a sweep, a death",
     false,
     {3, {MERGE_INTO(0), MERGE_INTO(1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 1, 0, 0, false}, {1, 6}}},
    {"merges in opposite directions beside a sweep, a full disk",
     false,
     {3, {MERGE_INTO(0), MERGE_INTO(1), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 0, 2, false}, {1, 6}}},
    {"two merges and a sweep into one database, nothing happens",
     false,
     {3, {MERGE_INTO(0), MERGE_INTO(0), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 0, 0, false}, {0, 3}}},
    {"two merges and a sweep into one database, a lock",
     false,
     {3, {MERGE_INTO(0), MERGE_INTO(0), SWEEP_OF(3, 0, 1, 2, 1)}, {1, 0, 0, 0, false}, {0, 3}}},
    {"two merges and a sweep into one database, a death",
     false,
     {3, {MERGE_INTO(0), MERGE_INTO(0), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 1, 0, 0, false}, {0, 3}}},
    {"two merges and a sweep into one database, a full disk",
     false,
     {3, {MERGE_INTO(0), MERGE_INTO(0), SWEEP_OF(3, 0, 1, 2, 1)}, {0, 0, 0, 2, false}, {0, 3}}},
    {"three sweeps, nothing happens",
     false,
     {3,
      {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)},
      {0, 0, 0, 0, false},
      {0, 0}}},
    {"three sweeps, a lock",
     false,
     {3,
      {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)},
      {1, 0, 0, 0, false},
      {0, 0}}},
    {"three sweeps, a death",
     false,
     {3,
      {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)},
      {0, 1, 0, 0, false},
      {0, 0}}},
    {"three sweeps, an interrupt",
     true,
     {3,
      {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)},
      {0, 0, 1, 0, false},
      {0, 0}}},
    {"three sweeps, a full disk",
     true,
     {3,
      {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)},
      {0, 0, 0, 2, false},
      {0, 0}}},
    {"three sweeps, a disk that stays full",
     false,
     {3,
      {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)},
      {0, 0, 0, 1, false},
      {0, 0}}},
    {"three sweeps, no claims, a full disk",
     false,
     {3,
      {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)},
      {0, 0, 0, 2, true},
      {0, 0}}},
    {"three sweeps, no claims, a lock and a death",
     true,
     {3,
      {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)},
      {1, 1, 0, 0, true},
      {0, 0}}},
    {"two sweeps, all trouble",
     true,
     {2, {SWEEP_OF(3, 0, 1, 2, 1), SWEEP_OF(3, 0, 1, 2, 1)}, {1, 1, 1, 2, false}, {0, 0}}},
};

TEST(whatever_the_order_programs_come_to_an_end_and_no_point_is_recorded_twice) {
    const char *asked = getenv("UNMASK_CROWD");
    bool all = asked != NULL && strcmp(asked, "all") == 0;
    uint64_t n_states = 0;
    for (size_t i = 0; i < sizeof crowds / sizeof crowds[0]; i++) {
        if (crowds[i].is_long && !all) {
            continue;
        }
        clock_t begin = clock();
        struct crowd_found found = crowd_explore(&crowds[i].crowd, MOST_STATES);
        printf("%10llu states, %7llu ends, %5.2f s: %s\n", (unsigned long long)found.n_states,
               (unsigned long long)found.n_ends, (double)(clock() - begin) / CLOCKS_PER_SEC,
               crowds[i].name);
        fflush(stdout);
        ck_assert_msg(found.wrong == NULL, "%s: %s after %s", crowds[i].name, found.wrong,
                      found.how);
        ck_assert_uint_gt(found.n_ends, 0);
        n_states += found.n_states;
    }
    printf("%llu states in all\n", (unsigned long long)n_states);
}

SUITE("protocol")
