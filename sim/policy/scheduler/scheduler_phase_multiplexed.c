/* dLLM-Serve's phase-multiplexed greedy scheduler (arXiv 2512.17077, section 4.4).
 *
 * A step packs the query tokens of running requests, the whole canvas for those in refresh and the
 * block for those in reuse, up to max_batched_tokens; what is left admits waiting requests. The
 * released code stops at the first request that does not fit; with stop_at_misfit off it is skipped
 * instead, which packs better and gives up first come first served. */
#include "sim/policy/scheduler/scheduler.h"

struct state {
    bool stop_at_misfit;
};

static const struct param params[] = {
    {"stop_at_misfit", PARAM_BOOL, 0, "1", "on", 0, 1, NULL, offsetof(struct state, stop_at_misfit),
     "stop at the first request that does not fit"},
};

/* The running requests that fit, in order; returns their query tokens. */
static int64_t select_running(const struct state *state, const struct schedule_view *view,
                              struct batch *batch) {
    if (view->running_tokens <= view->max_batched_tokens) {
        batch->all_running = 1;
        return view->running_tokens;
    }
    int64_t tokens = 0;
    for (uint32_t i = 0; i < view->n_running; i++) {
        int64_t queries = view->requests[view->running[i]].span.queries;
        if (tokens + queries <= view->max_batched_tokens) {
            batch->selected[batch->n++] = view->running[i];
            tokens += queries;
        } else if (state->stop_at_misfit) {
            break;
        }
    }
    return tokens;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    int64_t tokens = select_running(state, view, batch);
    int64_t kv_bytes = 0;
    batch->hold = HOLD_CHANGE;
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        if (view->n_running + batch->n_admitted == view->max_requests) {
            batch->hold = HOLD_CLOSED;
            break;
        }
        const struct request *request = &view->requests[view->waiting[i]];
        if (tokens + request->span.queries <= view->max_batched_tokens &&
            kv_bytes + request->kv_bytes <= view->kv_free_bytes) {
            batch->selected[batch->n++] = view->waiting[i];
            batch->n_admitted++;
            tokens += request->span.queries;
            kv_bytes += request->kv_bytes;
        } else if (state->stop_at_misfit) {
            batch->hold = HOLD_CLOSED;
            break;
        }
    }
}

const struct scheduler scheduler_phase_multiplexed = {
    .policy = SCHEDULER_POLICY(
        "phase-multiplexed", "packs refresh and reuse up to a token budget; greedy, no look-ahead",
        struct state, params),
    .schedule = schedule,
};
