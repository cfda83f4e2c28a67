/* Refreshes in every second call, whatever the request says. */
#include "tests/plugins/bad.h"

static uint32_t calls;

static uint32_t plan(const void *state, const struct request *request, struct span *span) {
    (void)state;
    uint32_t queries = calls++ % 2 == 0 ? request->canvas_tokens : request->block_length;
    *span = (struct span){.phase = PHASE_REFRESH,
                          .queries = queries,
                          .first_queries = queries,
                          .logit_rows = queries};
    return 1;
}

static uint32_t rows_held(const void *state, const struct request *request) {
    (void)state;
    return request->canvas_tokens;
}

const struct cache_policy unmask_policy = {
    POLICY(POLICY_CACHE, cache_policy, "impure"),
    .row = CACHE_ROW_KV,
    .plan = plan,
    .rows_held = rows_held,
};
