#include "sim/policy/cache/exact.h"

static uint32_t rows_held(const struct exact_state *state, const struct request *request) {
    if (request->causal == SEES_TOKENS) {
        return window_first(request);
    }
    uint64_t rows = window_end(request) + window_tokens_of(request, state->ahead_blocks);
    return rows < request->canvas_tokens ? (uint32_t)rows : request->canvas_tokens;
}

/* What is missing before the block; its last position is in the head where it decides on the
 * block's first. */
static void run_missing(const struct request *request, bool decides, struct row_sets *rows) {
    uint32_t start = window_first(request);
    rows_run(rows, request->cached_tokens, start);
    rows->head.first = decides ? start - 1 : start;
    rows->keep[0].end = start;
}

uint32_t exact_plan(const void *opaque, const struct request *request, struct row_sets *rows) {
    const struct exact_state *state = opaque;
    uint32_t start = window_first(request), end = window_end(request);
    bool decides = window_is_open(request);
    *rows = (struct row_sets){.kind = ROW_EXACT, .held = rows_held(state, request)};
    if (request->causal == SEES_TOKENS) {
        run_missing(request, decides, rows);
        rows->run.first = decides ? rows->run.first : start;
        return 1;
    }
    if (start > request->cached_tokens) {
        run_missing(request, window_lacks_row(request), rows);
        return 1;
    }
    bool is_last = exact_is_last(request), is_whole = window_uncached(request) == end - start;
    bool runs = decides || !is_last || state->commit_last;
    bool is_ahead = request->shifted != 0 && !is_last && window_uncached(request) > 0;
    rows_run(rows, runs ? start : end, end);
    rows->skips = runs;
    rows->keep[0].end = end;
    if (!decides && !state->commit_logits) {
        rows->head.first = is_ahead ? end - 1 : end;
    }
    return is_whole && decides ? UINT32_MAX : 1;
}
