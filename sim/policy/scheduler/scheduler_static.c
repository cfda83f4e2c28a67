/* Request-level static batching, as the released baselines run: a batch is formed from the front of
 * the queue when nothing runs, and the next one waits until its last request is done. */
#include "sim/policy/scheduler/scheduler.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->hold = HOLD_CLOSED;
    if (view->n_running > 0) {
        batch->all_running = 1;
        return;
    }
    int64_t tokens = 0, kv_bytes = 0;
    for (uint32_t i = 0; i < view->n_waiting && batch->n < view->max_requests; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        tokens += request->span.queries;
        kv_bytes += request->kv_bytes;
        if (tokens > view->max_batched_tokens || kv_bytes > view->kv_free_bytes) {
            break;
        }
        batch->selected[batch->n++] = view->waiting[i];
    }
    batch->n_admitted = batch->n;
}

const struct scheduler scheduler_static = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .name = "static",
               .doc = "one batch at a time, run to completion; late arrivals wait for all of it"},
    .needs = NEEDS_FIRST_LARGEST, /* a batch is as large as the first steps allow */
    .schedule = schedule,
};
