/* The guard of cache policies: every answer is asked for twice, and again for later steps. */
#include "sim/check/guard_parts.h"

#include <string.h>

#include "sim/cache/blocks.h"

/* The fields of row_sets, each of which is a uint32_t. */
static const char *const field_names[] = {
    "kind",          "chooser",     "settles",    "evict_layer", "recent",        "run.first",
    "run.end",       "skips",       "head.first", "head.end",    "keep[0].first", "keep[0].end",
    "keep[1].first", "keep[1].end", "n_chosen",   "held",        "attends"};
enum { N_FIELDS = sizeof(struct row_sets) / sizeof(uint32_t), N_FACTS = 5 };
_Static_assert(N_FIELDS == sizeof field_names / sizeof field_names[0], "every field has a name");

static uint32_t field_of(const struct row_sets *rows, uint32_t field) {
    uint32_t value;
    memcpy(&value, (const char *)rows + field * sizeof value, sizeof value);
    return value;
}

/* The first field in which two answers differ, or N_FIELDS. */
static uint32_t difference(const struct row_sets *a, const struct row_sets *b) {
    uint32_t field = 0;
    while (field < N_FIELDS && field_of(a, field) == field_of(b, field)) {
        field++;
    }
    return field;
}

static const struct cache_policy *inner_of(const struct guard *guard) {
    return (const struct cache_policy *)guard->inner;
}

/* The answer, with `fill` in every byte that the policy leaves alone, and in those of the answer
 * before it, which it may not read. */
static bool plan_once(struct guard *guard, const void *memory, const struct request *request,
                      int fill, struct row_sets *rows, uint32_t *repeat) {
    const struct cache_policy *cache = inner_of(guard);
    uint8_t *copy = guard->scratch->memory[0];
    struct request asked, lent;
    memcpy(&asked, request, sizeof asked);
    memset(&asked.rows, fill, sizeof asked.rows);
    memcpy(&lent, &asked, sizeof lent);
    memcpy(copy, memory, cache->memory_bytes);
    memset(rows, fill, sizeof *rows);
    guard_enter(guard, "plan");
    *repeat = cache->plan(guard->inner_state, copy, &lent, rows);
    guard_leave(guard);
    return guard_keeps_request(guard, &lent, &asked) && guard_keeps_state(guard) &&
           guard_keeps(guard, PROMISE_READS, memcmp(copy, memory, cache->memory_bytes) == 0,
                       "writes to its memory of request %llu, which plan may only read",
                       (unsigned long long)request->id);
}

/* Asked twice with different bytes in the answer, which shows fields left unset. */
static bool keeps_answer(struct guard *guard, const void *memory, const struct request *request,
                         struct row_sets *rows, uint32_t *repeat) {
    struct row_sets other;
    uint32_t other_repeat;
    if (!plan_once(guard, memory, request, 0xFF, rows, repeat) ||
        !plan_once(guard, memory, request, 0, &other, &other_repeat)) {
        return false;
    }
    uint32_t field = difference(rows, &other);
    if (field < N_FIELDS) {
        uint32_t first = field_of(rows, field), second = field_of(&other, field);
        return guard_keeps(guard, PROMISE_SPAN, first != UINT32_MAX || second != 0,
                           "leaves rows.%s unset", field_names[field]) &&
               guard_keeps(guard, PROMISE_REPEATABLE, false,
                           "plans differently when asked the same again: rows.%s %u, then %u",
                           field_names[field], first, second);
    }
    return guard_keeps(guard, PROMISE_REPEATABLE, *repeat == other_repeat,
                       "plans differently when asked the same again: %u steps, then %u", *repeat,
                       other_repeat);
}

/* What graph and memory are made for is the same in all answers. */
static bool keeps_facts(struct guard *guard, const struct request *request,
                        const struct row_sets *rows) {
    bool is_canvas = rows->kind != ROW_EXACT;
    bool keeps_all = is_canvas && rows_kept(rows) == request->canvas_tokens;
    bool keeps_some = is_canvas && rows_kept(rows) > 0 && !keeps_all;
    for (uint32_t field = 0; guard->has_facts && field < N_FACTS; field++) {
        uint32_t first = field_of(&guard->facts, field), now = field_of(rows, field);
        if (!guard_keeps(guard, PROMISE_SPAN, first == now,
                         "sets rows.%s to %u and once to %u, which is the same in all answers",
                         field_names[field], now, first)) {
            return false;
        }
    }
    guard->facts = *rows;
    guard->has_facts = true;
    guard->keeps_all |= keeps_all;
    guard->keeps_some |= keeps_some;
    return guard_keeps(guard, PROMISE_SPAN, !guard->keeps_all || !guard->keeps_some,
                       "keeps all of a canvas in one answer and a part of it in another");
}

/* A canvas's rows are read where the step before left them: what is kept changes only in steps that
 * read nothing. */
static bool keeps_places(struct guard *guard, const struct request *request,
                         const struct row_sets *rows) {
    const struct row_sets *before = &request->rows;
    struct span span;
    rows_span(rows, request, &span);
    if (!guard_keeps(guard, PROMISE_ROWS,
                     rows->attends == 0 ||
                         (request->steps > 0 &&
                          (before->n_chosen == rows->attends || before->attends == rows->attends)),
                     "attends to %u keys by a pattern that no step chose", rows->attends)) {
        return false;
    }
    if (rows->kind == ROW_EXACT || span.context == 0) {
        return true;
    }
    return guard_keeps(guard, PROMISE_ROWS,
                       request->steps > 0 && rows->n_chosen <= rows_kept(before),
                       "reads %u rows before any step wrote them", span.context) &&
           guard_keeps(guard, PROMISE_ROWS,
                       memcmp(before->keep, rows->keep, sizeof rows->keep) == 0,
                       "reads the rows of [%u, %u) and [%u, %u), where those of [%u, %u) and "
                       "[%u, %u) are kept",
                       rows->keep[0].first, rows->keep[0].end, rows->keep[1].first,
                       rows->keep[1].end, before->keep[0].first, before->keep[0].end,
                       before->keep[1].first, before->keep[1].end) &&
           guard_keeps(guard, PROMISE_ROWS,
                       !rows_are_chosen(rows) || before->n_chosen == rows->n_chosen,
                       "reads %u chosen rows of %u", rows->n_chosen, before->n_chosen);
}

/* At the second, the middle and the last step that the answer is said to hold for, both with one
 * commit a step and with all but one position committed. */
static bool keeps_repeat(struct guard *guard, const void *memory, const struct request *request,
                         const struct row_sets *rows, uint32_t repeat) {
    if (!guard_keeps(guard, PROMISE_SPAN_REPEAT, repeat >= 1,
                     "says that its row sets hold for 0 steps")) {
        return false;
    }
    uint32_t masked = request->masked_in_block;
    uint32_t steps = repeat < masked ? repeat : masked;
    struct request asked = *request;
    rows_span(rows, request, &asked.span);
    if (steps < 2 || !blocks_decide(&asked)) {
        return true;
    }
    const uint32_t after[] = {1, steps / 2, steps - 1};
    for (int i = 0; i < 6; i++) {
        uint32_t step = after[i / 2], commits = i % 2 == 0 ? step : masked - 1;
        struct request moved = guard_later(request, step, commits);
        struct row_sets then;
        uint32_t then_repeat;
        if (!plan_once(guard, memory, &moved, 0, &then, &then_repeat)) {
            return false;
        }
        uint32_t field = difference(rows, &then), shown = field < N_FIELDS ? field : 0;
        if (!guard_keeps(guard, PROMISE_SPAN_REPEAT, field == N_FIELDS,
                         "says that its row sets hold for %u steps, but after %u steps and %u "
                         "commits rows.%s is %u instead of %u",
                         repeat, step, commits, field_names[shown], field_of(&then, shown),
                         field_of(rows, shown))) {
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
    memset(&then.rows, 0, sizeof then.rows);
    memset(&then.span, 0, sizeof then.span);
    if (last) {
        blocks_enter_last(&then);
    } else {
        blocks_enter(&then, block);
    }
    then.cached_tokens = then.block == 0 ? 0 : then.block_start;
    return then;
}

/* Exact rows: never fewer than in the block before, and the most in the last block. Others: as many
 * over a request's life. */
static bool keeps_memory(struct guard *guard, const void *memory, const struct request *request,
                         const struct row_sets *rows) {
    bool exact = rows->kind == ROW_EXACT;
    uint32_t repeat, held = rows->held;
    struct row_sets before, at_end;
    const struct request earlier =
        at_block(request, exact && request->block > 0 ? request->block - 1 : 0, false);
    const struct request last = at_block(request, 0, true);
    if (!plan_once(guard, memory, &earlier, 0, &before, &repeat)) {
        return false;
    }
    if (!exact) {
        return guard_keeps(guard, PROMISE_ROWS, held == before.held,
                           "holds %u rows at the start of a request and %u in its block %u",
                           before.held, held, request->block);
    }
    return guard_keeps(guard, PROMISE_ROWS, before.held <= held,
                       "holds %u rows in block %u of a request and %u in block %u", before.held,
                       earlier.block, held, request->block) &&
           plan_once(guard, memory, &last, 0, &at_end, &repeat) &&
           guard_keeps(guard, PROMISE_ROWS, held <= at_end.held,
                       "holds %u rows in block %u of a request and %u in its last block", held,
                       request->block, at_end.held);
}

static bool keeps_sets(struct guard *guard, const struct request *request,
                       const struct row_sets *rows) {
    struct err err = {0};
    bool kept = rows_check(rows, request, &err) == 0;
    bool has_evict = inner_of(guard)->evict != NULL;
    return guard_keeps(guard, PROMISE_SPAN, kept, "%s", err.text) &&
           guard_keeps(guard, PROMISE_SPAN, (rows->chooser == CHOSEN_BY_POLICY) == has_evict,
                       has_evict ? "has the callback evict but does not name it as chooser"
                                 : "names its callback evict as chooser but has none");
}

uint32_t guarded_plan(const void *state, const void *memory, const struct request *request,
                      struct row_sets *rows) {
    struct guard *guard = (struct guard *)state;
    struct row_sets answer;
    uint32_t repeat;
    if (guard->err.kind == ERR_NONE && keeps_answer(guard, memory, request, &answer, &repeat) &&
        keeps_sets(guard, request, &answer) && keeps_facts(guard, request, &answer) &&
        keeps_memory(guard, memory, request, &answer) && keeps_places(guard, request, &answer) &&
        keeps_repeat(guard, memory, request, &answer, repeat)) {
        *rows = answer;
        return repeat;
    }
    *rows =
        (struct row_sets){.run = {0, request->canvas_tokens}, .head = {0, request->canvas_tokens}};
    return 1;
}

void guard_ask_facts(struct guard *guard, const struct request *request) {
    uint64_t nothing[CACHE_MAX_MEMORY_BYTES / sizeof(uint64_t)] = {0};
    uint32_t repeat;
    guard->has_facts = plan_once(guard, nothing, request, 0, &guard->facts, &repeat);
}
