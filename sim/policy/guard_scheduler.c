/* The guard of schedulers: every decision is asked for twice, on copies of the view. */
#include "sim/policy/guard_parts.h"

#include <string.h>

/* Counts and ownership of a batch. `verb` begins the sentence where the batch is not the answer but
 * one that the policy wants to know the duration of. */
static bool keeps_list(struct guard *guard, enum promise counts, enum promise owned,
                       const struct batch *batch, uint32_t capacity, const char *verb) {
    struct guard_scratch *scratch = guard->scratch;
    if (!guard_keeps(guard, counts, batch->n <= capacity,
                     "%slists %u requests, more than the capacity of %u", verb, batch->n,
                     capacity) ||
        !guard_keeps(guard, counts, batch->n_admitted <= batch->n,
                     "%sadmits %u requests but lists only %u", verb, batch->n_admitted, batch->n)) {
        return false;
    }
    uint32_t n_running = batch->n - batch->n_admitted;
    if (!guard_keeps(guard, counts, batch->all_running <= 1,
                     "%ssets all_running to %u, neither 0 nor 1", verb, batch->all_running) ||
        !guard_keeps(guard, counts, batch->all_running == 0 || n_running == 0,
                     "%ssets all_running and yet lists %u requests before the %u admitted ones",
                     verb, n_running, batch->n_admitted)) {
        return false;
    }
    scratch->seen_stamp++;
    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t slot = batch->selected[i];
        uint8_t owner = slot < scratch->max_slots ? scratch->owner[slot] : 0;
        if (!guard_keeps(guard, owned, owner != 0,
                         "%sselects slot %u, which neither runs nor waits", verb, slot) ||
            !guard_keeps(guard, owned, scratch->seen[slot] != scratch->seen_stamp,
                         "%sselects slot %u twice", verb, slot) ||
            !guard_keeps(guard, owned, owner == (i < n_running ? RUNS : WAITS),
                         i < n_running ? "%slists slot %u, which waits, before the admitted ones"
                                       : "%sadmits slot %u, which runs already",
                         verb, slot)) {
            return false;
        }
        scratch->seen[slot] = scratch->seen_stamp;
    }
    return true;
}

/* The estimator the inner policy sees: checks the batch before the real one prices it. */
static int64_t guarded_estimate(const void *estimator, const struct batch *batch) {
    struct guard *guard = (struct guard *)estimator;
    const struct schedule_view *view = guard->scratch->view;
    if (!keeps_list(guard, PROMISE_ESTIMATE, PROMISE_ESTIMATE, batch, guard->scratch->max_slots,
                    "asks for the duration of a batch that ")) {
        return 0;
    }
    return view->estimate_ns(view->estimator, batch);
}

static void lend_view(struct guard *guard, const struct schedule_view *view,
                      struct schedule_view *lent) {
    struct guard_scratch *scratch = guard->scratch;
    ASSERT(view->n_running <= scratch->max_slots && view->n_waiting <= scratch->max_slots);
    memset(scratch->owner, 0, scratch->max_slots);
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        bool runs = i < view->n_running;
        uint32_t slot = runs ? view->running[i] : view->waiting[i - view->n_running];
        ASSERT(slot < scratch->max_slots);
        scratch->owner[slot] = runs ? RUNS : WAITS;
        memcpy(&scratch->requests[slot], &view->requests[slot], sizeof(struct request));
        *(runs ? &scratch->running[i] : &scratch->waiting[i - view->n_running]) = slot;
    }
    scratch->view = view;
    memcpy(lent, view, sizeof *lent);
    lent->requests = scratch->requests;
    lent->running = scratch->running;
    lent->waiting = scratch->waiting;
    lent->estimate_ns = guarded_estimate;
    lent->estimator = guard;
}

static bool keeps_view(struct guard *guard, const struct schedule_view *view,
                       const struct schedule_view *lent, const struct schedule_view *before) {
    struct guard_scratch *scratch = guard->scratch;
    if (!guard_keeps(guard, PROMISE_READS, memcmp(lent, before, sizeof *lent) == 0,
                     "writes to the view, which it may only read")) {
        return false;
    }
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        bool runs = i < view->n_running;
        uint32_t at = runs ? i : i - view->n_running;
        uint32_t slot = (runs ? view->running : view->waiting)[at];
        if (!guard_keeps(guard, PROMISE_READS,
                         (runs ? scratch->running : scratch->waiting)[at] == slot,
                         "writes to %s[%u] of the view, which it may only read",
                         runs ? "running" : "waiting", at) ||
            !guard_keeps(guard, PROMISE_READS,
                         memcmp(&scratch->requests[slot], &view->requests[slot],
                                sizeof(struct request)) == 0,
                         "writes to requests[%u] of the view, which it may only read", slot)) {
            return false;
        }
    }
    return true;
}

/* Asks once, into selected[asking]; true when nothing was written where it must not be. */
static bool ask(struct guard *guard, const struct schedule_view *view, void *state,
                uint32_t capacity, int asking, struct batch *answer) {
    struct schedule_view lent, before;
    lend_view(guard, view, &lent);
    memcpy(&before, &lent, sizeof before);
    uint32_t *selected = guard->scratch->selected[asking];
    memset(selected, FILL, (guard->scratch->max_slots + MARGIN) * sizeof *selected);
    *answer = (struct batch){.capacity = capacity, .selected = selected, .wake_ns = INT64_MAX};
    guard_enter(guard, "schedule");
    ((const struct scheduler *)guard->inner)->schedule(state, &lent, answer);
    guard_leave(guard);
    uint32_t fill, end = capacity;
    memset(&fill, FILL, sizeof fill);
    while (end < guard->scratch->max_slots + MARGIN && selected[end] == fill) {
        end++;
    }
    return guard_keeps(guard, PROMISE_LIST, end == guard->scratch->max_slots + MARGIN,
                       "writes to selected[%u], beyond its capacity of %u", end, capacity) &&
           guard_keeps(guard, PROMISE_LIST,
                       answer->selected == selected && answer->capacity == capacity,
                       "changes the batch's capacity or the place of its list") &&
           keeps_view(guard, view, &lent, &before) && guard->err.kind == ERR_NONE;
}

static bool keeps_limits(struct guard *guard, const struct schedule_view *view,
                         const struct batch *batch) {
    int64_t tokens = 0, kv_bytes = 0;
    for (uint32_t i = 0; batch->all_running == 1 && i < view->n_running; i++) {
        tokens += view->requests[view->running[i]].span.queries;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct request *request = &view->requests[batch->selected[i]];
        tokens += request->span.queries;
        kv_bytes += i < batch->n - batch->n_admitted ? 0 : request->kv_bytes;
    }
    return guard_keeps(guard, PROMISE_REQUESTS,
                       batch->n_admitted == 0 ||
                           view->n_running + batch->n_admitted <= view->max_requests,
                       "lets %u requests run at once, more than max_requests %u",
                       view->n_running + batch->n_admitted, view->max_requests) &&
           guard_keeps(guard, PROMISE_KV, batch->n_admitted == 0 || kv_bytes <= view->kv_free_bytes,
                       "admits requests of %lld KV bytes, more than the %lld that are free",
                       (long long)kv_bytes, (long long)view->kv_free_bytes) &&
           guard_keeps(guard, PROMISE_TOKENS, tokens <= view->max_batched_tokens,
                       "takes %lld query tokens into a step, more than max_batched_tokens %u",
                       (long long)tokens, view->max_batched_tokens);
}

/* A slot that could take part in the next step, or UINT32_MAX. Of the queue only the first counts:
 * waiting behind a request that does not fit is first come first served, not starvation. */
static uint32_t runnable_slot(const struct schedule_view *view) {
    for (uint32_t i = 0; i < view->n_running; i++) {
        if (view->requests[view->running[i]].span.queries <= view->max_batched_tokens) {
            return view->running[i];
        }
    }
    if (view->n_waiting > 0 && view->n_running < view->max_requests) {
        const struct request *first = &view->requests[view->waiting[0]];
        if (first->span.queries <= view->max_batched_tokens &&
            first->kv_bytes <= view->kv_free_bytes) {
            return view->waiting[0];
        }
    }
    return UINT32_MAX;
}

static bool keeps_progress(struct guard *guard, const struct schedule_view *view,
                           const struct batch *batch) {
    uint32_t slot = runnable_slot(view);
    if (batch->n > 0 || (batch->all_running == 1 && view->n_running > 0)) {
        guard->n_postponed = 0;
        return true;
    }
    guard->n_postponed = slot == UINT32_MAX ? 0 : guard->n_postponed + 1;
    return guard_keeps(
               guard, PROMISE_PROGRESS, batch->wake_ns > view->now_ns,
               "selects nothing and asks to be woken at %lld ns, which is not after now (%lld)",
               (long long)batch->wake_ns, (long long)view->now_ns) &&
           guard_keeps(guard, PROMISE_PROGRESS, slot == UINT32_MAX || batch->wake_ns != INT64_MAX,
                       "selects nothing and names no later time although slot %u could run",
                       slot) &&
           guard_keeps(guard, PROMISE_PROGRESS, guard->n_postponed < GUARD_MAX_POSTPONED,
                       "starves: it selected nothing %d times in a row although slot %u could run",
                       GUARD_MAX_POSTPONED, slot);
}

static bool keeps_decision(struct guard *guard, const struct batch *first,
                           const struct batch *second) {
    if (!guard_keeps(guard, PROMISE_REPEATABLE,
                     first->n == second->n && first->n_admitted == second->n_admitted &&
                         first->all_running == second->all_running,
                     "decides differently when asked the same again: %u listed, %u admitted, then "
                     "%u listed, %u admitted",
                     first->n, first->n_admitted, second->n, second->n_admitted) ||
        !guard_keeps(guard, PROMISE_REPEATABLE,
                     first->hold == second->hold && first->wake_ns == second->wake_ns,
                     "decides differently when asked the same again: hold %u and wake_ns %lld, "
                     "then %u and %lld",
                     first->hold, (long long)first->wake_ns, second->hold,
                     (long long)second->wake_ns)) {
        return false;
    }
    for (uint32_t i = 0; i < first->n; i++) {
        if (!guard_keeps(guard, PROMISE_REPEATABLE, first->selected[i] == second->selected[i],
                         "decides differently when asked the same again: slot %u in place %u, then "
                         "slot %u",
                         first->selected[i], i, second->selected[i])) {
            return false;
        }
    }
    return true;
}

void guarded_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct guard *guard = state;
    uint32_t capacity = batch->capacity;
    ASSERT(capacity <= guard->scratch->max_slots);
    *batch =
        (struct batch){.capacity = capacity, .selected = batch->selected, .wake_ns = INT64_MAX};
    if (guard->err.kind != ERR_NONE) {
        return;
    }
    /* The trial runs on a copy of the state, so that asking twice counts once. */
    struct batch trial, answer;
    memcpy(guard->scratch->state, guard->inner_state, guard->inner->state_bytes);
    bool kept = ask(guard, view, guard->scratch->state, capacity, 0, &trial) &&
                keeps_list(guard, PROMISE_LIST, PROMISE_OWNED, &trial, capacity, "") &&
                keeps_limits(guard, view, &trial) &&
                guard_keeps(guard, PROMISE_HOLD, trial.hold <= HOLD_CLOSED,
                            "sets hold to %u, which is no batch_hold", trial.hold) &&
                keeps_progress(guard, view, &trial) &&
                ask(guard, view, guard->inner_state, capacity, 1, &answer) &&
                keeps_list(guard, PROMISE_LIST, PROMISE_OWNED, &answer, capacity, "") &&
                keeps_decision(guard, &trial, &answer);
    if (kept) {
        uint32_t *selected = batch->selected;
        *batch = answer;
        batch->selected = selected;
        memcpy(selected, answer.selected, answer.n * sizeof *selected);
    }
}
