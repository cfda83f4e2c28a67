/* Virtual token counters, after "Fairness in Serving Large Language Models" (Sheng et al., 2024,
 * arXiv 2401.00588): each tenant's counter sums the tokens that it was served, its inputs when they
 * start and its outputs as they are committed, each with its weight. The tenant that waits with the
 * least counter has its first request started next; one that returns is lifted to the least of
 * those that wait, or else to the last that left, so that no one saves service up. Requests that
 * run go on to their ends.
 *
 * Tenants are counted by their number modulo TENANTS. No request starves: each that starts raises
 * its tenant's counter, and each tenant's wait in order of arrival. */
#include "sim/policy/scheduler/admission.h"
#include "sim/policy/scheduler/ranks.h"

enum { TENANTS = 1024 };

struct state {
    double input_weight, output_weight;
    uint32_t n_tenants, last_left;
    struct tenant {
        struct line line;      /* of those that wait */
        double counter, ahead; /* ahead, next: with what the decision under way starts */
        uint32_t next;
    } tenants[TENANTS];
};

static const struct param params[] = {
    PARAM("input_weight", PARAM_F64, struct state, input_weight, "1", "1", 0, 1000,
          "of tokens of prompts"),
    PARAM("output_weight", PARAM_F64, struct state, output_weight, "1", "2", 0, 1000,
          "of tokens that are committed"),
};

/* The tenant that waits with the least; NULL: none waits. */
static struct tenant *least(struct state *state, bool begins) {
    struct tenant *found = NULL;
    for (struct tenant *t = state->tenants; t < state->tenants + state->n_tenants; t++) {
        t->next = begins ? t->line.first : t->next;
        t->ahead = begins ? t->counter : t->ahead;
        found = t->next != 0 && (found == NULL || t->ahead < found->ahead) ? t : found;
    }
    return found;
}

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    for (const struct happening *h = happenings; h < happenings + n; h++) {
        const struct request *request = &view->requests[h->slot];
        const uint32_t index = request->tenant % TENANTS;
        struct tenant *tenant = &state->tenants[index];
        if (h->kind == HAPPENED_ARRIVAL) {
            const struct tenant *from = least(state, true);
            from = from != NULL ? from : &state->tenants[state->last_left];
            const bool is_lifted = tenant->line.first == 0 && tenant->counter < from->counter;
            tenant->counter = is_lifted ? from->counter : tenant->counter;
            state->n_tenants = index < state->n_tenants ? state->n_tenants : index + 1;
            line_append(&tenant->line, view->own, h->slot);
        } else if (h->kind == HAPPENED_STEPS) {
            tenant->counter += state->output_weight * h->committed_tokens;
        } else if (h->kind == HAPPENED_START || request->state != REQUEST_DONE) {
            const bool starts = h->kind == HAPPENED_START;
            line_drop(&tenant->line, view->own, h->slot);
            tenant->counter += starts ? state->input_weight * request->prompt_tokens : 0;
            state->last_left = index;
        }
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    struct admission admission = admission_begin(view, batch);
    struct tenant *t = least(state, true);
    for (; t != NULL && admission_take(&admission, t->next - 1); t = least(state, false)) {
        t->ahead += state->input_weight * view->requests[t->next - 1].prompt_tokens;
        t->next = ((const struct lined *)view->own)[t->next - 1].after;
    }
}
const struct scheduler scheduler_vtc = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "vtc",
               .doc = "the tenant that was served least (virtual token counters) starts next",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .request_bytes = sizeof(struct lined),
    .schedule = schedule,
    .happened = happened,
};
