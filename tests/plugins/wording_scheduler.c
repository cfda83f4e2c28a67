/* First come first served; windows a quarter as wide and a lower threshold while requests wait. */
#include "sim/policy/scheduler/scheduler.h"

struct state {
    double threshold; /* 0: as configured */
};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0", 0, 1, NULL, offsetof(struct state, threshold),
     "the decoder's while requests wait; 0: as configured"},
};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    int64_t tokens = view->max_batched_tokens, bytes = view->kv_free_bytes;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        const bool admits = i >= view->n_running;
        const uint32_t slot = admits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        const int64_t most = request->span.queries + (admits ? 0 : request->block_tokens);
        const bool fits = most <= tokens || (batch->n == 0 && request->span.queries <= tokens);
        if (admits && (request->kv_bytes > bytes || !fits || i >= view->max_requests)) {
            break;
        }
        if (!fits) {
            continue;
        }
        const bool is_loaded = view->n_waiting > batch->n_admitted;
        const bool sees_canvas = request->causal == SEES_CANVAS;
        tokens -= most < tokens ? most : tokens;
        bytes -= admits ? request->kv_bytes : 0;
        batch->n_admitted += admits;
        batch->width_tokens[batch->n] =
            is_loaded && sees_canvas ? (request->block_tokens + 3) / 4 : 0;
        batch->threshold_millionths[batch->n] = is_loaded ? (uint32_t)(1e6 * state->threshold) : 0;
        batch->selected[batch->n++] = slot;
    }
    batch->says = 1;
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "wording",
               .doc = "narrow windows under load; slow where none waits",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .changes_passes = 1,
    .schedule = schedule,
};
