/* Skip-join multi-level feedback queue, after "Fast Distributed Inference Serving for Large
 * Language Models" (FastServe; Wu et al., 2023, arXiv 2305.05920): who was served little goes
 * first, with nothing known about the lengths of answers. A request that has used up the quantum
 * of its level goes down to the next one, whose quantum is twice as large; one that arrives skips
 * the levels that its first pass alone would use up.
 *
 * Kept are levels, their quanta and the skip. Service is counted in query tokens rather than in
 * time, so that a live run decides as a simulated one; a request is preempted at the end of any
 * pass. In place of a limit to starvation and a promotion to the first level, each level counts as
 * much as `aging` of arriving there later: a request is overtaken only by those that come at most
 * so much later a level. What is paused stays in the GPU's memory as long as there is room; then
 * it is computed anew, or swapped to the host's memory, though not ahead of time as in the paper.
 */
#include "sim/policy/scheduler/turns.h"

enum { LEVELS = 31 };

struct state {
    int64_t quantum_tokens, aging_ns;
    struct turns turns;
};

static const struct param params[] = {
    PARAM("quantum", PARAM_I64, struct state, quantum_tokens, "tokens", "512", 1, 1e6,
          "query tokens of the first level"),
    PARAM("aging", PARAM_I64, struct state, aging_ns, "ns", "100 s", 0, 1e12,
          "a level counts as much as coming there so much later"),
    TURNS_PARAMS(struct state),
};

/* Goes down as far as it has used up what levels allow; returns its place there. */
static double descend(const struct state *state, const struct schedule_view *view,
                      struct ranked *ranked) {
    while (ranked->allowance <= 0 && ranked->level < LEVELS) {
        ranked->allowance += state->quantum_tokens << ranked->level++;
    }
    return (double)view->now_ns + (double)ranked->level * (double)state->aging_ns;
}

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    struct ranked *own = view->own;
    for (const struct happening *h = happenings; h < happenings + n; h++) {
        struct ranked *ranked = &own[h->slot];
        if (h->kind == HAPPENED_ARRIVAL) {
            const int64_t first = view->requests[h->slot].span.queries;
            do {
                ranked->allowance = 0;
                ranked->key = descend(state, view, ranked);
            } while (ranked->allowance < first && ranked->level < LEVELS);
            turns_put(&state->turns, own, h->slot, ranked->key);
        } else if (h->kind == HAPPENED_STEPS) {
            ranked->allowance -= (int64_t)h->query_tokens;
            if (ranked->allowance <= 0 && ranked->level < LEVELS) {
                turns_move(&state->turns, own, h->slot, descend(state, view, ranked));
            }
        } else {
            turns_told(&state->turns, view, h);
        }
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    /* While some wait, levels may change with any step. */
    batch->hold = turns_take(&state->turns, view, batch) ? HOLD_CHANGE : HOLD_STEP;
}

const struct scheduler scheduler_fast_serve = {
    .policy = SCHEDULER_POLICY("fast-serve",
                               "who was served little goes first, by levels; pauses long requests",
                               struct state, params),
    .grows = 1,
    .reads_all = 1,
    .request_bytes = sizeof(struct ranked),
    .schedule = schedule,
    .happened = happened,
};
