/* No cache: every step runs the whole canvas (LLaDA's own generate loop, arXiv 2502.09992). */
#include "sim/cache/cache.h"

static uint32_t plan(const void *state, const struct request *request, struct span *span) {
    (void)state;
    *span = (struct span){
        .phase = PHASE_REFRESH,
        .queries = request->canvas_tokens,
        .first_queries = request->canvas_tokens,
        .logit_rows = request->canvas_tokens,
    };
    return UINT32_MAX;
}

static uint32_t rows_held(const void *state, const struct request *request) {
    (void)state;
    (void)request;
    return 0;
}

const struct cache_policy cache_none = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .name = "none",
               .doc = "every step runs the whole canvas; nothing is kept"},
    .row = CACHE_ROW_NONE,
    .plan = plan,
    .rows_held = rows_held,
};
