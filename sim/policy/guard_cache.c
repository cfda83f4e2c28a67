/* The guard of cache policies: every plan is asked for twice, and again for later steps. */
#include "sim/policy/guard_parts.h"

#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} span_fields[] = {
#define FIELD(name)                                                                                \
    { #name, offsetof(struct span, name) }
    FIELD(phase),      FIELD(queries),     FIELD(first_queries), FIELD(context),
    FIELD(logit_rows), FIELD(select_rows), FIELD(pack_rows),     FIELD(value_rows),
#undef FIELD
};
enum { N_SPAN_FIELDS = sizeof span_fields / sizeof span_fields[0] };

static uint32_t span_value(const struct span *span, uint32_t field) {
    uint32_t value;
    memcpy(&value, (const char *)span + span_fields[field].offset, sizeof value);
    return value;
}

/* The first field in which two spans differ, or N_SPAN_FIELDS. */
static uint32_t span_difference(const struct span *a, const struct span *b) {
    uint32_t field = 0;
    while (field < N_SPAN_FIELDS && span_value(a, field) == span_value(b, field)) {
        field++;
    }
    return field;
}

static bool plan_once(struct guard *guard, const struct request *request, int fill,
                      struct span *span, uint32_t *repeat) {
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    memset(span, fill, sizeof *span);
    guard_enter(guard, "plan");
    *repeat = ((const struct cache_policy *)guard->inner)->plan(guard->inner_state, &lent, span);
    guard_leave(guard);
    return guard_keeps_request(guard, &lent, request) && guard_keeps_state(guard);
}

static bool rows_once(struct guard *guard, const struct request *request, uint32_t *rows) {
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    guard_enter(guard, "rows_held");
    *rows = ((const struct cache_policy *)guard->inner)->rows_held(guard->inner_state, &lent);
    guard_leave(guard);
    return guard_keeps_request(guard, &lent, request) && guard_keeps_state(guard);
}

/* Asked twice with different bytes in the span, which shows fields left unset. */
static bool keeps_plan(struct guard *guard, const struct request *request, struct span *span,
                       uint32_t *repeat) {
    struct span other;
    uint32_t other_repeat;
    if (!plan_once(guard, request, 0xFF, span, repeat) ||
        !plan_once(guard, request, 0, &other, &other_repeat)) {
        return false;
    }
    uint32_t field = span_difference(span, &other);
    if (field < N_SPAN_FIELDS) {
        uint32_t first = span_value(span, field), second = span_value(&other, field);
        return guard_keeps(guard, PROMISE_SPAN, first != UINT32_MAX || second != 0,
                           "leaves span.%s unset", span_fields[field].name) &&
               guard_keeps(guard, PROMISE_REPEATABLE, false,
                           "plans differently when asked the same again: span.%s %u, then %u",
                           span_fields[field].name, first, second);
    }
    return guard_keeps(guard, PROMISE_REPEATABLE, *repeat == other_repeat,
                       "plans differently when asked the same again: %u steps, then %u", *repeat,
                       other_repeat);
}

static bool keeps_span(struct guard *guard, const struct request *request, const struct span *span,
                       uint32_t rows) {
    const struct cache_policy *cache = (const struct cache_policy *)guard->inner;
    uint32_t canvas = request->canvas_tokens;
    bool commits = span->phase == PHASE_REFRESH || span->phase == PHASE_REUSE;
    return guard_keeps(guard, PROMISE_SPAN, span->phase < PHASE_COUNT,
                       "sets span.phase to %u, which is no phase", span->phase) &&
           guard_keeps(guard, PROMISE_SPAN, span->queries >= 1 && span->queries <= canvas,
                       "plans %u queries on a canvas of %u tokens", span->queries, canvas) &&
           guard_keeps(guard, PROMISE_SPAN,
                       span->first_queries >= span->queries && span->first_queries <= canvas,
                       "plans %u queries in layer 0, not from %u (its queries) to %u (the canvas)",
                       span->first_queries, span->queries, canvas) &&
           guard_keeps(guard, PROMISE_SPAN,
                       cache->splits_first_layer == 1 || span->first_queries == span->queries,
                       "plans %u queries in layer 0 and %u behind it without splits_first_layer",
                       span->first_queries, span->queries) &&
           guard_keeps(guard, PROMISE_SPAN, span->context <= canvas - span->queries,
                       "attends to %u cached rows besides %u queries on a canvas of %u tokens",
                       span->context, span->queries, canvas) &&
           guard_keeps(guard, PROMISE_SPAN,
                       !commits || span->logit_rows >= request->masked_in_block,
                       "plans %u logit rows for %u masked positions", span->logit_rows,
                       request->masked_in_block) &&
           guard_keeps(guard, PROMISE_SPAN, span->logit_rows <= canvas,
                       "plans %u logit rows on a canvas of %u tokens", span->logit_rows, canvas) &&
           guard_keeps(guard, PROMISE_SPAN, cache->selects == 1 || span->select_rows == 0,
                       "scores %u rows without the flag selects", span->select_rows) &&
           guard_keeps(guard, PROMISE_SPAN,
                       span->select_rows <= canvas && span->pack_rows <= span->select_rows,
                       "packs %u of %u scored rows on a canvas of %u tokens", span->pack_rows,
                       span->select_rows, canvas) &&
           guard_keeps(guard, PROMISE_SPAN, cache->compares_values == 1 || span->value_rows == 0,
                       "projects the values of %u rows without the flag compares_values",
                       span->value_rows) &&
           guard_keeps(guard, PROMISE_SPAN, span->value_rows <= canvas,
                       "projects the values of %u rows on a canvas of %u tokens", span->value_rows,
                       canvas) &&
           guard_keeps(guard, PROMISE_ROWS, span->context <= rows,
                       "attends to %u cached rows but holds %u", span->context, rows) &&
           guard_keeps(guard, PROMISE_ROWS, span->pack_rows <= rows, "packs %u rows but holds %u",
                       span->pack_rows, rows);
}

/* At the second, the middle and the last step that the span is said to hold for, both with one
 * commit a step and with all but one position committed. */
static bool keeps_span_repeat(struct guard *guard, const struct request *request,
                              const struct span *span, uint32_t repeat) {
    if (!guard_keeps(guard, PROMISE_SPAN_REPEAT, repeat >= 1,
                     "says that its span holds for 0 steps")) {
        return false;
    }
    uint32_t masked = request->masked_in_block;
    uint32_t steps = repeat < masked ? repeat : masked;
    if (steps < 2) {
        return true;
    }
    const uint32_t after[] = {1, steps / 2, steps - 1};
    for (int i = 0; i < 6; i++) {
        uint32_t step = after[i / 2], commits = i % 2 == 0 ? step : masked - 1;
        struct request moved = guard_later(request, step, commits);
        struct span then;
        uint32_t then_repeat;
        if (!plan_once(guard, &moved, 0, &then, &then_repeat)) {
            return false;
        }
        uint32_t field = span_difference(span, &then);
        uint32_t shown = field < N_SPAN_FIELDS ? field : 0;
        if (!guard_keeps(guard, PROMISE_SPAN_REPEAT, field == N_SPAN_FIELDS,
                         "says that its span holds for %u steps, but after %u steps and %u commits "
                         "span.%s is %u instead of %u",
                         repeat, step, commits, span_fields[shown].name, span_value(&then, shown),
                         span_value(span, shown))) {
            return false;
        }
    }
    return true;
}

static bool keeps_rows(struct guard *guard, const struct request *request, uint32_t *rows) {
    uint32_t again, at_start, length = request->output_tokens;
    struct request fresh;
    memcpy(&fresh, request, sizeof fresh);
    fresh.kv_rows = fresh.block = fresh.step_in_block = fresh.committed_tokens = fresh.steps = 0;
    fresh.kv_bytes = 0;
    fresh.preemptions = fresh.commit_tokens = fresh.steps_to_change = 0;
    fresh.state = REQUEST_QUEUED;
    fresh.block_start = request->prompt_tokens;
    fresh.block_length = length < request->block_tokens ? length : request->block_tokens;
    fresh.masked_in_block = fresh.block_length;
    memset(&fresh.span, 0, sizeof fresh.span);
    return rows_once(guard, request, rows) && rows_once(guard, request, &again) &&
           guard_keeps(guard, PROMISE_REPEATABLE, *rows == again,
                       "holds %u rows, then %u when asked the same again", *rows, again) &&
           rows_once(guard, &fresh, &at_start) &&
           guard_keeps(guard, PROMISE_ROWS, *rows == at_start,
                       "holds %u rows at the start of a request and %u in its block %u", at_start,
                       *rows, request->block) &&
           guard_keeps(guard, PROMISE_ROWS,
                       *rows == 0 ||
                           ((const struct cache_policy *)guard->inner)->row != CACHE_ROW_NONE,
                       "holds %u rows though its kind of row is CACHE_ROW_NONE", *rows);
}

uint32_t guarded_plan(const void *state, const struct request *request, struct span *span) {
    struct guard *guard = (struct guard *)state;
    struct span planned;
    uint32_t repeat, rows;
    if (guard->err.kind == ERR_NONE && keeps_plan(guard, request, &planned, &repeat) &&
        keeps_rows(guard, request, &rows) && keeps_span(guard, request, &planned, rows) &&
        keeps_span_repeat(guard, request, &planned, repeat)) {
        *span = planned;
        return repeat;
    }
    *span = (struct span){.phase = PHASE_REFRESH,
                          .queries = request->canvas_tokens,
                          .first_queries = request->canvas_tokens,
                          .logit_rows = request->canvas_tokens};
    return 1;
}

uint32_t guarded_rows_held(const void *state, const struct request *request) {
    struct guard *guard = (struct guard *)state;
    uint32_t rows;
    return guard->err.kind == ERR_NONE && keeps_rows(guard, request, &rows) ? rows : 0;
}
