/* Requests of a record at other times of its steps. */
#include <stdlib.h>

#include "experiments/run/retiming.h"
#include "sim/base/rng.h"
#include "tests/support/rig.h"

enum { N = 200, REPLICAS = 3, STEPS_EACH = 4 };

/* One at a time and first come, first served, by each of some servers in turn: who is served with
 * whom does not depend on how long it takes. */
struct served {
    int64_t arrival_ns[N];
    double ns[N]; /* of each step of a request */
    int64_t first_ns[N], finished_ns[N];
};

static void serve(struct served *served, int64_t pause_ns) {
    int64_t free_ns[REPLICAS] = {0};
    for (int i = 0; i < N; i++) {
        int64_t *at = &free_ns[i % REPLICAS];
        *at = (*at > served->arrival_ns[i] ? *at : served->arrival_ns[i]) + pause_ns;
        served->first_ns[i] = *at + (int64_t)served->ns[i];
        *at += STEPS_EACH * (int64_t)served->ns[i];
        served->finished_ns[i] = *at;
    }
}

static struct request_record record_of(const struct served *served, int i) {
    return MAKE(struct request_record, .id = (uint64_t)i, .replica = (uint32_t)(i % REPLICAS),
                .state = REQUEST_DONE, .arrival_ns = served->arrival_ns[i],
                .admitted_ns = served->arrival_ns[i], .first_block_ns = served->first_ns[i],
                .finished_ns = served->finished_ns[i], .answer_tokens = 8, .first_block_tokens = 2);
}

/* All steps of a request at once, or one by one. */
static void retime(struct retiming *retiming, const struct served *was, const struct served *is,
                   bool at_once) {
    for (int i = 0; i < N; i++) {
        struct request request = {.arrival_ns = was->arrival_ns[i]};
        const uint32_t slot = 0;
        const struct submission submission = MAKE(
            struct submission, .replica = (uint32_t)(i % REPLICAS),
            .step = MAKE(struct planned_step, .requests = &request, .slots = &slot, .n_slots = 1));
        const int64_t ns = (int64_t)was->ns[i], start_ns = was->finished_ns[i] - STEPS_EACH * ns;
        for (int s = 0; s < (at_once ? 1 : STEPS_EACH); s++) {
            const int64_t steps = at_once ? STEPS_EACH : 1;
            retiming_add(retiming, &submission, start_ns + s * ns, start_ns + s * ns + steps * ns,
                         (double)steps * (double)(int64_t)is->ns[i]);
        }
        const struct request_record record = record_of(was, i);
        retiming_request(retiming, &record);
    }
    retiming_finish(retiming);
}

static void summarise(const struct served *served, struct summary *summary) {
    struct err err = {0};
    summary_init(summary, NULL);
    for (int i = 0; i < N; i++) {
        const struct request_record record = record_of(served, i);
        ck_assert_int_eq(summary_sink(summary).request(summary, &record, &err), 0);
    }
    summary_finish(summary);
}

static void check_same(const struct summary *a, const struct summary *b) {
    ck_assert_uint_eq(a->completed, b->completed);
    ck_assert_double_eq_tol(a->makespan_s, b->makespan_s, 1e-8);
    ck_assert_double_eq_tol(a->latency.mean, b->latency.mean, 1e-8);
    ck_assert_double_eq_tol(a->latency.p99, b->latency.p99, 1e-8);
    ck_assert_double_eq_tol(a->ttfb.mean, b->ttfb.mean, 1e-8);
}

/* Queues at 0.3 to 2 times what is served, replayed at 0.5 to 2 times as long steps. */
TEST(requests_are_served_when_a_queue_with_the_new_times_serves_them) {
    struct rng rng = rng_stream(1, "retiming");
    for (int round = 0; round < 200; round++) {
        struct served was, is;
        const int64_t mean_ns = rig_between(&rng, 200000, 1500000), pause_ns = round % 2 * 12345;
        const double slower = 0.5 + 1.5 * rng_uniform(&rng);
        int64_t now_ns = 0;
        for (int i = 0; i < N; i++) {
            now_ns += rig_between(&rng, 0, (uint32_t)(2 * mean_ns));
            was.arrival_ns[i] = is.arrival_ns[i] = now_ns;
            was.ns[i] = rig_between(&rng, 100000, 900000);
            is.ns[i] = slower * was.ns[i] * (0.9 + 0.2 * rng_uniform(&rng));
        }
        serve(&was, pause_ns);
        serve(&is, pause_ns);
        struct summary expected, before;
        struct retiming new_times, same_times;
        summarise(&is, &expected);
        summarise(&was, &before);
        retiming_init(&new_times, REPLICAS);
        retiming_init(&same_times, REPLICAS);
        retime(&new_times, &was, &is, round % 3 == 0);
        retime(&same_times, &was, &was, round % 3 == 0);
        check_same(&new_times.summary, &expected);
        check_same(&same_times.summary, &before);
        ck_assert(expected.latency.mean != before.latency.mean);
        summary_fini(&expected);
        summary_fini(&before);
        retiming_fini(&new_times);
        retiming_fini(&same_times);
    }
}

/* It counts as one of the run, and has no times. */
TEST(a_rejected_request_stays_rejected) {
    struct retiming retiming;
    retiming_init(&retiming, 1);
    const struct request_record record =
        MAKE(struct request_record, .state = REQUEST_REJECTED, .reason = REJECT_CONTEXT,
             .admitted_ns = -1, .first_block_ns = -1, .finished_ns = -1);
    retiming_request(&retiming, &record);
    retiming_finish(&retiming);
    ck_assert_uint_eq(retiming.summary.rejected, 1);
    ck_assert_uint_eq(retiming.summary.completed, 0);
    retiming_fini(&retiming);
}

SUITE("retiming")
