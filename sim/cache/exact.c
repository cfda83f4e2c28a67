#include "sim/cache/exact.h"

/* Nothing of the block is decided. */
static bool is_untouched(const struct request *request) {
    return request->masked_in_block == request->block_length;
}

/* One token: the query that decides on it, behind what is cached. */
static uint32_t plan_token(const struct request *request, struct span *span) {
    uint32_t missing =
        request->masked_in_block > 0 ? request->block_start - request->cached_tokens : 0;
    *span = (struct span){.phase = missing > 1 ? PHASE_PREFILL : PHASE_REUSE,
                          .queries = missing,
                          .first_queries = missing,
                          .context = request->cached_tokens,
                          .logit_rows = missing > 0,
                          .exact = 1};
    return 1;
}

uint32_t exact_plan(const void *opaque, const struct request *request, struct span *span) {
    const struct exact_state *state = opaque;
    if (request->causal == SEES_TOKENS) {
        return plan_token(request, span);
    }
    uint32_t missing = request->block_start > request->cached_tokens
                           ? request->block_start - request->cached_tokens
                           : 0;
    if (missing > 0) {
        *span = (struct span){.phase = PHASE_PREFILL,
                              .queries = missing,
                              .first_queries = missing,
                              .context = request->cached_tokens,
                              .logit_rows = request->shifted != 0 && is_untouched(request),
                              .exact = 1};
        return 1;
    }
    uint32_t queries = request->uncached_in_block;
    bool decides = request->masked_in_block > 0;
    bool is_last = exact_is_last(request);
    if (!decides && is_last && !state->commit_last) {
        queries = 0;
    }
    uint32_t yields = request->shifted != 0 && !is_last && queries == request->block_length;
    *span = (struct span){.phase = decides ? PHASE_REUSE : PHASE_COMMIT,
                          .queries = queries,
                          .first_queries = queries,
                          .context = exact_block_end(request) - request->uncached_in_block,
                          .logit_rows = decides || state->commit_logits ? queries : yields,
                          .exact = 1};
    return queries == request->block_length && decides ? UINT32_MAX : 1;
}

uint32_t exact_rows_held(const void *opaque, const struct request *request) {
    const struct exact_state *state = opaque;
    if (request->causal == SEES_TOKENS) {
        return request->block_start;
    }
    uint64_t rows =
        exact_block_end(request) + (uint64_t)state->ahead_blocks * request->block_tokens;
    return rows < request->canvas_tokens ? (uint32_t)rows : request->canvas_tokens;
}
