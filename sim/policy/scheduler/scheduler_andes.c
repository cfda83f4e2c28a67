/* Paced by how fast answers are read, after "Andes: Defining and Enhancing Quality-of-Experience in
 * LLM-Based Text Streaming Services" (Liu et al., 2024, arXiv 2404.16283): a user expects the first
 * text after `first` and reads `speed` tokens a second; text that comes before it can be read is
 * worth nothing. So those take part whose readers run out of text soonest, and those whose readers
 * have enough to read make room for them.
 *
 * Kept is whom the paper's priority prefers while all can be kept up with: a request gains by the
 * text that its reader would lack. Its knapsack of gain by memory is not, nor is it known here
 * whom to give up where not all can be kept up with: then all wait alike. For the paper's
 * limit of preemptions stands `margin`: one is preempted by recomputing, where caches are exact,
 * for one whose reader runs out so much earlier. Text comes by finished blocks. */
#include "sim/policy/scheduler/turns.h"

struct state {
    double speed;
    int64_t first_ns;
    struct turns turns;
};

static const struct param params[] = {
    PARAM("speed", PARAM_F64, struct state, speed, "tokens/s", "4.8", 0.01, 1e6,
          "tokens that a reader takes up a second"),
    PARAM("first", PARAM_I64, struct state, first_ns, "ns", "1 s", 0, 1e12,
          "after its arrival a request's first text is expected"),
    PARAM("margin", PARAM_I64, struct state, turns.margin_ns, "ns", "2 s", 0, 1e12,
          "so much more a reader has to have whose request is preempted for another"),
    TURNS_PARAMS(struct state),
};

/* When the reader runs out of text. */
static double dry_ns(const struct state *state, const struct request *request) {
    const uint32_t first = window_first(request), prompt = request->prompt_tokens;
    const double tokens = first > prompt ? first - prompt : 0;
    return request->first_token_ns < 0
               ? (double)(request->arrival_ns + state->first_ns)
               : (double)request->first_token_ns + tokens / state->speed * 1e9;
}

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    struct ranked *own = view->own;
    for (const struct happening *h = happenings; h < happenings + n; h++) {
        const double key = dry_ns(state, &view->requests[h->slot]);
        if (h->kind == HAPPENED_ARRIVAL) {
            turns_put(&state->turns, own, h->slot, key);
        } else if (h->kind != HAPPENED_STEPS) {
            turns_told(&state->turns, view, h);
        } else if (key > own[h->slot].key) {
            turns_move(&state->turns, own, h->slot, key);
        }
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    (void)turns_take(&state->turns, view, batch);
}

const struct scheduler scheduler_andes = {
    .policy =
        SCHEDULER_POLICY("andes", "whose reader runs out of text soonest goes first; gives none up",
                         struct state, params),
    .grows = 1,
    .request_bytes = sizeof(struct ranked),
    .schedule = schedule,
    .happened = happened,
};
