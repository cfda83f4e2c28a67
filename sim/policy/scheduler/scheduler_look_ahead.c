/* Look-ahead: as phase-multiplexed (dLLM-Serve), first come first served, but by what requests have
 * yet to do. As many run as what is there is done soonest with, by the passes that each of them has
 * to come, and refreshes that would fall on one step are staggered where that is cheaper or the
 * token budget asks for it (concurrency.h). Where a decoder draws, the passes to come are expected
 * ones. */
#include "sim/policy/scheduler/concurrency.h"

static const struct param params[] = {
    CONCURRENCY_PARAM(offsetof(struct concurrency, put_off)),
};

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct candidate candidates[2 * CONCURRENCY_MOST];
    uint32_t n = 0, best = concurrency_best(state, view);
    for (; n < view->n_running && n < CONCURRENCY_MOST; n++) {
        candidates[n] = (struct candidate){.slot = view->running[n]};
    }
    uint32_t most = best > n ? best : n;
    for (uint32_t i = 0; i < view->n_waiting && n < most; i++) {
        candidates[n++] = (struct candidate){.slot = view->waiting[i], .waits = true};
    }
    concurrency_list(state, view, candidates, n, most, batch);
}

const struct scheduler scheduler_look_ahead = {
    .policy = SCHEDULER_POLICY(
        "look-ahead", "as many as finish soonest by their passes to come, refreshes staggered",
        struct concurrency, params),
    .schedule = schedule,
};
