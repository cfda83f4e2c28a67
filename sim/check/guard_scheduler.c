/* The guard of schedulers: every decision is asked for twice, on copies of the view. */
#include "sim/check/guard_parts.h"

#include <string.h>

static const char *const list_names[N_BATCH_LISTS] = {"selected", "chunk_tokens", "preempted",
                                                      "idle"};

static uint32_t **list_of(struct batch *batch, int list) {
    uint32_t **const lists[N_BATCH_LISTS] = {&batch->selected, &batch->chunk_tokens,
                                             &batch->preempted, &batch->idle};
    return lists[list];
}

static void copy_lists(const struct batch *batch, struct batch *to) {
    const struct batch lists = *to;
    *to = *batch;
    memcpy(lists.selected, batch->selected, batch->n * sizeof *batch->selected);
    memcpy(lists.chunk_tokens, batch->chunk_tokens, batch->n * sizeof *batch->chunk_tokens);
    memcpy(lists.preempted, batch->preempted, batch->n_preempted * sizeof *batch->preempted);
    memcpy(lists.idle, batch->idle, batch->n_idle * sizeof *batch->idle);
    to->selected = lists.selected;
    to->chunk_tokens = lists.chunk_tokens;
    to->preempted = lists.preempted;
    to->idle = lists.idle;
}

/* How a batch is judged: as the answer, or as one that the policy wants to know the duration of,
 * where `verb` begins the sentence. */
struct judged {
    enum promise counts, owned;
    uint32_t capacity;
    const char *verb;
};

static bool keeps_counts(struct guard *guard, const struct judged *as, const struct batch *batch) {
    uint32_t n_running = batch->n - batch->n_admitted;
    return guard_keeps(guard, as->counts, batch->n <= as->capacity,
                       "%slists %u requests, more than the capacity of %u", as->verb, batch->n,
                       as->capacity) &&
           guard_keeps(guard, as->counts, batch->n_admitted <= batch->n,
                       "%sadmits %u requests but lists only %u", as->verb, batch->n_admitted,
                       batch->n) &&
           guard_keeps(guard, as->counts, batch->all_running <= 1,
                       "%ssets all_running to %u, neither 0 nor 1", as->verb, batch->all_running) &&
           guard_keeps(guard, as->counts, batch->all_running == 0 || n_running == 0,
                       "%ssets all_running and yet lists %u requests before the %u admitted ones",
                       as->verb, n_running, batch->n_admitted) &&
           guard_keeps(guard, as->counts,
                       batch->n_preempted <= as->capacity &&
                           (batch->n_preempted == 0 || batch->preempted != NULL),
                       "%spreempts %u requests, more than the capacity of %u", as->verb,
                       batch->n_preempted, batch->preempted != NULL ? as->capacity : 0) &&
           guard_keeps(guard, as->counts,
                       batch->n_idle <= as->capacity && (batch->n_idle == 0 || batch->idle != NULL),
                       "%slets %u requests idle, more than the capacity of %u", as->verb,
                       batch->n_idle, batch->idle != NULL ? as->capacity : 0);
}

/* The slot is the replica's own and, but in a question, in none of the batch's lists yet. */
static bool keeps_slot(struct guard *guard, const struct judged *as, uint32_t slot,
                       const char *does) {
    struct guard_scratch *scratch = guard->scratch;
    uint8_t owner = slot < scratch->max_slots ? scratch->owner[slot] : 0;
    if (!guard_keeps(guard, as->owned, owner != 0, "%s%s slot %u, which neither runs nor waits",
                     as->verb, does, slot) ||
        !guard_keeps(guard, as->owned,
                     as->owned == PROMISE_ESTIMATE || scratch->seen[slot] != scratch->seen_stamp,
                     "%s%s slot %u twice", as->verb, does, slot)) {
        return false;
    }
    scratch->seen[slot] = scratch->seen_stamp;
    return true;
}

/* Slots beside those selected, which run and take no part in the step. */
static bool keeps_outside(struct guard *guard, const struct judged *as, const struct batch *batch,
                          const uint32_t *slots, uint32_t n, const char *does) {
    for (uint32_t i = 0; i < n; i++) {
        if (!keeps_slot(guard, as, slots[i], does) ||
            !guard_keeps(guard, as->owned,
                         batch->all_running == 0 && guard->scratch->owner[slots[i]] == RUNS,
                         "%s%s slot %u, which %s", as->verb, does, slots[i],
                         batch->all_running == 1 ? "takes part by all_running" : "waits")) {
            return false;
        }
    }
    return true;
}

static bool keeps_chunk(struct guard *guard, enum promise promise, const char *verb,
                        const struct request *request, uint32_t tokens) {
    return guard_keeps(guard, promise, request->span.phase == PHASE_PREFILL,
                       "%stakes a chunk of %u tokens of a step that is no prefill", verb, tokens) &&
           guard_keeps(guard, promise, tokens < request->span.queries,
                       "%stakes a chunk of %u tokens of a prefill that has %u", verb, tokens,
                       request->span.queries) &&
           guard_keeps(guard, promise, tokens % request->block_tokens == 0,
                       "%stakes a chunk of %u tokens, which are not whole blocks of %u", verb,
                       tokens, request->block_tokens);
}

/* Counts and ownership of a batch, and its chunks. */
static bool keeps_lists(struct guard *guard, const struct judged *as, const struct batch *batch) {
    struct guard_scratch *scratch = guard->scratch;
    if (!keeps_counts(guard, as, batch)) {
        return false;
    }
    uint32_t n_running = batch->n - batch->n_admitted;
    bool is_answer = as->counts == PROMISE_LIST;
    scratch->seen_stamp++;
    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t slot = batch->selected[i];
        uint32_t chunk = batch->chunk_tokens != NULL ? batch->chunk_tokens[i] : 0;
        if (!keeps_slot(guard, as, slot, "selects") ||
            !guard_keeps(guard, as->owned, scratch->owner[slot] == (i < n_running ? RUNS : WAITS),
                         i < n_running ? "%slists slot %u, which waits, before the admitted ones"
                                       : "%sadmits slot %u, which runs already",
                         as->verb, slot) ||
            (chunk > 0 && !keeps_chunk(guard, is_answer ? PROMISE_CHUNK : as->counts, as->verb,
                                       &scratch->view->requests[slot], chunk))) {
            return false;
        }
    }
    return keeps_outside(guard, as, batch, batch->preempted, batch->n_preempted, "preempts") &&
           keeps_outside(guard, as, batch, batch->idle, batch->n_idle, "idles");
}

/* Query tokens of the step. */
static int64_t batch_tokens(const struct schedule_view *view, const struct batch *batch) {
    int64_t tokens = 0;
    for (uint32_t i = 0; batch->all_running == 1 && i < view->n_running; i++) {
        tokens += view->requests[view->running[i]].span.queries;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t chunk = batch->chunk_tokens[i];
        tokens += chunk > 0 ? chunk : view->requests[batch->selected[i]].span.queries;
    }
    for (uint32_t i = 0; i < batch->n_idle; i++) {
        tokens += view->requests[batch->idle[i]].span.queries;
    }
    return tokens;
}

/* The estimators the inner policy sees: they check the batch before the real ones price it. */
static bool can_be_estimated(struct guard *guard, const struct batch *batch) {
    const struct judged as = {PROMISE_ESTIMATE, PROMISE_ESTIMATE, guard->scratch->max_slots,
                              "asks for the duration of a batch that "};
    return keeps_lists(guard, &as, batch);
}

static int64_t guarded_estimate(const void *estimator, const struct batch *batch) {
    struct guard *guard = (struct guard *)estimator;
    const struct schedule_view *view = guard->scratch->view;
    return can_be_estimated(guard, batch) ? view->estimate_ns(view->estimator, batch) : 0;
}

static double guarded_joules(const void *estimator, const struct batch *batch) {
    struct guard *guard = (struct guard *)estimator;
    const struct schedule_view *view = guard->scratch->view;
    return can_be_estimated(guard, batch) ? view->estimate_joules(view->estimator, batch) : 0;
}

static void guarded_foresee(const void *estimator, uint32_t slot, struct pass_ahead *passes,
                            uint32_t capacity, struct outlook *out) {
    struct guard *guard = (struct guard *)estimator;
    const struct schedule_view *view = guard->scratch->view;
    *out = (struct outlook){.to_refresh = UINT32_MAX};
    if (guard_keeps(guard, PROMISE_ESTIMATE,
                    slot < guard->scratch->max_slots && guard->scratch->owner[slot] != 0,
                    "asks for the passes of slot %u, which neither runs nor waits", slot) &&
        guard_keeps(guard, PROMISE_ESTIMATE, passes != NULL || capacity == 0,
                    "asks for %u passes to come and gives no room for them", capacity)) {
        view->foresee(view->estimator, slot, passes, capacity, out);
    }
}

static int64_t guarded_spans(const void *estimator, const struct span *const *spans, uint32_t n) {
    struct guard *guard = (struct guard *)estimator;
    const struct schedule_view *view = guard->scratch->view;
    bool kept = guard_keeps(guard, PROMISE_ESTIMATE, n <= guard->scratch->max_slots,
                            "asks for the duration of a step of %u spans", n);
    for (uint32_t i = 0; kept && i < n; i++) {
        kept =
            guard_keeps(guard, PROMISE_ESTIMATE, spans[i]->phase < PHASE_COUNT,
                        "asks for the duration of a step with a span in phase %u", spans[i]->phase);
    }
    return kept ? view->estimate_spans_ns(view->estimator, spans, n) : 0;
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
    lent->estimate_joules = guarded_joules;
    lent->foresee = guarded_foresee;
    lent->estimate_spans_ns = guarded_spans;
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

/* Nothing is written behind the ends of the lists, and no chunk without a request. */
static bool keeps_ends(struct guard *guard, const struct batch *answer, int asking) {
    uint32_t fill, size = guard->scratch->max_slots + MARGIN;
    memset(&fill, FILL, sizeof fill);
    for (int list = 0; list < N_BATCH_LISTS; list++) {
        const uint32_t *entries = guard->scratch->lists[asking][list];
        uint32_t end = answer->capacity;
        while (end < size && entries[end] == fill) {
            end++;
        }
        if (!guard_keeps(guard, PROMISE_LIST, end == size,
                         "writes to %s[%u], beyond its capacity of %u", list_names[list], end,
                         answer->capacity)) {
            return false;
        }
    }
    for (uint32_t i = answer->n; i < answer->capacity; i++) {
        if (!guard_keeps(guard, PROMISE_LIST, answer->chunk_tokens[i] == 0,
                         "sets chunk_tokens[%u] but lists only %u requests", i, answer->n)) {
            return false;
        }
    }
    return true;
}

/* A copy of the scheduler's memory of requests, with a margin behind it. */
static size_t copy_own(const struct guard *guard, const struct schedule_view *view) {
    size_t bytes = (size_t)view->n_slots * ((const struct scheduler *)guard->inner)->request_bytes;
    if (bytes > 0) {
        memcpy(guard->scratch->own, view->own, bytes);
        memset(guard->scratch->own + bytes, FILL, MARGIN);
    }
    return bytes;
}

static bool keeps_own_end(struct guard *guard, size_t bytes) {
    size_t end = bytes;
    while (bytes > 0 && end < bytes + MARGIN && (unsigned char)guard->scratch->own[end] == FILL) {
        end++;
    }
    return guard_keeps(guard, PROMISE_READS, bytes == 0 || end == bytes + MARGIN,
                       "writes beyond its memory of the last slot");
}

/* Asks once, into lists[asking]; true when nothing was written where it must not be. */
static bool ask(struct guard *guard, const struct schedule_view *view, void *state, void *own,
                uint32_t capacity, int asking, struct batch *answer) {
    struct schedule_view lent, before;
    lend_view(guard, view, &lent);
    lent.own = own;
    memcpy(&before, &lent, sizeof before);
    struct batch given = {.capacity = capacity, .wake_ns = INT64_MAX};
    for (int list = 0; list < N_BATCH_LISTS; list++) {
        uint32_t *entries = guard->scratch->lists[asking][list];
        memset(entries, FILL, (guard->scratch->max_slots + MARGIN) * sizeof *entries);
        *list_of(&given, list) = entries;
    }
    memset(given.chunk_tokens, 0, capacity * sizeof *given.chunk_tokens);
    *answer = given;
    guard_enter(guard, "schedule");
    ((const struct scheduler *)guard->inner)->schedule(state, &lent, answer);
    guard_leave(guard);
    bool in_place = answer->capacity == capacity;
    for (int list = 0; list < N_BATCH_LISTS; list++) {
        in_place = in_place && *list_of(answer, list) == *list_of(&given, list);
    }
    return guard_keeps(guard, PROMISE_LIST, in_place,
                       "changes the batch's capacity or the place of its lists") &&
           keeps_ends(guard, answer, asking) && keeps_view(guard, view, &lent, &before) &&
           guard->err.kind == ERR_NONE;
}

/* What the batch takes of the free memory, and what it gives back. */
static bool keeps_memory(struct guard *guard, const struct schedule_view *view,
                         const struct batch *batch) {
    int64_t admitted = 0, growth = 0, returned = 0;
    const uint32_t *running = batch->all_running == 1 ? view->running : batch->selected;
    uint32_t n_running = batch->all_running == 1 ? view->n_running : batch->n - batch->n_admitted;
    for (uint32_t i = 0; i < n_running; i++) {
        const struct request *request = &view->requests[running[i]];
        growth += request->kv_bytes - request->kv_held_bytes;
    }
    for (uint32_t i = batch->n - batch->n_admitted; i < batch->n; i++) {
        admitted += view->requests[batch->selected[i]].kv_bytes;
    }
    for (uint32_t i = 0; i < batch->n_preempted; i++) {
        returned += view->requests[batch->preempted[i]].kv_held_bytes;
    }
    if (growth == 0 && returned == 0) {
        return guard_keeps(guard, PROMISE_KV, admitted == 0 || admitted <= view->kv_free_bytes,
                           "admits requests of %lld KV bytes, more than the %lld that are free",
                           (long long)admitted, (long long)view->kv_free_bytes);
    }
    return guard_keeps(guard, PROMISE_KV, growth + admitted <= view->kv_free_bytes + returned,
                       "lets running requests grow by %lld KV bytes and admits %lld, more than "
                       "the %lld that are free and %lld given back",
                       (long long)growth, (long long)admitted, (long long)view->kv_free_bytes,
                       (long long)returned);
}

static bool keeps_limits(struct guard *guard, const struct schedule_view *view,
                         const struct batch *batch) {
    int64_t tokens = batch_tokens(view, batch);
    uint32_t n_running = view->n_running + batch->n_admitted - batch->n_preempted;
    bool grows = ((const struct scheduler *)guard->inner)->grows != 0;
    return guard_keeps(guard, PROMISE_REQUESTS,
                       batch->n_admitted == 0 || n_running <= view->max_requests,
                       "lets %u requests run at once, more than max_requests %u", n_running,
                       view->max_requests) &&
           guard_keeps(guard, PROMISE_PREEMPT, grows || batch->n_preempted == 0,
                       "preempts %u requests though it does not say that it grows",
                       batch->n_preempted) &&
           keeps_memory(guard, view, batch) &&
           guard_keeps(guard, PROMISE_TOKENS, tokens <= view->max_batched_tokens,
                       "takes %lld query tokens into a step, more than max_batched_tokens %u",
                       (long long)tokens, view->max_batched_tokens);
}

/* Whether a step of the request, or the least part of it, stays within the token budget. */
static bool has_narrow_step(const struct guard *guard, const struct schedule_view *view,
                            const struct request *request) {
    bool in_chunks = ((const struct scheduler *)guard->inner)->grows != 0 &&
                     request->span.phase == PHASE_PREFILL &&
                     request->block_tokens < request->span.queries;
    uint32_t tokens = in_chunks ? request->block_tokens : request->span.queries;
    return tokens <= view->max_batched_tokens;
}

/* A slot that could take part in the next step, or UINT32_MAX. A running request always can, where
 * others could give their memory back for it. Of the queue only the first counts: waiting behind a
 * request that does not fit is first come first served, not starvation. */
static uint32_t runnable_slot(const struct guard *guard, const struct schedule_view *view) {
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (has_narrow_step(guard, view, request) && request->kv_bytes <= view->kv_total_bytes) {
            return view->running[i];
        }
    }
    if (view->n_waiting > 0 && view->n_running < view->max_requests) {
        const struct request *first = &view->requests[view->waiting[0]];
        if (has_narrow_step(guard, view, first) && first->kv_bytes <= view->kv_free_bytes) {
            return view->waiting[0];
        }
    }
    return UINT32_MAX;
}

/* Of what could run: its prefill alone can be wider than a step. */
static bool needs_chunks(const struct schedule_view *view, uint32_t slot) {
    return slot != UINT32_MAX && view->requests[slot].span.queries > view->max_batched_tokens;
}
static const char chunks_text[] =
    " in chunks (chunk_tokens), which a scheduler that grows has to take of a prefill wider than "
    "a step";

static bool keeps_progress(struct guard *guard, const struct schedule_view *view,
                           const struct batch *batch) {
    uint32_t slot = runnable_slot(guard, view);
    if (batch->n > 0 || (batch->all_running == 1 && view->n_running > 0)) {
        guard->n_postponed = 0;
        return true;
    }
    if (!guard_keeps(guard, PROMISE_PREEMPT, batch->n_preempted == 0,
                     "preempts %u requests and selects none", batch->n_preempted)) {
        return false;
    }
    if (guard->n_postponed == 0) {
        guard->postponed_since_ns = view->now_ns;
    }
    guard->n_postponed = slot == UINT32_MAX ? 0 : guard->n_postponed + 1;
    int64_t waited_ns = view->now_ns - guard->postponed_since_ns;
    return guard_keeps(
               guard, PROMISE_PROGRESS, batch->wake_ns > view->now_ns,
               "selects nothing and asks to be woken at %lld ns, which is not after now (%lld)",
               (long long)batch->wake_ns, (long long)view->now_ns) &&
           guard_keeps(guard, PROMISE_PROGRESS, slot == UINT32_MAX || batch->wake_ns != INT64_MAX,
                       "selects nothing and names no later time although slot %u could run%s", slot,
                       needs_chunks(view, slot) ? chunks_text : "") &&
           guard_keeps(
               guard, PROMISE_PROGRESS,
               guard->n_postponed < GUARD_MANY_POSTPONED || waited_ns < GUARD_LONGEST_WAIT_NS,
               "starves: it selected nothing for %lld s, again and again, although slot %u could "
               "run%s",
               (long long)(waited_ns / 1000000000), slot,
               needs_chunks(view, slot) ? chunks_text : "");
}

static bool keeps_decision(struct guard *guard, struct batch *first, struct batch *second) {
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
                     (long long)second->wake_ns) ||
        !guard_keeps(guard, PROMISE_REPEATABLE,
                     first->n_preempted == second->n_preempted && first->n_idle == second->n_idle &&
                         first->loops == second->loops && first->continues == second->continues,
                     "decides differently when asked the same again: %u preempted, %u idle, %u "
                     "loops, continues %u, then %u, %u, %u, %u",
                     first->n_preempted, first->n_idle, first->loops, first->continues,
                     second->n_preempted, second->n_idle, second->loops, second->continues)) {
        return false;
    }
    const uint32_t n[N_BATCH_LISTS] = {first->n, first->n, first->n_preempted, first->n_idle};
    for (int list = 0; list < N_BATCH_LISTS; list++) {
        const uint32_t *before = *list_of(first, list), *now = *list_of(second, list);
        for (uint32_t i = 0; i < n[list]; i++) {
            if (!guard_keeps(guard, PROMISE_REPEATABLE, before[i] == now[i],
                             "decides differently when asked the same again: %s[%u] is %u, then %u",
                             list_names[list], i, before[i], now[i])) {
                return false;
            }
        }
    }
    return true;
}

void guarded_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct guard *guard = state;
    uint32_t capacity = batch->capacity;
    const struct judged as = {PROMISE_LIST, PROMISE_OWNED, capacity, ""};
    ASSERT(capacity <= guard->scratch->max_slots);
    *batch = (struct batch){.capacity = capacity,
                            .selected = batch->selected,
                            .wake_ns = INT64_MAX,
                            .chunk_tokens = batch->chunk_tokens,
                            .preempted = batch->preempted,
                            .idle = batch->idle};
    if (guard->err.kind != ERR_NONE) {
        return;
    }
    /* The trial runs on copies of what it remembers, so that asking twice counts once. */
    struct batch trial, answer;
    memcpy(guard->scratch->state, guard->inner_state, guard->inner->state_bytes);
    size_t own_bytes = copy_own(guard, view);
    void *own = own_bytes > 0 ? guard->scratch->own : NULL;
    bool kept = ask(guard, view, guard->scratch->state, own, capacity, 0, &trial) &&
                keeps_own_end(guard, own_bytes) && keeps_lists(guard, &as, &trial) &&
                keeps_limits(guard, view, &trial) &&
                guard_keeps(guard, PROMISE_HOLD, trial.hold <= HOLD_CLOSED,
                            "sets hold to %u, which is no batch_hold", trial.hold) &&
                keeps_progress(guard, view, &trial) &&
                ask(guard, view, guard->inner_state, view->own, capacity, 1, &answer) &&
                keeps_lists(guard, &as, &answer) && keeps_decision(guard, &trial, &answer);
    if (kept) {
        copy_lists(&answer, batch);
        guard->n_preempted += answer.n_preempted;
        guard->n_idle += answer.n_idle;
    }
}
