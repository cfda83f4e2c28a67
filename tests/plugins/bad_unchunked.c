/* Grows, and leaves a prefill that is wider than a step waiting for ever. */
#include "tests/plugins/first_fits.h"

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct taken used = {0, 0};
    (void)state;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        int64_t growth = request->kv_bytes - request->kv_held_bytes;
        if (used.tokens + request->span.queries <= view->max_batched_tokens &&
            used.bytes + growth <= view->kv_free_bytes) {
            batch->selected[batch->n++] = view->running[i];
            used.tokens += request->span.queries;
            used.bytes += growth;
        }
    }
    admit_waiting(view, UINT32_MAX, &used, batch);
}

const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                   .kind = POLICY_SCHEDULER,
                                                   .size = sizeof(struct scheduler),
                                                   .state_bytes = 8,
                                                   .name = "unchunked",
                                                   .doc = "takes a prompt whole or not at all"},
                                        .grows = 1,
                                        .schedule = schedule};
