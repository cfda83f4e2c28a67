/* What a step must be for packed.c to take it. */
#include <inttypes.h>

#include "engine/op/packed.h"
#include "kernels/calls.h"
#include "kernels/rules/pattern.h"
#include "sim/base/num.h"

/* What selection and decision kernels take of one span (calls.h). */
enum { MAX_CANDIDATES = 65536, MAX_DECISION_ROWS = 65536 };

static int check_selection(const struct packed *packed, const struct step *step, uint32_t i,
                           struct err *err) {
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    if (!packed->selects) {
        return err_usage(err, "span %" PRIu32 " selects rows, but the step graph does not", i);
    }
    if (span->context > 0 || part->kv_rows != NULL) {
        return err_usage(err,
                         "span %" PRIu32 " selects rows and has cached context or rows to keep", i);
    }
    if (part->block_start >= part->block_end || part->block_end > span->queries) {
        return err_usage(err,
                         "span %" PRIu32 " selects for the queries from %" PRIu32 " to %" PRIu32
                         " of %" PRIu32,
                         i, part->block_start, part->block_end, span->queries);
    }
    uint32_t candidates = span->queries - (part->block_end - part->block_start);
    if (span->select_rows != candidates || candidates > MAX_CANDIDATES) {
        return err_usage(err,
                         "span %" PRIu32 " scores %" PRIu32 " rows, but %" PRIu32
                         " lie outside its block (at most %d)",
                         i, span->select_rows, candidates, MAX_CANDIDATES);
    }
    if (span->pack_rows == 0 || span->pack_rows > candidates ||
        (int64_t)span->pack_rows != part->kv.n_rows) {
        return err_usage(
            err, "span %" PRIu32 " packs %" PRIu32 " of %" PRIu32 " rows into a store of %" PRId32,
            i, span->pack_rows, candidates, part->kv.n_rows);
    }
    return 0;
}

static int check_pages(const struct packed *packed, const struct step *step, uint32_t i,
                       struct err *err) {
    const struct step_part *part = &step->parts[i];
    const struct kv_pages *kv = &part->kv_pages;
    const uint32_t queries = step->shape->spans[i]->queries;
    int64_t most = ceil_div(packed->limits.max_positions, packed->limits.page_rows);
    int64_t n_rows = (int64_t)kv->n_pages * packed->limits.page_rows;
    int32_t n_masked = packed_count_masked(part, queries);
    if (packed->evicts && n_masked > FOCUS_MAX_BLOCK) {
        return err_usage(err, "span %" PRIu32 " has %" PRId32 " masked tokens, at most %d are run",
                         i, n_masked, (int)FOCUS_MAX_BLOCK);
    }
    if (kv->n_pages < 0 || kv->n_pages > most) {
        return err_usage(err, "span %" PRIu32 " has %" PRId32 " pages of at most %" PRId64, i,
                         kv->n_pages, most);
    }
    for (int32_t page = 0; page < kv->n_pages; page++) {
        if (kv->pages[page] < 0 || kv->pages[page] >= packed->pool_pages) {
            return err_usage(err,
                             "span %" PRIu32 " has page %" PRId32 " of a pool of %" PRId64 " pages",
                             i, kv->pages[page], packed->pool_pages);
        }
    }
    for (uint32_t t = 0; t < queries; t++) {
        const int32_t before = t > 0 ? kv->extent[t - 1] : 1, end = kv->extent[t];
        const int32_t row = (kv->rows != NULL ? kv->rows : part->positions)[t];
        const bool leaves_out = kv->before != NULL;
        if (end <= row || end < before || end > n_rows ||
            (leaves_out && (kv->before[t] < 0 || kv->before[t] >= end))) {
            return err_usage(err,
                             "token %" PRIu32 " of span %" PRIu32 ", at position %" PRId32
                             ", attends to %" PRId32 " rows of %" PRId64
                             ", the token before it to %" PRId32,
                             t, i, part->positions[t], kv->extent[t], n_rows, before);
        }
    }
    return 0;
}

/* Which rows run after the first layer of a span whose features are kept. */
static int check_run(const struct step *step, uint32_t i, struct err *err) {
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    const int64_t first = part->run.first, given = part->run.given, canvas = span->first_queries;
    const int64_t queries = span->queries, compared = span->value_rows;
    const int64_t values = compared > 0 ? compared : queries;
    const bool fits = compared > 0 ? queries <= compared : given == queries;
    if (first < 0 || first + values > canvas || given < 0 || given > queries || !fits ||
        compared > MAX_CANDIDATES || part->kv.n_rows != (int32_t)canvas) {
        return err_usage(err,
                         "span %" PRIu32 " runs %" PRId64 " queries, %" PRId64
                         " of them given, among %" PRId64 " values from position %" PRId64
                         " on, of a canvas of %" PRId64 " (at most %d) and a store of %" PRId32,
                         i, queries, given, values, first, canvas, MAX_CANDIDATES, part->kv.n_rows);
    }
    for (int32_t t = 0; t < (int32_t)canvas; t++) {
        if (part->positions[t] != t) {
            return err_usage(err,
                             "token %" PRId32 " of span %" PRIu32 " stands at position %" PRId32
                             ", but features are kept of whole canvases",
                             t, i, part->positions[t]);
        }
    }
    return 0;
}

/* A pattern's blocks, and its store: a word of a head is a row. */
static int check_pattern(const struct packed *packed, const struct step *step, uint32_t i,
                         struct err *err) {
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    const struct pattern_choice *choice = &part->pattern;
    if (!packed->patterns || span->context > 0 || part->kv_rows != NULL) {
        return err_usage(err, "span %" PRIu32 " attends by a pattern or chooses one, and %s", i,
                         packed->patterns ? "has cached context or rows to keep"
                                          : "the step graph keeps none");
    }
    const int32_t n =
        pattern_n_blocks((int32_t)span->queries, (int32_t)packed->limits.pattern_tokens);
    if (n > PATTERN_MAX_BLOCKS || (int64_t)n * pattern_n_words(n) > part->kv.n_rows) {
        return err_usage(err,
                         "span %" PRIu32 " has a pattern of %" PRId32
                         " blocks (at most %d) in a store of %" PRId32 " words",
                         i, n, PATTERN_MAX_BLOCKS, part->kv.n_rows);
    }
    const bool chooses = span->attended_keys > span->queries;
    if (chooses && (choice->rest < 0 || choice->rest >= n || choice->keep < 1 || choice->keep > n ||
                    choice->keep_rest < 1 || choice->keep_rest > n - choice->rest)) {
        return err_usage(err,
                         "span %" PRIu32 " keeps %" PRId32 " blocks of %" PRId32 " and %" PRId32
                         " of those from block %" PRId32 " on",
                         i, choice->keep, n, choice->keep_rest, choice->rest);
    }
    return 0;
}

static int check_store(const struct packed *packed, const struct step *step, uint32_t i,
                       struct err *err) {
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    const struct kv_store *kv = &part->kv;
    if (span->context == 0 && span->select_rows == 0 && part->kv_rows == NULL &&
        !packed->features && span->attended_keys == 0) {
        return 0;
    }
    bool renews = packed->limits.renews_rows;
    if (span->context > 0 && part->kv_rows != NULL && !renews) {
        return err_usage(err, "span %" PRIu32 " would write to the rows it reads", i);
    }
    int64_t attended = (int64_t)span->context + (renews ? span->queries : 0);
    if (span->context > 0 && attended != kv->n_rows) {
        return err_usage(err,
                         "span %" PRIu32 " attends to %" PRId64 " cached rows, but its store holds "
                         "%" PRId32,
                         i, attended, kv->n_rows);
    }
    int64_t n = packed->pool_elements;
    if (kv->n_rows < 0 || kv->first < 0 || kv->first % 8 != 0 || kv->first > n ||
        packed_states(packed, kv->n_rows) +
                (packed->joins ? packed->state_elements * kv->n_rows : 0) >
            n - kv->first) {
        return err_usage(err,
                         "the store of span %" PRIu32 ", %" PRId32 " rows from element %" PRId64
                         ", is not inside the pool of %" PRId64 " elements",
                         i, kv->n_rows, kv->first, n);
    }
    int64_t peak_bytes = packed->limits.shares_pool ? step->placement->peak_bytes : 0;
    if (kv->n_rows > 0 && kv->first * packed->element_bytes < peak_bytes) {
        return err_usage(err,
                         "the store of span %" PRIu32 " begins at byte %" PRId64
                         ", but the step's tensors reach up to %" PRId64,
                         i, kv->first * packed->element_bytes, peak_bytes);
    }
    for (uint32_t t = 0; part->kv_rows != NULL && t < span->queries; t++) {
        if (part->kv_rows[t] < -1 || part->kv_rows[t] >= kv->n_rows) {
            return err_usage(err,
                             "span %" PRIu32 " keeps token %" PRIu32 " in row %" PRId32
                             " of a store of %" PRId32,
                             i, t, part->kv_rows[t], kv->n_rows);
        }
    }
    return 0;
}

/* Tokens of the residual stream. */
static uint32_t stream_tokens(const struct span *span) {
    return span->first_queries > span->queries ? span->first_queries : span->queries;
}

static int check_positions(const struct packed *packed, const struct step *step, uint32_t i,
                           struct err *err) {
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    int64_t room = packed->limits.canvas_tokens - part->canvas; /* from the canvas's start on */
    int64_t end = packed->limits.max_positions;
    end = room < end ? room : end;
    if (part->canvas < 0 || room < 0) {
        return err_usage(err,
                         "the canvas of span %" PRIu32 " starts at token %" PRId64 " of %" PRId64,
                         i, part->canvas, packed->limits.canvas_tokens);
    }
    for (uint32_t t = 0; t < stream_tokens(span); t++) {
        if (part->positions[t] < 0 || part->positions[t] >= end) {
            return err_usage(err,
                             "token %" PRIu32 " of span %" PRIu32 " stands at position %" PRId32
                             ", but positions end at %" PRId64,
                             t, i, part->positions[t], end - 1);
        }
    }
    for (uint32_t r = 0; part->targets != NULL && r < span->logit_rows; r++) {
        if (part->targets[r] < 0 || part->targets[r] >= end) {
            return err_usage(err,
                             "row %" PRIu32 " of span %" PRIu32 " decides on position %" PRId32
                             ", but positions end at %" PRId64,
                             r, i, part->targets[r], end - 1);
        }
    }
    return 0;
}

static int check_rows(const struct step *step, uint32_t i, struct err *err) {
    const struct span *span = step->shape->spans[i];
    const struct step_part *part = &step->parts[i];
    const struct decision *decision = &part->decision;
    for (uint32_t r = 0; part->logit_rows != NULL && r < span->logit_rows; r++) {
        if (part->logit_rows[r] < 0 || (uint32_t)part->logit_rows[r] >= stream_tokens(span)) {
            return err_usage(err,
                             "span %" PRIu32 " wants the logits of query %" PRId32 " of %" PRIu32,
                             i, part->logit_rows[r], stream_tokens(span));
        }
    }
    if (part->logit_rows == NULL && span->logit_rows > stream_tokens(span)) {
        return err_usage(err,
                         "span %" PRIu32 " wants %" PRIu32 " logit rows of %" PRIu32 " queries", i,
                         span->logit_rows, span->queries);
    }
    if (decision->n_rows > MAX_DECISION_ROWS || decision->first_row > span->logit_rows ||
        decision->n_rows > span->logit_rows - decision->first_row) {
        return err_usage(err,
                         "span %" PRIu32 " decides on %" PRIu32 " rows from %" PRIu32
                         " on, but has %" PRIu32 " (at most %d)",
                         i, decision->n_rows, decision->first_row, span->logit_rows,
                         MAX_DECISION_ROWS);
    }
    return 0;
}

/* places: [n], or NULL; what of the span they are of. */
static int check_places(const struct packed *packed, const int32_t *places, uint32_t n, uint32_t i,
                        const char *what, struct err *err) {
    for (uint32_t at = 0; places != NULL && at < n; at++) {
        if (places[at] < -1 || places[at] >= packed->limits.places) {
            return err_usage(err,
                             "%s %" PRIu32 " of span %" PRIu32 " has place %" PRId32
                             ", but the engine was opened for %" PRId64,
                             what, at, i, places[at], packed->limits.places);
        }
    }
    return 0;
}

static int check_span(const struct packed *packed, const struct step *step, uint32_t i,
                      struct err *err) {
    const struct span *span = step->shape->spans[i];
    const bool splits = span->first_queries != span->queries && !packed->joins;
    if (!packed->features && (span->queries == 0 || splits || span->value_rows > 0)) {
        return err_usage(err,
                         "span %" PRIu32 " has no queries, splits its first layer or compares "
                         "values, and the step graph keeps no features",
                         i);
    }
    if ((span->exact != 0) != packed->exact || (span->exact && span->select_rows > 0)) {
        return err_usage(err, "span %" PRIu32 " is %s, but the step graph is %s", i,
                         span->exact ? "exact" : "not exact", packed->exact ? "exact" : "not");
    }
    const struct step_part *part = &step->parts[i];
    if (check_positions(packed, step, i, err) != 0 || check_rows(step, i, err) != 0 ||
        check_places(packed, part->row_places, span->logit_rows, i, "row", err) != 0 ||
        check_places(packed, part->token_places, stream_tokens(span), i, "token", err) != 0) {
        return err_status(err);
    }
    if (packed->exact) {
        return check_pages(packed, step, i, err);
    }
    if (packed->features && check_run(step, i, err) != 0) {
        return err_status(err);
    }
    if (span->select_rows > 0 && check_selection(packed, step, i, err) != 0) {
        return err_status(err);
    }
    if (span->attended_keys > 0 && check_pattern(packed, step, i, err) != 0) {
        return err_status(err);
    }
    return check_store(packed, step, i, err);
}

static int check_shape(const struct packed *packed, const struct step *step, struct err *err) {
    const struct step_shape *shape = step->shape;
    const struct step_limits *limits = &packed->limits;
    if (shape->spans == NULL || shape->n_spans == 0 || shape->n_spans > limits->max_requests) {
        return err_usage(err, "a step of %" PRIu32 " spans, but 1 to %" PRIu32 " are run",
                         shape->n_spans, limits->max_requests);
    }
    struct step_shape sums;
    shape_clear(&sums);
    for (uint32_t i = 0; i < shape->n_spans; i++) {
        shape_add(sums.sym, shape->spans[i], 1);
    }
    for (int symbol = 0; symbol < SYM_COUNT; symbol++) {
        if (sums.sym[symbol] != shape->sym[symbol]) {
            return err_usage(err, "the shape says %s %" PRId64 ", but its spans add up to %" PRId64,
                             symbol_names[symbol], shape->sym[symbol], sums.sym[symbol]);
        }
    }
    if (packed->features && sums.sym[SYM_FIRST_TOKENS] > limits->max_stream_tokens) {
        return err_usage(err,
                         "a step over canvases of %" PRId64 " tokens is beyond the %" PRIu32
                         " that the engine was opened for",
                         sums.sym[SYM_FIRST_TOKENS], limits->max_stream_tokens);
    }
    if (sums.sym[SYM_TOKENS] > limits->max_tokens ||
        sums.sym[SYM_LOGIT_ROWS] > limits->max_logit_rows) {
        return err_usage(err,
                         "a step of %" PRId64 " tokens and %" PRId64 " logit rows is beyond the "
                         "%" PRIu32 " and %" PRIu32 " that the engine was opened for",
                         sums.sym[SYM_TOKENS], sums.sym[SYM_LOGIT_ROWS], limits->max_tokens,
                         limits->max_logit_rows);
    }
    return 0;
}

int packed_check(const struct packed *packed, const struct step *step, struct err *err) {
    int status = check_shape(packed, step, err);
    for (uint32_t i = 0; status == 0 && i < step->shape->n_spans; i++) {
        status = check_span(packed, step, i, err);
    }
    return status;
}
