/* Continuous batching with request-level provision: requests join at step borders in arrival order
 * while every one of them is charged its whole canvas for life, as a scheduler made for
 * autoregressive models does; the headroom of reuse steps stays unused. A request whose canvas
 * exceeds what a step may have, as under exact caches it can, runs alone. */
#include <stdbool.h>

#include "sim/policy/scheduler/scheduler.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    int64_t tokens = 0, kv_bytes = 0;
    for (uint32_t i = 0; i < view->n_running; i++) {
        tokens += view->requests[view->running[i]].canvas_tokens;
    }
    batch->all_running = 1;
    batch->hold = HOLD_CHANGE;
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        tokens += request->canvas_tokens;
        kv_bytes += request->kv_bytes;
        bool is_alone =
            view->n_running + batch->n == 0 && request->span.queries <= view->max_batched_tokens;
        if (view->n_running + batch->n == view->max_requests || kv_bytes > view->kv_free_bytes ||
            (tokens > view->max_batched_tokens && !is_alone)) {
            batch->hold = HOLD_CLOSED;
            break;
        }
        batch->selected[batch->n++] = view->waiting[i];
    }
    batch->n_admitted = batch->n;
}

const struct scheduler scheduler_continuous = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .name = "continuous",
               .doc = "first come first served at step borders; charges the canvas for life"},
    .schedule = schedule,
};
