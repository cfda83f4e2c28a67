/* Fast-dLLM's prefix cache: one pass over the canvas at the start of a block keeps the KV before
 * it; later steps run the block and everything behind it (arXiv 2505.22618, section 3.2). */
#include "sim/cache/cache.h"

static uint32_t plan(const void *state, const struct request *request, struct span *span) {
    (void)state;
    if (request->step_in_block == 0) {
        *span = (struct span){.phase = PHASE_REFRESH, .queries = request->canvas_tokens};
    } else {
        *span = (struct span){.phase = PHASE_REUSE,
                              .queries = request->canvas_tokens - request->block_start,
                              .context = request->block_start};
    }
    span->first_queries = span->logit_rows = span->queries;
    return request->step_in_block == 0 ? 1 : UINT32_MAX;
}

static uint32_t rows_held(const void *state, const struct request *request) {
    (void)state;
    return request->canvas_tokens;
}

const struct cache_policy cache_prefix = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .name = "prefix",
               .doc = "KV before the block is kept; the suffix is recomputed in every step"},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_BEFORE_BLOCK,
    .plan = plan,
    .rows_held = rows_held,
};
