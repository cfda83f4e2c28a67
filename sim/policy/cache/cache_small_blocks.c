/* Fast-dLLM v2's block cache (arXiv 2509.26328, section 3.3 and released code): until the first
 * position of a small block is decided, passes run the whole block and keep its keys and values;
 * the others run the small block alone against them and write its own anew. What is before the
 * block is exact. */
#include "sim/policy/cache/exact.h"
#include "sim/policy/cache/small_blocks.h"

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

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    uint32_t start = window_first(request);
    (void)memory;
    (void)exact_plan(state, request, rows);
    rows->settles = BLOCK_PARTS;
    bool in_small_block = state->block_cache && request->causal == SEES_BLOCKS &&
                          rows->run.first == start && window_masked(request) > 0 &&
                          window_passes(request) > 0 && !small_block_begins(&state->small, request);
    if (in_small_block) {
        rows_run(rows, start + small_block_start(&state->small, request),
                 start + small_block_end(&state->small, request));
        rows->skips = 0;
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
    .plan = plan,
};
