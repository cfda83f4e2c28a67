/* The width of windows by load, as Optimus has it for trained blocks (arXiv 2605.24832, of which
 * the abstract alone could be read: a closed loop sets how much of a block is decoded at once from
 * how saturated the GPU is; the loop here is ours). Rows of a window that commit nothing are free
 * while a step is bound by what it reads anyway; under load they cost time. For models that see
 * their whole canvas; who runs when is as under `continuous`. */
#include "sim/policy/scheduler/by_load.h"

struct state {
    struct by_load load;
    uint32_t width;
};

static const struct param params[] = {
    BY_LOAD_PARAMS(struct state),
    PARAM("width", PARAM_U32, struct state, width, "tokens", "8", 1, 1000000,
          "positions of a window under load, at most block_tokens"),
};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    const bool is_loaded = by_load_list(&state->load, view, batch);
    for (uint32_t i = 0; is_loaded && i < batch->n; i++) {
        const struct request *request = &view->requests[batch->selected[i]];
        const uint32_t most = window_most(request) == 1 ? request->block_tokens : 0;
        batch->width_tokens[i] = state->width < most ? state->width : most;
    }
}

const struct scheduler scheduler_width_by_load = {
    .policy = SCHEDULER_POLICY(
        "width-by-load",
        "windows narrow under load; slows decoders whose commits grow with the window",
        struct state, params),
    .changes_passes = 1,
    .needs = NEEDS_CANVAS,
    .schedule = schedule,
};
