/* The guard of cache policies: every plan is asked for twice, and again for later steps. */
#include "sim/check/guard_parts.h"

#include <string.h>

#include "sim/cache/blocks.h"
#include "sim/cache/canvas.h"
#include "sim/decode/block.h"

static const struct {
    const char *name;
    size_t offset;
} span_fields[] = {
#define FIELD(name)                                                                                \
    { #name, offsetof(struct span, name) }
    FIELD(phase),      FIELD(queries),      FIELD(first_queries), FIELD(context),
    FIELD(logit_rows), FIELD(select_rows),  FIELD(pack_rows),     FIELD(value_rows),
    FIELD(exact),      FIELD(kept_queries), FIELD(kept_keys),     FIELD(part_start),
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

static bool is_exact(const struct guard *guard) {
    return ((const struct cache_policy *)guard->inner)->keeps == KEEPS_EXACT;
}

/* A request that has nothing left to decide in its block, and whose keys and values are held, asks
 * for nothing more. */
static bool may_do_nothing(const struct request *request) {
    return request->masked_in_block == 0 && request->cached_tokens >= request->block_start;
}

/* What an exact policy may plan, by what is missing: keys and values before the block, decisions in
 * it, or its own keys and values. */
static bool keeps_exact_span(struct guard *guard, const struct request *request,
                             const struct span *span, uint32_t rows) {
    uint32_t missing = request->block_start > request->cached_tokens
                           ? request->block_start - request->cached_tokens
                           : 0;
    uint32_t end = request->block_start + request->block_length;
    bool by_token = request->causal == SEES_TOKENS;
    bool crosses = missing > 0 && missing <= request->block_tokens && request->block > 0 &&
                   request->masked_in_block > 0 && !request->shifted &&
                   span->phase == PHASE_REUSE && !by_token;
    uint32_t runs = crosses ? missing + request->block_length : missing;
    if (!guard_keeps(guard, PROMISE_SPAN, missing == 0 || span->queries == runs,
                     "plans %u queries where the keys and values of %u positions are missing",
                     span->queries, missing) ||
        !guard_keeps(guard, PROMISE_SPAN,
                     missing == 0 || span->phase == PHASE_PREFILL || crosses ||
                         (by_token && span->phase == PHASE_REUSE),
                     "plans phase %u where the keys and values of %u positions are missing",
                     span->phase, missing) ||
        !guard_keeps(guard, PROMISE_SPAN, missing == 0 || span->context == request->cached_tokens,
                     "attends to %u cached rows in a prefill behind %u", span->context,
                     request->cached_tokens) ||
        !guard_keeps(guard, PROMISE_SPAN,
                     !by_token || request->masked_in_block == 0 || span->logit_rows >= 1,
                     "plans %u logit rows for %u masked positions", span->logit_rows,
                     request->masked_in_block) ||
        !guard_keeps(guard, PROMISE_ROWS, span->context + span->queries <= rows,
                     "runs %u queries behind %u cached rows but holds %u", span->queries,
                     span->context, rows)) {
        return false;
    }
    bool commits = span->phase == PHASE_COMMIT;
    return missing > 0 ||
           (guard_keeps(guard, PROMISE_SPAN, span->phase != PHASE_PREFILL,
                        "plans a prefill of %u queries though none is missing", span->queries) &&
            guard_keeps(guard, PROMISE_SPAN, commits == (request->masked_in_block == 0),
                        "plans phase %u with %u masked positions in the block", span->phase,
                        request->masked_in_block) &&
            guard_keeps(guard, PROMISE_SPAN, request->uncached_in_block > 0,
                        "plans %u queries though every key and value is held", span->queries) &&
            guard_keeps(guard, PROMISE_SPAN,
                        request->passes_in_block > 0 || span->context == request->block_start,
                        "attends to %u cached rows in a block's first pass, behind %u",
                        span->context, request->block_start) &&
            guard_keeps(guard, PROMISE_SPAN, span->context + span->queries <= end,
                        "reaches %u positions in a block that ends at %u",
                        span->context + span->queries, end));
}

/* Queries that go on behind the eviction, and what they attend to there. */
static bool keeps_eviction(struct guard *guard, const struct span *span) {
    bool evicts = ((const struct cache_policy *)guard->inner)->evicts == 1;
    if (!evicts || span->phase == PHASE_PREFILL) {
        return guard_keeps(guard, PROMISE_SPAN, span->kept_queries == 0 && span->kept_keys == 0,
                           "keeps %u queries and %u keys %s", span->kept_queries, span->kept_keys,
                           evicts ? "in a prefill, which evicts nothing"
                                  : "without the flag evicts");
    }
    return guard_keeps(guard, PROMISE_SPAN,
                       span->kept_queries >= 1 && span->kept_queries <= span->queries,
                       "keeps %u of %u queries", span->kept_queries, span->queries) &&
           guard_keeps(guard, PROMISE_SPAN,
                       span->kept_keys >= span->kept_queries &&
                           span->kept_keys <= span->context + span->queries,
                       "attends to %u keys with %u kept queries of %u behind %u cached rows",
                       span->kept_keys, span->kept_queries, span->queries, span->context) &&
           guard_keeps(guard, PROMISE_SPAN, span->logit_rows <= span->kept_queries,
                       "plans %u logit rows of %u kept queries", span->logit_rows,
                       span->kept_queries);
}

/* What reusing steps run around the block, where a policy names it. */
static bool keeps_window(struct guard *guard, const struct request *request,
                         const struct span *span) {
    const struct cache_policy *cache = (const struct cache_policy *)guard->inner;
    uint32_t first = UINT32_MAX, end = 0, block_end = request->block_start + request->block_length;
    if (cache->window == NULL) {
        return true;
    }
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    guard_enter(guard, "window");
    cache->window(guard->inner_state, &lent, &first, &end);
    guard_leave(guard);
    return guard_keeps_request(guard, &lent, request) && guard_keeps_state(guard) &&
           guard_keeps(guard, PROMISE_SPAN,
                       first <= request->block_start && end >= block_end &&
                           end <= request->canvas_tokens,
                       "names the window [%u, %u) of a canvas of %u tokens", first, end,
                       request->canvas_tokens) &&
           guard_keeps(guard, PROMISE_SPAN,
                       span->context == 0 || cache->keeps == KEEPS_CANVAS ||
                           (span->queries == end - first &&
                            span->context == request->canvas_tokens - (end - first)),
                       "plans %u queries and %u cached rows with a window of %u positions",
                       span->queries, span->context, end - first);
}

/* Where all of the canvas is kept: a row for every position, a full pass first, and no query that
 * the window and what is left out do not account for. */
static bool keeps_canvas(struct guard *guard, const struct request *request,
                         const struct span *span, uint32_t rows) {
    const struct cache_policy *cache = (const struct cache_policy *)guard->inner;
    uint32_t canvas = request->canvas_tokens;
    if (cache->keeps != KEEPS_CANVAS) {
        return true;
    }
    struct request planned = *request;
    planned.span = *span;
    const struct canvas_run run = canvas_run_of(cache, guard->inner_state, &planned);
    uint32_t left_out = run.all ? 0 : request->block_length - request->uncached_in_block;
    return guard_keeps(guard, PROMISE_ROWS, rows == canvas,
                       "holds %u rows where it keeps a canvas of %u tokens", rows, canvas) &&
           guard_keeps(guard, PROMISE_SPAN, span->context == canvas - span->queries,
                       "attends to %u cached rows besides %u queries, where it keeps a canvas of "
                       "%u tokens",
                       span->context, span->queries, canvas) &&
           guard_keeps(guard, PROMISE_SPAN, span->context == 0 || request->step_in_block > 0,
                       "reuses %u rows in a block's first step", span->context) &&
           guard_keeps(guard, PROMISE_SPAN, span->queries == run.end - run.first - left_out,
                       "plans %u queries in a window of %u positions, %u of which it leaves out",
                       span->queries, run.end - run.first, left_out);
}

/* Parts of a block: in their place, and only where the policy says that it runs some. */
static bool keeps_part(struct guard *guard, const struct request *request,
                       const struct span *span) {
    bool runs_parts = ((const struct cache_policy *)guard->inner)->leaves_out == BLOCK_PARTS;
    bool in_block = span->phase == PHASE_REUSE || span->phase == PHASE_COMMIT;
    if (!runs_parts || !in_block || request->causal != SEES_BLOCKS) {
        return guard_keeps(guard, PROMISE_SPAN, span->part_start == 0, "starts a part at %u %s",
                           span->part_start,
                           runs_parts ? "outside of a block" : "though it runs whole blocks");
    }
    uint32_t end = span->part_start + span->queries;
    return guard_keeps(guard, PROMISE_SPAN, end <= request->block_length,
                       "runs a part of a block of %u positions that ends at %u",
                       request->block_length, end) &&
           guard_keeps(
               guard, PROMISE_SPAN,
               request->masked_in_block == 0 ||
                   (span->part_start <= request->known_in_front && request->known_in_front < end),
               "runs a part from %u to %u of a block whose first masked position is %u",
               span->part_start, end, request->known_in_front) &&
           guard_keeps(guard, PROMISE_SPAN,
                       (request->masked_in_block > 0 && request->passes_in_block > 0) ||
                           span->queries == request->block_length,
                       "runs %u of a block's %u positions where %s", span->queries,
                       request->block_length,
                       request->masked_in_block == 0 ? "none is masked"
                                                     : "the others have no keys and values");
}

static bool keeps_span(struct guard *guard, const struct request *request, const struct span *span,
                       uint32_t rows) {
    const struct cache_policy *cache = (const struct cache_policy *)guard->inner;
    uint32_t canvas = request->canvas_tokens;
    bool commits = span->phase == PHASE_REFRESH || span->phase == PHASE_REUSE;
    if (is_exact(guard) && may_do_nothing(request) && span->queries == 0) {
        return true;
    }
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
                       !commits ||
                           span->logit_rows >= (is_exact(guard) ? request->masked_in_block > 0
                                                                : request->masked_in_block),
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
                       span->pack_rows, rows) &&
           guard_keeps(guard, PROMISE_SPAN, span->exact == is_exact(guard),
                       "sets span.exact to %u though it %s", span->exact,
                       is_exact(guard) ? "keeps exact rows" : "keeps none that are exact") &&
           keeps_eviction(guard, span) && keeps_part(guard, request, span) &&
           keeps_window(guard, request, span) && keeps_canvas(guard, request, span, rows) &&
           (!is_exact(guard) || keeps_exact_span(guard, request, span, rows));
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
    struct request asked = *request;
    asked.span = *span;
    if (steps < 2 || !blocks_decide(&asked)) {
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

/* The request as it was when `block` began, or in its last block. */
static struct request at_block(const struct request *request, uint32_t block, bool last) {
    struct request then;
    memcpy(&then, request, sizeof then);
    then.kv_rows = then.committed_tokens = then.steps = 0;
    then.kv_bytes = then.kv_held_bytes = 0;
    then.preemptions = then.commit_tokens = then.steps_to_change = 0;
    then.state = REQUEST_QUEUED;
    memset(&then.span, 0, sizeof then.span);
    if (last) {
        blocks_enter_last(&then);
    } else {
        blocks_enter(&then, block);
    }
    then.cached_tokens = then.block == 0 ? 0 : then.block_start;
    return then;
}

/* Exact policies: never fewer than in the block before, and the most in the last block. Others: the
 * same over a request's life. */
static bool keeps_life(struct guard *guard, const struct request *request, uint32_t rows) {
    bool exact = is_exact(guard);
    uint32_t before, at_end;
    const struct request earlier =
        at_block(request, exact && request->block > 0 ? request->block - 1 : 0, false);
    const struct request last = at_block(request, 0, true);
    if (!rows_once(guard, &earlier, &before)) {
        return false;
    }
    if (!exact) {
        return guard_keeps(guard, PROMISE_ROWS, rows == before,
                           "holds %u rows at the start of a request and %u in its block %u", before,
                           rows, request->block);
    }
    return guard_keeps(guard, PROMISE_ROWS, before <= rows,
                       "holds %u rows in block %u of a request and %u in block %u", before,
                       earlier.block, rows, request->block) &&
           rows_once(guard, &last, &at_end) &&
           guard_keeps(guard, PROMISE_ROWS, rows <= at_end,
                       "holds %u rows in block %u of a request and %u in its last block", rows,
                       request->block, at_end);
}

static bool keeps_rows(struct guard *guard, const struct request *request, uint32_t *rows) {
    uint32_t again;
    return rows_once(guard, request, rows) && rows_once(guard, request, &again) &&
           guard_keeps(guard, PROMISE_REPEATABLE, *rows == again,
                       "holds %u rows, then %u when asked the same again", *rows, again) &&
           keeps_life(guard, request, *rows) &&
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
