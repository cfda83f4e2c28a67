/* Fast-dLLM's dual cache: KV of the whole canvas is renewed once per block; the other steps run the
 * block alone against it, so the suffix is stale by up to a block (arXiv 2505.22618, section 3.2).
 */
#include "sim/cache/cache.h"

static uint32_t plan(const void *state, const struct request *request, struct span *span) {
    (void)state;
    if (request->step_in_block == 0) {
        *span = (struct span){.phase = PHASE_REFRESH, .queries = request->canvas_tokens};
    } else {
        *span = (struct span){.phase = PHASE_REUSE,
                              .queries = request->block_length,
                              .context = request->canvas_tokens - request->block_length};
    }
    span->first_queries = span->logit_rows = span->queries;
    return request->step_in_block == 0 ? 1 : UINT32_MAX;
}

static uint32_t rows_held(const void *state, const struct request *request) {
    (void)state;
    return request->canvas_tokens;
}

const struct cache_policy cache_dual = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .name = "dual",
               .doc = "KV of the whole canvas, renewed once per block; the suffix goes stale"},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_OUTSIDE_BLOCK,
    .plan = plan,
    .rows_held = rows_held,
};
