/* Grows, and leaves a prefill that is wider than a step waiting for ever. */
#include "sim/scheduler/scheduler.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = 0, bytes = 0;
    (void)state;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        int64_t growth = request->kv_bytes - request->kv_held_bytes;
        if (tokens + request->span.queries <= view->max_batched_tokens &&
            bytes + growth <= view->kv_free_bytes) {
            batch->selected[batch->n++] = view->running[i];
            tokens += request->span.queries;
            bytes += growth;
        }
    }
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        tokens += request->span.queries;
        bytes += request->kv_bytes;
        if (tokens > view->max_batched_tokens || bytes > view->kv_free_bytes ||
            view->n_running + batch->n_admitted == view->max_requests) {
            break;
        }
        batch->selected[batch->n++] = view->waiting[i];
        batch->n_admitted++;
    }
}

const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                   .kind = POLICY_SCHEDULER,
                                                   .size = sizeof(struct scheduler),
                                                   .state_bytes = 8,
                                                   .name = "unchunked",
                                                   .doc = "takes a prompt whole or not at all"},
                                        .grows = 1,
                                        .schedule = schedule};
