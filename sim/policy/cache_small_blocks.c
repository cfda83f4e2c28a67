/* Fast-dLLM v2's block cache (arXiv 2509.26328, section 3.3 and released code): the pass that
 * begins a small block runs the whole block and keeps its keys and values; the others run the small
 * block alone against them. What is before the block is exact. */
#include "sim/policy/exact.h"
#include "sim/policy/small_blocks.h"

struct state {
    struct exact_state exact;
    struct small_blocks small;
    bool block_cache;
};

static const struct param params[] = {
    EXACT_PARAMS,
    SMALL_BLOCKS_PARAM(struct state, small),
    {"block_cache", PARAM_BOOL, 0, "1", "on", 0, 1, NULL, offsetof(struct state, block_cache),
     "off: every pass runs the whole block"},
};

static uint32_t plan(const void *opaque, const struct request *request, struct span *span) {
    const struct state *state = opaque;
    (void)exact_plan(state, request, span);
    bool in_small_block = state->block_cache && span->phase == PHASE_REUSE &&
                          request->causal == SEES_BLOCKS && request->passes_in_block > 0 &&
                          !small_block_begins(&state->small, request);
    if (in_small_block) {
        uint32_t queries =
            small_block_end(&state->small, request) - small_block_start(&state->small, request);
        span->context += span->queries - queries;
        span->queries = span->first_queries = span->logit_rows = queries;
    }
    return 1;
}

const struct cache_policy cache_small_blocks = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "small-blocks",
               .doc = "exact KV; inside a block small blocks run alone against stale KV (Fast-dLLM "
                      "v2)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_EXACT,
    .plan = plan,
    .rows_held = exact_rows_held,
};
