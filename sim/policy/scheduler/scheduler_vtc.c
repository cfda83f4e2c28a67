/* Virtual token counters, after "Fairness in Serving Large Language Models" (Sheng et al., 2024,
 * arXiv 2401.00588): each tenant's counter sums the tokens that it was served, its inputs when they
 * start and its outputs as they are committed, each with its weight. The tenant that waits with the
 * least counter has its first request started next; one that returns is lifted to the least of
 * those that wait, or else to the last that left, so that no one saves service up. Requests that
 * run go on to their ends. Of the paper's kinds of cost the weighted sum of tokens is kept.
 * No request starves: each that starts raises its tenant's counter. */
#include "sim/policy/scheduler/admission.h"
#include "sim/policy/scheduler/tenants.h"

struct state {
    double input_weight, output_weight;
    struct tenants tenants;
};

static const struct param params[] = {
    PARAM("input_weight", PARAM_F64, struct state, input_weight, "1", "1", 0, 1000,
          "weight of the tokens of prompts"),
    PARAM("output_weight", PARAM_F64, struct state, output_weight, "1", "2", 0, 1000,
          "weight of the tokens that are committed"),
};

static double input_cost(const struct state *state, const struct schedule_view *view,
                         uint32_t slot) {
    return state->input_weight * view->requests[slot].prompt_tokens;
}

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    for (const struct happening *h = happenings; h < happenings + n; h++) {
        const double input = h->kind == HAPPENED_START ? input_cost(state, view, h->slot) : 0;
        tenants_told(&state->tenants, view, h, input + state->output_weight * h->committed_tokens);
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    struct admission admission = admission_begin(view, batch);
    uint32_t link = tenants_next(&state->tenants);
    for (; link != 0 && admission_take(&admission, link - 1);
         link = tenants_next(&state->tenants)) {
        tenants_start(&state->tenants, view, link - 1, input_cost(state, view, link - 1));
    }
    tenants_end(&state->tenants, view, batch);
}

const struct scheduler scheduler_vtc = {
    .policy = SCHEDULER_POLICY(
        "vtc", "the tenant that was served least (virtual token counters) starts next",
        struct state, params),
    .request_bytes = sizeof(struct lined),
    .schedule = schedule,
    .happened = happened,
};
