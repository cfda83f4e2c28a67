/* Earliest deadline first (Liu and Layland, 1973, "Scheduling Algorithms for Multiprogramming in a
 * Hard-Real-Time Environment", J. ACM 20) with admission: where requests are worked off one at a
 * time and all deadlines can be met, it meets them all. So that it does not work for those that it
 * cannot serve in time, which is how it fails under overload, a request that waits leaves as
 * rejected once what it takes alone no longer fits before its deadline, `slowdown` times over.
 *
 * Kept are the order and the preemption, at the end of any pass. The paper's test of a whole set of
 * periodic tasks is not: what passes take depends on who shares them, so that the test here, of
 * each request by itself, keeps only hopeless ones out. One that runs and is late goes after all
 * that are not; those without deadlines go last, in order of arrival. */
#include "sim/policy/scheduler/turns.h"

enum { PASSES = 64 };

struct state {
    double slowdown;
    struct turns turns;
};

static const struct param params[] = {
    PARAM(
        "slowdown", PARAM_F64, struct state, slowdown, "1", "1", 0, 1000,
        "what would be late if it took that many times as long as alone is rejected (0: none is)"),
    TURNS_PARAMS(struct state),
};

static const double late = 1e19; /* beyond every deadline */

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    struct ranked *own = view->own;
    for (const struct happening *h = happenings; h < happenings + n; h++) {
        const struct request *request = &view->requests[h->slot];
        if (h->kind == HAPPENED_ARRIVAL) {
            struct pass_ahead passes[PASSES];
            if (request->deadline_ns < INT64_MAX && state->slowdown > 0) {
                const double rest_ns = (double)view_rest_ns(view, h->slot, passes, PASSES);
                const int64_t most_ns = (int64_t)(state->slowdown * rest_ns);
                own[h->slot].latest_ns =
                    request->deadline_ns > most_ns ? request->deadline_ns - most_ns : 1;
            }
            turns_put(&state->turns, own, h->slot, (double)request->deadline_ns);
        } else if (h->kind != HAPPENED_STEPS) {
            turns_told(&state->turns, view, h);
        }
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    struct ranked *own = view->own;
    const struct ranks *running = &state->turns.running;
    while (running->first != 0 && own[running->first - 1].key < (double)view->now_ns) {
        turns_move(&state->turns, own, running->first - 1, own[running->first - 1].key + late);
    }
    (void)turns_take(&state->turns, view, batch);
}

static const char *const reasons[] = {"deadline", NULL};

const struct scheduler scheduler_edf = {
    .policy = SCHEDULER_POLICY("edf", "earliest deadline first; rejects what cannot meet its own",
                               struct state, params),
    .grows = 1,
    .request_bytes = sizeof(struct ranked),
    .schedule = schedule,
    .happened = happened,
    .reject_reasons = reasons,
};
