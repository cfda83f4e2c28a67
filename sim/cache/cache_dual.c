/* Fast-dLLM's dual cache: KV of the whole canvas is renewed once per block; the other steps run the
 * block alone against it, so the suffix is stale by up to a block (arXiv 2505.22618, section 3.2).
 */
#include "sim/cache/cache.h"

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    uint32_t start = request->block_start, end = start + request->block_length;
    bool renews = request->step_in_block == 0;
    (void)state;
    (void)memory;
    *rows = (struct row_sets){.kind = ROW_KV,
                              .keep = {{0, start}, {end, request->canvas_tokens}},
                              .held = request->canvas_tokens};
    rows_run(rows, renews ? 0 : start, renews ? request->canvas_tokens : end);
    return renews ? 1 : UINT32_MAX;
}

const struct cache_policy cache_dual = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .name = "dual",
               .doc = "KV of the whole canvas, renewed once per block; the suffix goes stale"},
    .plan = plan,
};
