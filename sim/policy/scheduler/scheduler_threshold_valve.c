/* The decoder's threshold as a valve, as DiLaServe has it (arXiv 2606.29094, of which the abstract
 * alone could be read; when the valve opens is ours): under load a lower threshold commits more
 * positions a pass, so that requests need fewer passes and answers are worse, until few requests
 * are left. Who runs when is as under `continuous`. */
#include "sim/policy/scheduler/by_load.h"

struct state {
    struct by_load load;
    double threshold;
};

static const struct param params[] = {
    BY_LOAD_PARAMS(struct state),
    PARAM("threshold", PARAM_F64, struct state, threshold, "1", "0.7", 0.000001, 1,
          "the decoder's under load, where its own is not lower"),
};

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    const uint32_t low = (uint32_t)(1e6 * state->threshold);
    const bool is_loaded = by_load_list(&state->load, view, batch);
    for (uint32_t i = 0; is_loaded && i < batch->n; i++) {
        batch->threshold_millionths[i] = low < view->threshold_millionths ? low : 0;
    }
}

const struct scheduler scheduler_threshold_valve = {
    .policy =
        SCHEDULER_POLICY("threshold-valve",
                         "a lower threshold under load: fewer passes, and worse answers meanwhile",
                         struct state, params),
    .changes_passes = 1,
    .needs = NEEDS_THRESHOLD,
    .schedule = schedule,
};
