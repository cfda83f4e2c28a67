/* Whether a run kept up with its arrivals: queues with closed forms, and runs that fool a simpler
 * test. */
#include <math.h>

#include "analysis/offered.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

enum { MOST = 4000 };

static struct stay stays[MOST];

static double gap(struct rng *rng, double rate) {
    return -log(rng_uniform(rng)) / rate;
}

/* M/D/1 with a service of a second: who comes leaves a second after the server is free. */
static struct offered queue_at(double rate, size_t n, uint64_t seed) {
    struct rng rng = rng_stream(seed, "arrivals");
    double now = 0, free_at = 0;
    for (size_t i = 0; i < n; i++) {
        now += gap(&rng, rate);
        free_at = fmax(free_at, now) + 1;
        stays[i] = (struct stay){now, free_at};
    }
    return offered_of(stays, n, n, now);
}

/* Whoever comes stays so long, whoever else is there. */
static struct offered crowd_at(double rate, double stay_s, double spread, size_t n, uint64_t seed) {
    struct rng rng = rng_stream(seed, "arrivals");
    double now = 0;
    for (size_t i = 0; i < n; i++) {
        now += gap(&rng, rate);
        stays[i] = (struct stay){now, now + stay_s * (1 + spread * (2 * rng_uniform(&rng) - 1))};
    }
    return offered_of(stays, n, n, now);
}

TEST(a_deterministic_server_is_saturated_at_1_2_and_not_at_0_8) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct offered low = queue_at(0.8, 2000, seed), high = queue_at(1.2, 2000, seed);
        ck_assert_int_eq(low.state, OFFERED_STEADY);
        ck_assert_int_eq(high.state, OFFERED_SATURATED);
        ck_assert_double_eq_tol(low.rate_req_s, 0.8, 0.09);
        ck_assert_double_eq_tol(low.served_req_s, low.rate_req_s, 0.03);
        ck_assert_double_eq_tol(high.rate_req_s, 1.2, 0.12);
        ck_assert_double_eq_tol(high.served_req_s, 1, 0.01);
        ck_assert_double_eq_tol(high.growth_req_s, high.rate_req_s - 1, 0.05);
        ck_assert(low.growth_req_s == 0);
    }
}

TEST(a_server_near_its_capacity_is_seldom_called_saturated) {
    int n_half = 0, n_full = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        n_half += queue_at(0.95, 2000, seed).state == OFFERED_SATURATED;
        n_full += queue_at(1, 2000, seed).state == OFFERED_SATURATED;
    }
    ck_assert_int_le(n_half, 2);
    ck_assert_int_le(n_full, 10);
}

TEST(few_hundred_requests_tell_a_fifth_too_much) {
    int n_high = 0, n_low = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        n_high += queue_at(1.3, 300, seed).state == OFFERED_SATURATED;
        n_low += queue_at(0.8, 300, seed).state == OFFERED_SATURATED;
    }
    ck_assert_int_ge(n_high, 80);
    ck_assert_int_le(n_low, 1);
}

TEST(a_rate_far_above_capacity_is_saturated_too) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ck_assert_int_eq(queue_at(3, 1000, seed).state, OFFERED_SATURATED);
        ck_assert_int_eq(queue_at(10, 1000, seed).state, OFFERED_SATURATED);
        ck_assert_int_eq(queue_at(40, 1000, seed).state, OFFERED_SATURATED);
    }
}

/* A run that is short beside the time of a request fills up to its end, and is no queue. */
TEST(a_system_that_fills_slowly_is_not_saturated) {
    int n_saturated = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        n_saturated += crowd_at(1, 20, 0.3, 1000, seed).state == OFFERED_SATURATED;
        n_saturated += crowd_at(1, 200, 0.3, 1000, seed).state == OFFERED_SATURATED;
        n_saturated += crowd_at(1, 700, 0.9, 1000, seed).state == OFFERED_SATURATED;
        n_saturated += crowd_at(1, 60, 0, 100, seed).state == OFFERED_SATURATED;
    }
    ck_assert_int_le(n_saturated, 8);
}

TEST(a_batch_given_at_once_is_closed) {
    for (size_t i = 0; i < 100; i++) {
        stays[i] = (struct stay){1e-6 * (double)i, 10 + (double)i};
    }
    struct offered offered = offered_of(stays, 100, 100, 99e-6);
    ck_assert_int_eq(offered.state, OFFERED_CLOSED);
    ck_assert_double_eq_tol(offered.served_req_s, 1, 1e-12);
}

TEST(a_full_queue_that_turns_requests_away_is_saturated) {
    struct rng rng = rng_stream(1, "arrivals");
    double now = 0, free_at = 0;
    for (size_t i = 0; i < 2000; i++) {
        now += gap(&rng, 1.5);
        if (free_at > now + 10) {
            stays[i] = (struct stay){now, INFINITY};
        } else {
            free_at = fmax(free_at, now) + 1;
            stays[i] = (struct stay){now, free_at};
        }
    }
    struct offered offered = offered_of(stays, 2000, 2000, now);
    ck_assert_int_eq(offered.state, OFFERED_SATURATED);
    ck_assert_double_eq_tol(offered.served_req_s, 1, 0.02);
}

/* A server that shares its time among all who are there: nobody leaves before the last arrival, and
 * latencies do not grow. */
TEST(a_shared_server_whose_arrivals_are_over_before_anybody_leaves_is_saturated) {
    for (size_t i = 0; i < 300; i++) {
        stays[i] = (struct stay){(double)i / 2, 200 + 1.6 * (double)i};
    }
    struct offered offered = offered_of(stays, 300, 300, 149.5);
    ck_assert_int_eq(offered.state, OFFERED_SATURATED);
    ck_assert_double_eq_tol(offered.served_req_s, 1 / 1.6, 1e-9);
}

TEST(too_few_requests_tell_nothing) {
    ck_assert_int_eq(offered_of(stays, 0, 0, 0).state, OFFERED_UNKNOWN);
    stays[0] = (struct stay){1, 2};
    ck_assert_int_eq(offered_of(stays, 1, 1, 1).state, OFFERED_UNKNOWN);
    ck_assert_int_eq(queue_at(0.5, 12, 1).state, OFFERED_UNKNOWN);
}

SUITE("offered")
