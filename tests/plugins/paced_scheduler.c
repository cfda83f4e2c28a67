/* Runs all that fits, and begins no step sooner than `pause` after the one before: until then it
 * asks to be woken every millisecond. That is slow, and no starvation. */
#include "sim/scheduler/scheduler.h"

struct state {
    int64_t pause_ns, next_ns;
};

static const struct param params[] = {{"pause", PARAM_I64, 0, "ns", "2 s", 0, 1e15, NULL,
                                       offsetof(struct state, pause_ns),
                                       "from the begin of a step to that of the next"}};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    int64_t tokens = 0, bytes = 0;
    if (view->now_ns < state->next_ns) {
        batch->wake_ns = view->now_ns + 1000000;
        return;
    }
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (tokens + request->span.queries <= view->max_batched_tokens) {
            batch->selected[batch->n++] = view->running[i];
            tokens += request->span.queries;
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
    if (batch->n > 0) {
        state->next_ns = view->now_ns + state->pause_ns;
    }
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "paced",
               .doc = "one step at a time, with pauses in which nothing runs",
               .params = params,
               .n_params = 1},
    .schedule = schedule};
