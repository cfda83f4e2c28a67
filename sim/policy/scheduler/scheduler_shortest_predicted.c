/* Shortest predicted output first, after "Efficient Interactive LLM Serving with Proxy Model-based
 * Sequence Length Prediction" (Qiu et al., 2024, arXiv 2404.08509): a request that runs goes on to
 * its end, and of those that wait the one with the shortest predicted answer starts next. Without a
 * prediction its output counts as known.
 *
 * So that nothing starves a predicted token counts as much as `aging` of waiting: a request is
 * overtaken only by those that come at most so much later for each token that they are shorter. */
#include "sim/policy/scheduler/admission.h"
#include "sim/policy/scheduler/ranks.h"

struct state {
    int64_t aging_ns;
    struct ranks ranks;
};

static const struct param params[] = {
    {"aging", PARAM_I64, 0, "ns", "1 s", 0, 1e12, NULL, offsetof(struct state, aging_ns),
     "a predicted token counts as much as so much less waiting"},
};

static double key(const struct state *state, const struct request *request) {
    const uint32_t tokens =
        request->predicted_tokens > 0 ? request->predicted_tokens : request->output_tokens;
    return (double)request->arrival_ns + (double)tokens * (double)state->aging_ns;
}

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    for (uint32_t i = 0; i < n; i++) {
        const struct happening *h = &happenings[i];
        const struct request *request = &view->requests[h->slot];
        if (h->kind == HAPPENED_ARRIVAL) {
            ranks_put(&state->ranks, view->own, h->slot, key(state, request));
        } else if (h->kind == HAPPENED_START ||
                   (h->kind == HAPPENED_END && request->state != REQUEST_DONE)) {
            ranks_drop(&state->ranks, view->own, h->slot);
        }
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    const struct ranked *own = view->own;
    struct admission admission = admission_begin(view, batch);
    uint32_t link = state->ranks.first;
    while (link != 0 && admission_take(&admission, link - 1)) {
        link = own[link - 1].after;
    }
}

const struct scheduler scheduler_shortest_predicted = {
    .policy = SCHEDULER_POLICY("shortest-predicted",
                               "shortest predicted output first; waiting counts against length",
                               struct state, params),
    .request_bytes = sizeof(struct ranked),
    .schedule = schedule,
    .happened = happened,
};
