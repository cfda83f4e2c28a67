/* No cache: every step runs the whole canvas (LLaDA's own generate loop, arXiv 2502.09992). */
#include "sim/policy/cache/cache.h"

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)state;
    (void)memory;
    *rows = (struct row_sets){.kind = ROW_NONE};
    rows_run(rows, 0, request->canvas_tokens);
    return UINT32_MAX;
}

const struct cache_policy cache_none = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .name = "none",
               .doc = "every step runs the whole canvas; nothing is kept"},
    .plan = plan,
};
