/* Earliest deadline first, which rejects what is late and what cannot be done in time at the pace
 * that requests were served at so far. experiments/python/test_policies.py has the same in Python.
 */
#include "sim/policy/scheduler/scheduler.h"

enum { LATE, HOPELESS };

struct state {
    int64_t ns, tokens; /* what steps gave, and how long requests took part in them */
};

static void happened(void *opaque, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    struct state *state = opaque;
    (void)view;
    for (uint32_t i = 0; i < n; i++) {
        state->ns += happenings[i].ns;
        state->tokens += happenings[i].committed_tokens;
    }
}

static int is_taken(const struct batch *batch, uint32_t slot) {
    int is = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        is |= batch->selected[i] == slot;
    }
    for (uint32_t i = 0; i < batch->n_rejected; i++) {
        is |= batch->rejected[i] == slot;
    }
    return is;
}

/* Of those that wait and are not decided about; UINT32_MAX: none. */
static uint32_t earliest(const struct schedule_view *view, const struct batch *batch) {
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        const uint32_t slot = view->waiting[i];
        if (!is_taken(batch, slot) &&
            (best == UINT32_MAX ||
             view->requests[slot].deadline_ns < view->requests[best].deadline_ns)) {
            best = slot;
        }
    }
    return best;
}

static void reject(struct batch *batch, uint32_t slot, uint32_t reason) {
    batch->reasons[batch->n_rejected] = reason;
    batch->rejected[batch->n_rejected++] = slot;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct state *state = opaque;
    int64_t tokens = view->max_batched_tokens, kv_bytes = view->kv_free_bytes;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (request->span.queries <= tokens) {
            tokens -= request->span.queries;
            batch->puts_off[batch->n] = request->refresh_waits > 0 && request->priority == 0;
            batch->says |= batch->puts_off[batch->n];
            batch->selected[batch->n++] = view->running[i];
        }
    }
    for (uint32_t slot; (slot = earliest(view, batch)) != UINT32_MAX;) {
        const struct request *request = &view->requests[slot];
        const int64_t takes_ns =
            state->ns * request->predicted_tokens / (state->tokens > 0 ? state->tokens : 1);
        if (request->deadline_ns <= view->now_ns) {
            reject(batch, slot, LATE);
        } else if (request->deadline_ns - view->now_ns < takes_ns) {
            reject(batch, slot, HOPELESS);
        } else if (request->span.queries <= tokens && request->kv_bytes <= kv_bytes &&
                   view->n_running + batch->n_admitted < view->max_requests) {
            tokens -= request->span.queries;
            kv_bytes -= request->kv_bytes;
            batch->selected[batch->n++] = slot;
            batch->n_admitted++;
        } else {
            batch->wake_ns = request->deadline_ns;
            break;
        }
    }
    batch->hold = HOLD_CHANGE;
}

static const char *const reasons[] = {"late", "hopeless", NULL};

const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                   .kind = POLICY_SCHEDULER,
                                                   .size = sizeof(struct scheduler),
                                                   .state_bytes = sizeof(struct state),
                                                   .name = "deadline",
                                                   .doc = "earliest deadline first"},
                                        .schedule = schedule,
                                        .happened = happened,
                                        .reject_reasons = reasons};
