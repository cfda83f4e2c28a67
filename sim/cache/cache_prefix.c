/* Fast-dLLM's prefix cache: one pass over the canvas at the start of a block keeps the KV before
 * it; later steps run the block and everything behind it (arXiv 2505.22618, section 3.2). */
#include "sim/cache/cache.h"

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    bool renews = request->step_in_block == 0;
    (void)state;
    (void)memory;
    *rows = (struct row_sets){
        .kind = ROW_KV, .keep = {{0, request->block_start}}, .held = request->canvas_tokens};
    rows_run(rows, renews ? 0 : request->block_start, request->canvas_tokens);
    return renews ? 1 : UINT32_MAX;
}

const struct cache_policy cache_prefix = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .name = "prefix",
               .doc = "KV before the block is kept; the suffix is recomputed in every step"},
    .plan = plan,
};
