/* Admits all that waits, but for the time in which it knows that another one comes soon: what it
 * decides shows what it is told of arrivals to come. */
#include "sim/policy/scheduler/scheduler.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    const int64_t soon_ns = view->now_ns + 3000000000;
    int64_t tokens = view->max_batched_tokens - view->running_tokens, kv = view->kv_free_bytes;
    int64_t left = 0;
    uint32_t n_running = view->n_running;
    (void)state;
    batch->all_running = tokens >= 0;
    for (uint32_t i = 0; tokens < 0 && i < view->n_running; i++) {
        const int64_t queries = view->requests[view->running[i]].span.queries;
        if (queries <= view->max_batched_tokens + left) {
            batch->selected[batch->n++] = view->running[i];
            left -= queries;
        }
    }
    batch->hold = HOLD_CHANGE;
    if (view->next_arrival_ns > view->now_ns && view->next_arrival_ns < soon_ns) {
        batch->wake_ns = view->n_running == 0 ? view->next_arrival_ns : batch->wake_ns;
        return;
    }
    for (uint32_t i = 0; i < view->n_waiting && n_running < view->max_requests; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        if (request->span.queries > tokens || request->kv_bytes > kv) {
            break;
        }
        tokens -= request->span.queries;
        kv -= request->kv_bytes;
        batch->selected[batch->n++] = view->waiting[i];
        batch->n_admitted++;
        n_running++;
    }
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .name = "waits-for-next",
               .doc = "waits for an arrival that comes soon"},
    .schedule = schedule,
};
