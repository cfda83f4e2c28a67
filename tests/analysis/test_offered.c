/* Whether a run kept up with its arrivals: queues whose capacity is known, under arrivals of every
 * kind, and runs that fool a simpler test. `make saturation` asks the same of simulated systems. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/offered.h"
#include "sim/base/mem.h"
#include "sim/base/rng.h"
#include "tests/support/kept.h"
#include "tests/support/suite.h"

enum { MOST = 20000, SEEDS = 20, BATCH = 12 };

static struct stay stays[MOST];

static double gap(struct rng *rng, double rate) {
    return -log(rng_uniform(rng)) / rate;
}

/* ---- arrivals, which afterwards come at a rate exactly ---- */

enum arrivals { POISSON, CLUSTERED, BURSTS, REGULAR, ARRIVALS };

/* Gaps of a hyperexponential distribution with a coefficient of variation of 5: one in 26 is long
 * and the others short. */
static double clustered_gap(struct rng *rng) {
    double often = 0.5 * (1 + sqrt(24.0 / 26));
    return rng_uniform(rng) < often ? gap(rng, 2 * often) : gap(rng, 2 * (1 - often));
}

/* Forty mean gaps of time hold 160 requests, and then none come for 160 gaps. */
static double burst_end(double now) {
    double in_cycle = fmod(now, 200);
    return in_cycle > 40 ? now + (200 - in_cycle) : now;
}

static void arrive(enum arrivals arrivals, double rate, size_t n, struct rng *rng) {
    double now = 0;
    for (size_t i = 0; i < n; i++) {
        now = arrivals == POISSON     ? now + gap(rng, 1)
              : arrivals == CLUSTERED ? now + clustered_gap(rng)
              : arrivals == BURSTS    ? burst_end(now + gap(rng, 4))
                                      : now + 1;
        stays[i].arrival_s = now;
    }
    double first = stays[0].arrival_s, factor = (double)(n - 1) / rate / (now - first);
    for (size_t i = 0; i < n; i++) {
        stays[i].arrival_s = (stays[i].arrival_s - first) * factor;
    }
}

/* ---- servers with a capacity of one request a second, when all wait ---- */

enum server { ONE_BY_ONE, BATCHES, SHARED, STEPS, DRAWN, SERVERS };

/* Of one server, a second each, or drawn times whose mean is a second. */
static void serve_one_by_one(size_t n, double spread, struct rng *rng) {
    static double times_s[MOST];
    double free_at = 0, sum_s = 0;
    for (size_t i = 0; i < n; i++) {
        sum_s += times_s[i] = 1 + spread * (2 * rng_uniform(rng) - 1);
    }
    for (size_t i = 0; i < n; i++) {
        stays[i].admitted_s = fmax(free_at, stays[i].arrival_s);
        free_at = stays[i].admitted_s + times_s[i] * (double)n / sum_s;
        stays[i].left_s = free_at;
    }
}

/* At most so many together, for as long as they would take one after the other if they were full;
 * nobody joins a batch that runs. */
static void serve_batches(size_t n) {
    double free_at = 0;
    for (size_t i = 0; i < n;) {
        double start = fmax(free_at, stays[i].arrival_s);
        free_at = start + BATCH;
        for (size_t k = 0; k < BATCH && i < n && stays[i].arrival_s <= start; k++, i++) {
            stays[i].admitted_s = start;
            stays[i].left_s = free_at;
        }
    }
}

/* All who are there, up to `most`, share the server, so that who came first leaves first. One alone
 * takes about `alone_s`, and `most` of them a second each. */
static void serve_shared(size_t n, size_t most, double alone_s) {
    static double out_at[MOST]; /* of each, the work of anyone who was always there */
    double now = 0, done = 0;
    size_t came = 0, next = 0, left = 0;
    while (left < n) {
        for (; next < came && next - left < most; next++) {
            stays[next].admitted_s = now;
            out_at[next] = done + 1;
        }
        double share = alone_s + (1 - alone_s / (double)most) * (double)(next - left);
        double next_s = came < n ? stays[came].arrival_s : INFINITY;
        double done_s = next > left ? now + (out_at[left] - done) * share : INFINITY;
        double until_s = fmin(next_s, done_s);
        done += next > left ? (until_s - now) / share : 0;
        now = until_s;
        if (next_s <= done_s) {
            came++;
        } else {
            stays[left++].left_s = now;
        }
    }
}

static struct offered judge(size_t n) {
    return offered_of(stays, n, n, stays[n - 1].arrival_s);
}

static struct offered offer(enum server server, enum arrivals arrivals, double rate, size_t n,
                            uint64_t seed) {
    struct rng rng = rng_stream(seed, "arrivals"), service = rng_stream(seed, "service");
    arrive(arrivals, rate, n, &rng);
    switch (server) {
    case ONE_BY_ONE:
        serve_one_by_one(n, 0, &service);
        break;
    case BATCHES:
        serve_batches(n);
        break;
    case SHARED:
        serve_shared(n, n, 0);
        break;
    case STEPS:
        serve_shared(n, 50, 10);
        break;
    default:
        serve_one_by_one(n, 0.9, &service);
    }
    return judge(n);
}

/* How many of the seeds say so. */
static int count(enum server server, enum arrivals arrivals, double rate, size_t n,
                 enum offered_state state) {
    int sum = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        sum += offer(server, arrivals, rate, n, seed).state == state;
    }
    return sum;
}

/* ---- verdicts ---- */

TEST(every_server_is_steady_at_0_8_and_saturated_at_1_2_and_at_1_7) {
    static const size_t sizes[] = {500, 2000};
    for (int server = 0; server < SERVERS; server++) {
        for (int arrivals = 0; arrivals < ARRIVALS; arrivals++) {
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                ck_assert_msg(
                    count(server, arrivals, 0.8, sizes[i], OFFERED_STEADY) >= SEEDS - 1 &&
                        count(server, arrivals, 0.8, sizes[i], OFFERED_SATURATED) == 0 &&
                        count(server, arrivals, 1.2, sizes[i], OFFERED_STEADY) == 0 &&
                        count(server, arrivals, 1.2, sizes[i], OFFERED_SATURATED) >= SEEDS - 1 &&
                        count(server, arrivals, 1.7, sizes[i], OFFERED_STEADY) == 0 &&
                        count(server, arrivals, 1.7, sizes[i], OFFERED_SATURATED) == SEEDS,
                    "server %d, arrivals %d, %zu requests", server, arrivals, sizes[i]);
            }
        }
    }
}

/* In two and a half bursts those who find many stay no longer than those whom the rest of the burst
 * joins. */
TEST(bursts_into_a_large_batch_are_saturated_by_whom_requests_have_beside_them) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rng rng = rng_stream(seed, "arrivals");
        arrive(BURSTS, 1.2, 500, &rng);
        serve_shared(500, 300, 40);
        ck_assert_int_eq(judge(500).state, OFFERED_SATURATED);
    }
}

TEST(rates_and_load_are_those_of_the_queue) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct offered low = offer(ONE_BY_ONE, POISSON, 0.8, 2000, seed);
        ck_assert_double_eq_tol(low.rate_req_s, 0.8, 1e-9);
        ck_assert_double_eq_tol(low.served_req_s, 0.8, 0.05);
        ck_assert_double_eq_tol(low.load, 0.8, 0.01);
        ck_assert(low.load_low <= low.load && low.load <= low.load_high && low.growth_req_s == 0);
        struct offered high = offer(ONE_BY_ONE, POISSON, 1.2, 2000, seed);
        ck_assert_double_eq_tol(high.served_req_s, 1, 0.01);
        ck_assert_double_eq_tol(high.growth_req_s, 0.2, 0.05);
        ck_assert_double_eq_tol(high.load, 1.2, 0.01);
        ck_assert_uint_ge(high.n_left, 2000 / 6);
        ck_assert_uint_le(high.n_left, 2000 / 5);
    }
}

/* Stretches of two hundred slow requests and of as many quick ones: a correlated rate. */
TEST(the_interval_of_the_load_holds_it_where_service_is_correlated) {
    enum { RUNS = 200, STRETCH = 200, N = 2000 };
    int n_held = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct rng rng = rng_stream(seed, "arrivals");
        arrive(POISSON, 1.1, N, &rng);
        double free_at = 0, time_s = 1, sum_s = 0;
        for (size_t i = 0; i < N; i++) {
            time_s = i % STRETCH == 0 ? 0.2 + 1.6 * rng_uniform(&rng) : time_s;
            stays[i].admitted_s = fmax(free_at, stays[i].arrival_s);
            stays[i].left_s = free_at = stays[i].admitted_s + time_s;
            sum_s += time_s;
        }
        struct offered offered = judge(N);
        double load = 1.1 * sum_s / N;
        n_held += offered.load_low <= load && load <= offered.load_high;
    }
    ck_assert_int_ge(n_held, RUNS * 86 / 100);
}

/* At a load of 1 nothing can be told; an interval of 98 % is wrong one way in a hundred. */
TEST(a_server_at_its_capacity_is_seldom_called_saturated) {
    for (int arrivals = 0; arrivals < ARRIVALS; arrivals++) {
        ck_assert_int_le(count(DRAWN, arrivals, 1, 2000, OFFERED_SATURATED), 2);
        ck_assert_int_eq(count(ONE_BY_ONE, arrivals, 0.95, 2000, OFFERED_SATURATED), 0);
    }
}

/* However few they are. */
TEST(a_rate_above_capacity_is_never_steady) {
    for (int server = 0; server < SERVERS; server++) {
        for (size_t n = 30; n < 300; n *= 2) {
            int n_steady = count(server, POISSON, 1.2, n, OFFERED_STEADY) +
                           count(server, CLUSTERED, 1.2, n, OFFERED_STEADY) +
                           count(server, REGULAR, 1.2, n, OFFERED_STEADY);
            ck_assert_msg(n_steady <= 1, "server %d, %zu requests: %d", server, n, n_steady);
        }
    }
}

/* Four in a hundred too many: nobody is told that latencies are the system's own. */
TEST(a_queue_that_grows_slowly_is_not_steady) {
    ck_assert_int_eq(count(ONE_BY_ONE, POISSON, 1.04, 2000, OFFERED_STEADY), 0);
    ck_assert_int_eq(count(BATCHES, POISSON, 1.04, 2000, OFFERED_STEADY), 0);
    ck_assert_int_le(count(STEPS, POISSON, 1.04, 2000, OFFERED_STEADY), 1);
}

TEST(a_rate_far_above_capacity_is_saturated_too) {
    static const double rates[] = {3, 10};
    for (int server = 0; server < SERVERS; server++) {
        for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
            ck_assert_int_eq(count(server, POISSON, rates[i], 1000, OFFERED_SATURATED), SEEDS);
        }
    }
}

/* The same requests; a verdict is of what was offered, not of when it happened. */
TEST(neither_units_nor_the_start_of_time_change_a_verdict) {
    static const double factors[] = {1e-3, 1, 1e3};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        enum offered_state first = offer(DRAWN, CLUSTERED, 1.05, 500, seed).state;
        for (size_t f = 0; f < 3; f++) {
            offer(DRAWN, CLUSTERED, 1.05, 500, seed);
            for (size_t i = 0; i < 500; i++) {
                stays[i].arrival_s = 7 + factors[f] * stays[i].arrival_s;
                stays[i].admitted_s = 7 + factors[f] * stays[i].admitted_s;
                stays[i].left_s = 7 + factors[f] * stays[i].left_s;
            }
            ck_assert_int_eq(judge(500).state, first);
        }
    }
}

/* ---- what a simpler test takes for saturation ---- */

/* A run that is short beside the time of a request fills up to its end, and is no queue. */
TEST(a_system_that_fills_slowly_is_not_saturated) {
    static const struct {
        double stay_s, spread;
        size_t n;
    } crowds[] = {{20, 0.3, 1000}, {200, 0.3, 1000}, {700, 0.9, 1000}, {60, 0, 100}};
    int n_saturated = 0, n_steady = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        for (size_t c = 0; c < 4; c++) {
            struct rng rng = rng_stream(seed, "arrivals");
            arrive(POISSON, 1, crowds[c].n, &rng);
            for (size_t i = 0; i < crowds[c].n; i++) {
                double spread = 1 + crowds[c].spread * (2 * rng_uniform(&rng) - 1);
                stays[i].admitted_s = stays[i].arrival_s;
                stays[i].left_s = stays[i].arrival_s + crowds[c].stay_s * spread;
            }
            enum offered_state state = judge(crowds[c].n).state;
            n_saturated += state == OFFERED_SATURATED;
            n_steady += c == 0 && state == OFFERED_STEADY;
        }
    }
    ck_assert_int_le(n_saturated, 8); /* of 400, each one-sided at 99 % twice */
    ck_assert_int_eq(n_steady, 100);
}

/* Requests wait for the batch before them, so that the system is never empty and always waited for,
 * at any rate. */
TEST(batches_that_are_never_full_are_not_saturated) {
    static const double rates[] = {0.3, 0.5, 0.8, 0.9};
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        for (size_t n = 30; n <= 2000; n *= 2) {
            ck_assert_int_eq(count(BATCHES, REGULAR, rates[r], n, OFFERED_SATURATED), 0);
            ck_assert_int_eq(count(BATCHES, POISSON, rates[r], n, OFFERED_SATURATED), 0);
        }
        ck_assert_int_eq(count(BATCHES, REGULAR, rates[r], 300, OFFERED_STEADY), SEEDS);
    }
}

/* Batches of up to fifty that requests join and leave: a hundred of them fill it and empty it. */
TEST(a_short_run_of_large_batches_is_not_saturated) {
    static const double rates[] = {0.5, 0.7, 0.8};
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        for (size_t n = 30; n <= 240; n *= 2) {
            int n_saturated = count(STEPS, POISSON, rates[r], n, OFFERED_SATURATED) +
                              count(STEPS, CLUSTERED, rates[r], n, OFFERED_SATURATED) +
                              count(STEPS, REGULAR, rates[r], n, OFFERED_SATURATED);
            ck_assert_msg(n_saturated <= 1, "%g, %zu requests: %d", rates[r], n, n_saturated);
        }
    }
}

/* A batch of 128 in which a request alone stays 80 s: 500 of them come in four full batches' time.
 */
TEST(a_run_of_a_few_stays_needs_more_than_a_load_just_above_one) {
    int n_saturated = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rng rng = rng_stream(seed, "arrivals");
        arrive(POISSON, 0.8, 500, &rng);
        serve_shared(500, 128, 80);
        n_saturated += judge(500).state == OFFERED_SATURATED;
    }
    ck_assert_int_le(n_saturated, 1);
}

/* Two hundred come at once every 250 s. */
TEST(a_system_that_empties_between_bursts_is_steady) {
    for (size_t i = 0; i < 2000; i++) {
        stays[i].arrival_s = 250 * floor((double)i / 200) + 1e-3 * (double)(i % 200);
    }
    struct rng never = rng_stream(1, "service");
    serve_one_by_one(2000, 0, &never);
    ck_assert_int_eq(judge(2000).state, OFFERED_STEADY);
}

TEST(few_requests_that_hardly_meet_are_steady_and_few_that_do_tell_nothing) {
    for (size_t i = 0; i < 5; i++) {
        stays[i] = (struct stay){3 * (double)i, 3 * (double)i, 3 * (double)i + 1 + 0.1 * (double)i};
    }
    ck_assert_int_eq(judge(5).state, OFFERED_STEADY);
    struct offered few = offer(ONE_BY_ONE, REGULAR, 1.7, 12, 1);
    ck_assert(few.state == OFFERED_UNKNOWN && isnan(few.load));
    ck_assert_int_eq(offered_of(stays, 0, 0, 0).state, OFFERED_UNKNOWN);
}

/* ---- closed ---- */

TEST(what_is_there_at_once_is_closed) {
    for (size_t i = 0; i < 100; i++) {
        stays[i] = (struct stay){1e-6 * (double)i, 1e-6 * (double)i, 10 + (double)i};
    }
    struct offered offered = judge(100);
    ck_assert_int_eq(offered.state, OFFERED_CLOSED);
    ck_assert_double_eq_tol(offered.served_req_s, 1, 1e-12);
    stays[0] = (struct stay){1, 1, 2};
    ck_assert_int_eq(offered_of(stays, 1, 1, 1).state, OFFERED_CLOSED);
}

/* Clients that send their next request after a departure, at once or later. */
TEST(a_closed_loop_is_closed_and_regular_arrivals_are_not) {
    static const double thinks[] = {0, 2.5};
    for (size_t t = 0; t < 2; t++) {
        double free_at = 0;
        for (size_t i = 0; i < 1000; i++) {
            stays[i].arrival_s = i < 8 ? 0 : stays[i - 8].left_s + thinks[t];
            stays[i].admitted_s = fmax(free_at, stays[i].arrival_s);
            stays[i].left_s = free_at = stays[i].admitted_s + 1;
        }
        ck_assert_int_eq(judge(1000).state, OFFERED_CLOSED);
    }
    ck_assert_int_eq(offer(ONE_BY_ONE, REGULAR, 0.9, 1000, 1).state, OFFERED_STEADY);
    ck_assert_int_eq(offer(ONE_BY_ONE, REGULAR, 1.1, 1000, 1).state, OFFERED_SATURATED);
}

/* ---- runs that do not serve all ---- */

/* `rate` against a queue of ten, of whom the eleventh is turned away. */
static struct offered turn_away(double rate) {
    struct rng rng = rng_stream(1, "arrivals");
    arrive(POISSON, rate, 2000, &rng);
    double free_at = 0;
    for (size_t i = 0; i < 2000; i++) {
        struct stay *stay = &stays[i];
        if (free_at > stay->arrival_s + 10) {
            stay->admitted_s = stay->left_s = stay->arrival_s;
        } else {
            stay->admitted_s = fmax(free_at, stay->arrival_s);
            stay->left_s = free_at = stay->admitted_s + 1;
        }
    }
    return judge(2000);
}

TEST(a_full_queue_that_turns_requests_away_is_saturated_above_capacity_alone) {
    struct offered high = turn_away(1.5);
    ck_assert_int_eq(high.state, OFFERED_SATURATED);
    ck_assert_double_eq_tol(high.served_req_s, 1, 0.02);
    ck_assert_int_eq(turn_away(0.8).state, OFFERED_STEADY);
}

/* Cut at the last arrival: who had not left never will. */
TEST(a_run_that_was_interrupted_is_judged_by_what_happened) {
    static const double rates[] = {0.8, 1.5};
    for (size_t r = 0; r < 2; r++) {
        offer(ONE_BY_ONE, POISSON, rates[r], 2000, 3);
        double end_s = stays[1999].arrival_s;
        for (size_t i = 0; i < 2000; i++) {
            stays[i].admitted_s = stays[i].admitted_s > end_s ? INFINITY : stays[i].admitted_s;
            stays[i].left_s = stays[i].left_s > end_s ? INFINITY : stays[i].left_s;
        }
        ck_assert_int_eq(judge(2000).state, r == 0 ? OFFERED_STEADY : OFFERED_SATURATED);
    }
}

/* Nobody leaves before the last arrival. */
TEST(arrivals_that_are_over_before_anybody_leaves_are_saturated_by_what_leaves) {
    for (size_t i = 0; i < 300; i++) {
        double arrival_s = (double)i / 2;
        stays[i] = (struct stay){arrival_s, arrival_s, 200 + 1.6 * (double)i};
    }
    struct offered offered = judge(300);
    ck_assert_int_eq(offered.state, OFFERED_SATURATED);
    ck_assert_double_eq_tol(offered.served_req_s, 1 / 1.6, 1e-9);
    ck_assert_uint_eq(offered.n_left, 300);
}

TEST(more_than_any_scheduler_serves_is_saturated_whatever_the_run_looks_like) {
    struct offered offered = offer(ONE_BY_ONE, POISSON, 0.8, 500, 1);
    offered_judge_by_bound(&offered, (double)NAN);
    offered_judge_by_bound(&offered, 0.81);
    ck_assert_int_eq(offered.state, OFFERED_STEADY);
    offered_judge_by_bound(&offered, 0.7);
    ck_assert_int_eq(offered.state, OFFERED_SATURATED);
    ck_assert_double_eq_tol(offered.growth_req_s, 0.1, 1e-9);
    struct offered few = offer(ONE_BY_ONE, REGULAR, 1.7, 12, 1);
    offered_judge_by_bound(&few, 0.7);
    ck_assert_int_eq(few.state, OFFERED_UNKNOWN);
}

/* ---- what exists does not change unseen ---- */

/* Also of runs that were cut short, and of full queues, a tenth of whose requests are turned away.
 */
static struct offered offer_some(enum server server, enum arrivals arrivals, double rate, size_t n,
                                 uint64_t seed) {
    struct offered offered = offer(server, arrivals, rate, n, seed);
    if (seed % 5 == 4) {
        const double end_s = stays[n - 1].arrival_s;
        for (size_t i = 0; i < n; i++) {
            stays[i].left_s = stays[i].left_s > end_s ? INFINITY : stays[i].left_s;
        }
        offered = judge(n);
    } else if (seed % 5 == 3) {
        for (size_t i = 5; i < n; i += 10) {
            stays[i].admitted_s = stays[i].left_s = stays[i].arrival_s;
        }
        offered = offered_of(stays, n, n + n / 20, stays[n - 1].arrival_s);
    }
    return offered;
}

/* Loads around all that decides: how many of the seeds are which, and a digest of the numbers. */
static void keep_verdicts(FILE *out, enum server server, enum arrivals arrivals, size_t n) {
    static const double rates[] = {0.3,  0.8,  0.9, 0.95, 1,   1.02, 1.04,
                                   1.06, 1.09, 1.1, 1.12, 1.2, 1.4,  2};
    fprintf(out, "server %d, arrivals %d, %zu requests:", (int)server, (int)arrivals, n);
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        int counts[OFFERED_STATE_COUNT] = {0};
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            char text[160];
            const struct offered o = offer_some(server, arrivals, rates[r], n, seed);
            snprintf(text, sizeof text, "%d %.9g %.9g %.9g %zu %zu %.9g %.9g %.9g", (int)o.state,
                     o.rate_req_s, o.served_req_s, o.growth_req_s, o.n, o.n_left, o.load,
                     o.load_low, o.load_high);
            for (const char *at = text; *at != '\0'; at++) {
                digest = (digest ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
            }
            counts[o.state]++;
        }
        fprintf(out, " %d/%d/%d/%d", counts[0], counts[1], counts[2], counts[3]);
    }
    fprintf(out, " %016" PRIx64 "\n", digest);
}

TEST(verdicts_and_loads_are_those_that_were_kept) {
    static const size_t sizes[] = {5, 29, 30, 41, 120};
    char *now;
    size_t size;
    FILE *out = mem_stream(&now, &size);
    for (int server = 0; server < SERVERS; server++) {
        for (int arrivals = 0; arrivals < ARRIVALS; arrivals++) {
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                keep_verdicts(out, server, arrivals, sizes[i]);
            }
        }
    }
    mem_stream_close(out);
    kept_same("tests/golden/verdicts.txt", now);
    free(now);
}

SUITE("offered")
