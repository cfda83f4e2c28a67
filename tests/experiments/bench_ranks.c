/* How many pieces a second rank 0 hands out: pieces without work, whose results are as long as a
 * point's of a sweep. Started by mpirun (`make bench-ranks`); rank 0's own threads
 * do nothing, each helper has eight. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "experiments/run/ranks/pool.h"
#include "experiments/run/ranks/ranks.h"
#include "sim/base/monotonic.h"

enum { PIECES = 4000, RESULT_BYTES = 4096 };

static char result[RESULT_BYTES];

static void work(void *state, size_t i) {
    (void)state;
    (void)i;
    if (!ranks_is_helper()) { /* leaves the pieces to the others */
        nanosleep(&(const struct timespec){.tv_nsec = 200000000}, NULL);
    }
}

static void put(void *state, size_t i, struct parcel *out) {
    (void)state;
    parcel_put(out, &i, sizeof i);
    if (ranks_is_helper()) {
        parcel_put(out, result, sizeof result);
    }
}

static void take(void *state, size_t i, struct parcel *in) {
    (void)state;
    parcel_take(in, &i, sizeof i);
    if (!ranks_is_helper()) {
        parcel_take(in, result, sizeof result);
    }
}

int main(void) {
    struct err err = {0};
    if (ranks_join(&err) != 0) {
        fprintf(stderr, "bench_ranks: %s\n", err.text);
        return 1;
    }
    int n_ranks = ranks_n();
    int64_t start_ns = monotonic_ns();
    clock_t start = clock();
    pool_run(&(struct pool){.n = PIECES, .n_threads = 8, .work = work, .put = put, .take = take});
    double wall_s = (double)(monotonic_ns() - start_ns) * 1e-9;
    double cpu_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (!ranks_is_helper()) {
        printf("%d ranks, results of %d bytes: %.0f pieces/s, %.1f us of rank 0's CPU each\n",
               n_ranks, RESULT_BYTES, PIECES / wall_s, cpu_s / PIECES * 1e6);
    }
    ranks_leave(&err);
    return 0;
}
