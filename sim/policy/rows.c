#include "sim/policy/rows.h"

#include "sim/policy/window.h"

static uint32_t settled(const struct row_sets *rows, const struct request *request) {
    return rows->skips ? window_length(request) - window_uncached(request) : 0;
}

static uint32_t kept_and_run(const struct row_sets *rows) {
    return range_common(rows->run, rows->keep[0]) + range_common(rows->run, rows->keep[1]);
}

int32_t rows_place(const struct row_sets *rows, uint32_t position) {
    if (range_has(rows->keep[0], position)) {
        return (int32_t)(position - rows->keep[0].first);
    }
    return range_has(rows->keep[1], position)
               ? (int32_t)(range_length(rows->keep[0]) + position - rows->keep[1].first)
               : -1;
}

uint32_t rows_in_block(const struct row_sets *rows, const struct request *request) {
    return window_length(request) - settled(rows, request);
}

/* Rows of a canvas age, and a step over all of it renews them, as does one that runs some and
 * chooses none of them by change. Exact rows are written once: what is before the active block,
 * then the block while something of it is masked, then the block in its final form. */
static enum phase phase_of(const struct row_sets *rows, const struct request *request,
                           uint32_t queries) {
    if (rows->kind != ROW_EXACT) {
        const uint32_t run = range_length(rows->run);
        if (rows->lead_layers > 0 && range_length(rows->head) == 0) {
            return PHASE_PREFILL;
        }
        bool renews = run == request->canvas_tokens ||
                      (rows->chooser == CHOSEN_BY_CHANGE && rows->n_chosen == 0 && run > 0);
        return renews ? PHASE_REFRESH : PHASE_REUSE;
    }
    if (rows->run.end <= window_first(request) && queries > 0) {
        return request->causal == SEES_TOKENS && queries == 1 ? PHASE_REUSE : PHASE_PREFILL;
    }
    return window_is_open(request) ? PHASE_REUSE : PHASE_COMMIT;
}

/* What continues after the layer where a policy evicts; prefills are not evicted from, and of a
 * commit pass nothing is. */
static void add_eviction(const struct request *request, struct span *span) {
    if (span->phase == PHASE_PREFILL || span->queries == 0) {
        return;
    }
    if (request->causal == SEES_TOKENS) {
        span->kept_queries = span->queries; /* a single token is never evicted */
        span->kept_keys = span->context + span->queries;
        return;
    }
    span->kept_queries = window_kept(request);
    span->kept_keys = window_first(request) + window_reach(request);
    if (window_masked(request) > 0) {
        span->logit_rows = span->logit_rows > 0 ? window_kept(request) : 0;
    }
}

/* A pattern is chosen by scores of all keys, and again of the output's part among themselves
 * (SparseD's released code). */
static uint32_t attended(const struct row_sets *rows, const struct request *request) {
    const uint32_t canvas = request->canvas_tokens;
    return rows->n_chosen > 0 ? 2 * canvas - rows->pattern.rest * rows->pattern.tokens
                              : rows->attends;
}

/* Positions of the window after the last one that any pass has run: their rows are none. */
static uint32_t unseen(const struct row_sets *rows, const struct request *request) {
    return rows->run.end > window_first(request) ? window_length(request) - window_seen(request)
                                                 : 0;
}

void rows_span(const struct row_sets *rows, const struct request *request, struct span *span) {
    uint32_t run = range_length(rows->run), n_settled = settled(rows, request);
    bool picks = rows->chooser == CHOSEN_BY_CHANGE && rows->n_chosen > 0;
    uint32_t queries = picks ? rows->n_chosen : run - n_settled, written = kept_and_run(rows);
    uint32_t head = range_length(rows->head);
    *span = (struct span){
        .phase = phase_of(rows, request, queries),
        .queries = queries,
        .first_queries = rows->kind == ROW_FEATURES ? request->canvas_tokens : queries,
        .context = rows_kept(rows) - written + (run - queries) - unseen(rows, request),
        .logit_rows = head >= window_length(request) ? head - n_settled : head,
        .value_rows = picks ? run : 0,
        .exact = rows->kind == ROW_EXACT,
    };
    if (rows->lead_layers > 0) {
        span->first_queries = range_length(rows->lead);
        span->lead_keys = span->context + span->queries;
    }
    if (rows_are_chosen(rows)) {
        span->context = written > 0 ? 0 : rows->n_chosen;
        span->select_rows = written;
        span->pack_rows = written > 0 ? rows->n_chosen : 0;
    }
    if (rows->kind == ROW_PATTERN) {
        span->attended_keys = attended(rows, request);
    }
    if (rows->run.first > window_first(request) && rows->kind == ROW_EXACT) {
        span->part_start = rows->run.first - window_first(request);
    }
    if (rows->chooser == CHOSEN_BY_POLICY) {
        add_eviction(request, span);
    }
}

/* ---- what a policy may answer ---- */

static bool range_within(struct range inner, struct range outer) {
    return inner.first >= outer.first && inner.end <= outer.end;
}

static int check_range(const char *name, struct range range, const struct request *request,
                       struct err *err) {
    REFUSE_UNLESS(range.first <= range.end && range.end <= request->canvas_tokens,
                  "sets rows.%s to [%u, %u) on a canvas of %u tokens", name, range.first, range.end,
                  request->canvas_tokens);
    return 0;
}

static int check_ranges(const struct row_sets *rows, const struct request *request,
                        struct err *err) {
    if (check_range("run", rows->run, request, err) != 0 ||
        check_range("head", rows->head, request, err) != 0 ||
        check_range("lead", rows->lead, request, err) != 0 ||
        check_range("keep[0]", rows->keep[0], request, err) != 0 ||
        check_range("keep[1]", rows->keep[1], request, err) != 0) {
        return (int)err->kind;
    }
    REFUSE_UNLESS(range_length(rows->keep[1]) == 0 || rows->keep[0].end <= rows->keep[1].first,
                  "keeps [%u, %u) and then [%u, %u), which is out of order", rows->keep[0].first,
                  rows->keep[0].end, rows->keep[1].first, rows->keep[1].end);
    return 0;
}

/* Where a kernel chooses: of what is kept, while all of it runs, or of what runs. */
static int check_choice(const struct row_sets *rows, struct err *err) {
    if (rows_are_chosen(rows)) {
        uint32_t kept = rows_kept(rows), written = kept_and_run(rows);
        REFUSE_UNLESS(rows->n_chosen <= kept && (rows->n_chosen > 0 || kept == 0),
                      "chooses %u of %u rows", rows->n_chosen, kept);
        REFUSE_UNLESS(written == 0 || written == kept,
                      "chooses of %u rows in a step that runs %u of them", kept, written);
        return 0;
    }
    uint32_t most = rows->chooser == CHOSEN_BY_CHANGE || rows->chooser == CHOSEN_BY_SCORE
                        ? range_length(rows->run)
                        : 0;
    REFUSE_UNLESS(rows->n_chosen <= most, "chooses %u of %u positions that run", rows->n_chosen,
                  most);
    return 0;
}

static int check_pattern(const struct row_sets *rows, const struct request *request,
                         struct err *err) {
    const struct row_pattern *pattern = &rows->pattern;
    REFUSE_UNLESS(pattern->tokens > 0, "attends by a pattern of blocks of 0 tokens");
    const uint32_t n = pattern_blocks(pattern, request->canvas_tokens);
    REFUSE_UNLESS(pattern->rest < n, "says that the output begins with block %u of %u",
                  pattern->rest, n);
    REFUSE_UNLESS(pattern->keep > 0 && pattern->keep <= n && pattern->keep_rest > 0 &&
                      pattern->keep_rest <= n - pattern->rest,
                  "keeps %u blocks of %u and %u of the output's %u", pattern->keep, n,
                  pattern->keep_rest, n - pattern->rest);
    REFUSE_UNLESS(pattern->scores <= PATTERN_HEADS,
                  "sets rows.pattern.scores to %u, which is no pattern_scores", pattern->scores);
    const uint64_t words = (uint64_t)n * pattern_words(n);
    REFUSE_UNLESS(rows->held >= words, "holds %u rows for a pattern of %u blocks", rows->held, n);
    return 0;
}

/* A request's shared prefix runs once by itself; then every step runs all after it, and those that
 * renew what is kept run all in the layers that do not lead. */
static int check_leading(const struct row_sets *rows, const struct request *request,
                         struct err *err) {
    const uint32_t prefix = request->prefix_tokens, canvas = request->canvas_tokens;
    const struct range lead = rows->lead, run = rows->run;
    REFUSE_UNLESS(rows->kind == ROW_KV && rows->chooser == CHOSEN_BY_NOBODY,
                  "sets rows.lead_layers to %u with rows of kind %u and chooser %u",
                  rows->lead_layers, rows->kind, rows->chooser);
    REFUSE_UNLESS(rows->keep[0].first == 0 && rows->keep[0].end == rows_kept(rows) &&
                      (rows_kept(rows) == prefix || rows_kept(rows) == 0),
                  "keeps %u rows, of a shared prefix of %u tokens", rows_kept(rows), prefix);
    const bool alone = range_length(rows->head) == 0;
    const bool is_known = request->cached_tokens >= prefix;
    const bool fits =
        alone ? run.first == 0 && run.end == prefix && lead.first == 0 && lead.end == prefix &&
                    !is_known
              : run.end == canvas && lead.end == canvas && run.first <= lead.first &&
                    (run.first == 0 || run.first == rows_kept(rows)) &&
                    (lead.first == run.first || (lead.first == rows_kept(rows) && is_known));
    REFUSE_UNLESS(fits,
                  "runs [%u, %u) in leading layers and [%u, %u) in the others, of a shared prefix "
                  "of %u tokens that is %s",
                  lead.first, lead.end, run.first, run.end, prefix,
                  is_known ? "known" : "not known");
    return 0;
}

static int check_canvas(const struct row_sets *rows, const struct request *request,
                        struct err *err) {
    const struct range block =
        range_deciding(window_range(request), rows_are_before(rows, request));
    if (rows->lead_layers > 0 && check_leading(rows, request, err) != 0) {
        return (int)err->kind;
    }
    if (rows->lead_layers > 0 && range_length(rows->head) == 0) {
        return 0;
    }
    const char *of = rows_are_before(rows, request) ? "rows that decide on the active block,"
                                                    : "whole active block";
    REFUSE_UNLESS(range_within(block, rows->run) || rows->kind == ROW_FEATURES,
                  "runs [%u, %u) without the %s [%u, %u)", rows->run.first, rows->run.end, of,
                  block.first, block.end);
    REFUSE_UNLESS(range_within(block, rows->head),
                  "puts [%u, %u) through the head without the %s [%u, %u)", rows->head.first,
                  rows->head.end, of, block.first, block.end);
    REFUSE_UNLESS(rows->kind == ROW_FEATURES || range_within(rows->head, rows->run),
                  "puts [%u, %u) through the head but runs [%u, %u)", rows->head.first,
                  rows->head.end, rows->run.first, rows->run.end);
    REFUSE_UNLESS(rows->kind != ROW_NONE || (rows_kept(rows) == 0 && rows->held == 0),
                  "keeps %u rows and holds %u though its kind of row is ROW_NONE", rows_kept(rows),
                  rows->held);
    REFUSE_UNLESS(rows->chooser != CHOSEN_BY_POLICY, "evicts positions but keeps no exact rows");
    REFUSE_UNLESS(rows->settles != BLOCK_PARTS, "runs a block in parts but keeps no exact rows");
    if (rows->kind == ROW_PATTERN) {
        REFUSE_UNLESS(range_length(rows->run) == request->canvas_tokens && rows_kept(rows) == 0,
                      "runs [%u, %u) and keeps %u rows where it attends by a pattern",
                      rows->run.first, rows->run.end, rows_kept(rows));
        return check_pattern(rows, request, err);
    }
    REFUSE_UNLESS(rows->settles == BLOCK_WHOLE || rows_kept(rows) == request->canvas_tokens,
                  "leaves positions out but keeps %u rows of a canvas of %u tokens",
                  rows_kept(rows), request->canvas_tokens);
    return 0;
}

/* What is missing before the block runs first, alone or, where it is the block before, with it. */
static int check_missing(const struct row_sets *rows, const struct request *request,
                         struct err *err) {
    const struct range block = window_range(request);
    bool crosses = rows->run.end > block.first;
    bool may_cross = window_block(request) > 0 &&
                     request->cached_tokens >= window_before(request) &&
                     !window_begins_decided(request) && request->causal != SEES_TOKENS;
    uint32_t end = crosses && may_cross ? block.end : block.first;
    REFUSE_UNLESS(rows->run.first == request->cached_tokens && rows->run.end == end,
                  "runs [%u, %u) where the rows of [%u, %u) are missing", rows->run.first,
                  rows->run.end, request->cached_tokens, block.first);
    REFUSE_UNLESS(rows->skips == 0, "leaves positions of the block out of a prefill");
    REFUSE_UNLESS(!crosses || range_within(block, rows->head),
                  "puts [%u, %u) through the head without the whole active block [%u, %u)",
                  rows->head.first, rows->head.end, block.first, block.end);
    return 0;
}

/* A part of the block holds its first masked position, and the others have been run before. */
static int check_part(const struct row_sets *rows, const struct request *request, struct err *err) {
    const struct range block = window_range(request);
    uint32_t first_masked = block.first + window_known(request);
    if (range_length(rows->run) == window_length(request)) {
        return 0;
    }
    REFUSE_UNLESS(rows->settles == BLOCK_PARTS && !rows->skips,
                  "runs [%u, %u) of the block [%u, %u) though it runs whole blocks",
                  rows->run.first, rows->run.end, block.first, block.end);
    REFUSE_UNLESS(window_masked(request) > 0 && window_passes(request) > 0,
                  "runs [%u, %u) of the block [%u, %u) where %s", rows->run.first, rows->run.end,
                  block.first, block.end,
                  window_masked(request) == 0 ? "none is masked" : "the others have no rows");
    REFUSE_UNLESS(range_has(rows->run, first_masked),
                  "runs [%u, %u) of a block whose first masked position is %u", rows->run.first,
                  rows->run.end, first_masked);
    return 0;
}

static int check_exact(const struct row_sets *rows, const struct request *request,
                       struct err *err) {
    const struct range block = window_range(request);
    bool decides = window_is_open(request), in_block = rows->run.end > block.first;
    bool is_missing = request->cached_tokens < block.first;
    if (range_length(rows->run) == settled(rows, request) && !decides && !is_missing) {
        return 0;
    }
    bool by_token = request->causal == SEES_TOKENS;
    if (is_missing) {
        if (check_missing(rows, request, err) != 0) {
            return (int)err->kind;
        }
    } else {
        REFUSE_UNLESS(range_length(rows->run) > 0 && range_within(rows->run, block) && !by_token,
                      "runs [%u, %u), which is not of the block [%u, %u)", rows->run.first,
                      rows->run.end, block.first, block.end);
        REFUSE_UNLESS(window_uncached(request) > 0, "runs [%u, %u) though every row is final",
                      rows->run.first, rows->run.end);
        if (check_part(rows, request, err) != 0) {
            return (int)err->kind;
        }
        REFUSE_UNLESS(!decides ||
                          (rows->head.first == rows->run.first && rows->head.end == rows->run.end),
                      "puts [%u, %u) through the head where it decides on [%u, %u)",
                      rows->head.first, rows->head.end, rows->run.first, rows->run.end);
    }
    REFUSE_UNLESS(range_within(rows->head, rows->run),
                  "puts [%u, %u) through the head but runs [%u, %u)", rows->head.first,
                  rows->head.end, rows->run.first, rows->run.end);
    REFUSE_UNLESS(!by_token || !decides || range_length(rows->head) > 0,
                  "puts nothing through the head where a token is decided");
    uint32_t kept = in_block ? block.end : block.first;
    REFUSE_UNLESS(rows->keep[0].first == 0 && rows->keep[0].end == kept && rows_kept(rows) == kept,
                  "keeps %u rows from %u on, not the %u of what is before the block%s",
                  rows_kept(rows), rows->keep[0].first, kept, in_block ? " and of it" : "");
    return 0;
}

/* What goes with one kind of row or chooser alone. */
static int check_pairs(const struct row_sets *rows, const struct request *request,
                       struct err *err) {
    REFUSE_UNLESS((rows->evict_layer > 0) == (rows->chooser == CHOSEN_BY_POLICY),
                  "sets rows.evict_layer to %u with chooser %u", rows->evict_layer, rows->chooser);
    REFUSE_UNLESS(rows->lead_layers > 0 || (rows->lead.first == 0 && rows->lead.end == 0),
                  "sets rows.lead to [%u, %u) without leading layers", rows->lead.first,
                  rows->lead.end);
    REFUSE_UNLESS(rows->recent == 0 || (rows->settles == BLOCK_DELAYED && rows->kind == ROW_KV),
                  "sets rows.recent to %u and settles by rule %u", rows->recent, rows->settles);
    REFUSE_UNLESS((rows->chooser == CHOSEN_BY_SCORE) == (rows->kind == ROW_PATTERN),
                  "names chooser %u for rows of kind %u: CHOSEN_BY_SCORE goes with ROW_PATTERN",
                  rows->chooser, rows->kind);
    REFUSE_UNLESS(rows->attends <= (rows->kind == ROW_PATTERN ? request->canvas_tokens : 0),
                  "attends to %u keys of a canvas of %u tokens, with rows of kind %u",
                  rows->attends, request->canvas_tokens, rows->kind);
    REFUSE_UNLESS((rows->pattern.tokens > 0) == (rows->kind == ROW_PATTERN),
                  "has a pattern of blocks of %u tokens with rows of kind %u", rows->pattern.tokens,
                  rows->kind);
    return 0;
}

int rows_check(const struct row_sets *rows, const struct request *request, struct err *err) {
    REFUSE_UNLESS(rows->kind <= ROW_PATTERN, "has rows of kind %u, which is no row_kind",
                  rows->kind);
    REFUSE_UNLESS(rows->chooser <= CHOSEN_BY_SCORE, "names chooser %u, which is no row_chooser",
                  rows->chooser);
    REFUSE_UNLESS(rows->settles <= BLOCK_PARTS, "settles by rule %u, which is no block_cache",
                  rows->settles);
    REFUSE_UNLESS(rows->skips <= 1, "sets rows.skips to %u, neither 0 nor 1", rows->skips);
    REFUSE_UNLESS(!rows_are_chosen(rows) || rows->kind == ROW_KV,
                  "has heads choose among rows of kind %u, which is not ROW_KV", rows->kind);
    if (check_ranges(rows, request, err) != 0 || check_choice(rows, err) != 0 ||
        (rows->kind == ROW_EXACT ? check_exact : check_canvas)(rows, request, err) != 0 ||
        check_pairs(rows, request, err) != 0) {
        return (int)err->kind;
    }
    uint32_t kept = rows_are_chosen(rows) ? rows->n_chosen : rows_kept(rows);
    REFUSE_UNLESS(kept <= rows->held, "keeps %u rows but holds %u", kept, rows->held);
    return 0;
}
