/* The decoder's threshold as a valve by deadlines, as DiLaServe has it (arXiv 2606.29094, of which
 * the abstract alone could be read: the rule is ours). A request that is predicted to end after its
 * deadline commits from a lower threshold on, which takes fewer passes and makes worse answers:
 *
 *     threshold = high - (high - low) gain (predicted end - deadline) / (deadline - arrival)
 *
 * within low and high. Its end is predicted from what it has left, how many positions a pass
 * commits and how long a step takes of late. So that answers are no worse than those of a fixed
 * threshold, the mean of the thresholds that positions were committed from does not fall below
 * `mean`: what requests in time leave to it others may use. Who runs when is as under `chunked`.
 *
 * Its weakness: an answer's length is taken for its output's, or a prediction of it. */
#include "sim/policy/scheduler/growth.h"

struct state {
    double low, high, gain, mean;
    uint32_t preempts;
    double step_ns, tokens; /* of late: a step, and what one of a request commits */
    double credit;          /* thresholds above `mean`, summed over positions committed */
};

/* Of a request. */
struct said {
    double threshold;
};

static const struct param params[] = {
    PARAM("low", PARAM_F64, struct state, low, "1", "0.7", 0.000001, 1, "threshold, at least"),
    PARAM("high", PARAM_F64, struct state, high, "1", "0.9", 0.000001, 1,
          "threshold of requests that will be in time"),
    PARAM("mean", PARAM_F64, struct state, mean, "1", "0", 0, 1,
          "least mean of the thresholds that positions are committed from (0: any)"),
    PARAM("gain", PARAM_F64, struct state, gain, "1", "8", 0.001, 1000000,
          "how far it opens: 1 at a delay of as long as there is from arrival to deadline"),
    PREEMPTS_PARAM(struct state, preempts),
};

static double late_by(double old, double new_value) {
    return old > 0 ? old + 0.05 * (new_value - old) : new_value;
}

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    const struct said *said = view->own;
    double committed = 0, steps = 0;
    for (const struct happening *h = happenings; h < happenings + n; h++) {
        if (h->kind == HAPPENED_STEPS && h->committed_tokens > 0) {
            state->step_ns = late_by(state->step_ns, (double)h->ns / h->steps);
            state->credit += h->committed_tokens * (said[h->slot].threshold - state->mean);
        }
        steps += h->kind == HAPPENED_STEPS ? h->steps : 0;
        committed += h->kind == HAPPENED_STEPS ? h->committed_tokens : 0;
    }
    state->tokens = steps > 0 ? late_by(state->tokens, committed / steps) : state->tokens;
}

static double threshold_of(const struct state *state, const struct schedule_view *view,
                           const struct request *request) {
    const uint32_t all =
        request->predicted_tokens > 0 ? request->predicted_tokens : request->output_tokens;
    const double left = all > request->committed_tokens ? all - request->committed_tokens : 0;
    const double steps = state->tokens > 0 ? left / state->tokens : 0;
    const double delay_ns = (double)(view->now_ns - request->deadline_ns) + steps * state->step_ns;
    const double allowed_ns = (double)(request->deadline_ns - request->arrival_ns);
    const double least = state->credit > 0 || state->low > state->mean ? state->low : state->mean;
    const double threshold =
        state->high - (state->high - state->low) * state->gain * delay_ns / allowed_ns;
    return threshold > state->high || request->deadline_ns == INT64_MAX ? state->high
           : threshold > least                                          ? threshold
                                                                        : least;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    struct said *said = view->own;
    growth_list_all(view, state->preempts, batch);
    for (uint32_t i = 0; i < batch->n; i++) {
        const uint32_t slot = batch->selected[i];
        said[slot].threshold = threshold_of(state, view, &view->requests[slot]);
        batch->threshold_millionths[i] = (uint32_t)(1e6 * said[slot].threshold + 0.5);
    }
    batch->says = 1;
}

const struct scheduler scheduler_deadline_valve = {
    .policy = SCHEDULER_POLICY("deadline-valve",
                               "a lower threshold for requests that will be late: fewer passes, "
                               "and worse answers",
                               struct state, params),
    .grows = 1,
    .changes_passes = 1,
    .needs = NEEDS_THRESHOLD | NEEDS_DEADLINES,
    .request_bytes = sizeof(struct said),
    .schedule = schedule,
    .happened = happened,
};
