/* A cache policy of your own: a starting point. It renews the KV of the whole canvas every
 * `interval_steps` steps of a block, and in between runs the block alone against it.
 *
 * The rules (sim/cache/cache.h): both callbacks are pure functions of the request; every field of
 * the span is set (exact, kept_queries and kept_keys are 0 here); context never exceeds rows_held;
 * the span holds for as many steps as `plan` returns, unless the block ends before.
 *
 * This one is for models that see their whole canvas. For block-causal and autoregressive ones a
 * policy says KEEPS_EXACT and plans prefills and commit passes besides: sim/policy/cache_exact.c.
 */
#include "sim/cache/cache.h"

struct state {
    uint32_t interval_steps;
};

static const struct param params[] = {
    {"interval_steps", PARAM_U32, 0, "steps", "8", 1, 1e6, NULL,
     offsetof(struct state, interval_steps), "steps of a block between two refreshes"},
};

static uint32_t plan(const void *opaque, const struct request *request, struct span *span) {
    const struct state *state = opaque;
    uint32_t since_refresh = request->step_in_block % state->interval_steps;
    uint32_t canvas = request->canvas_tokens, block = request->block_length;
    if (since_refresh == 0) {
        *span = (struct span){.phase = PHASE_REFRESH, .queries = canvas};
    } else {
        *span = (struct span){.phase = PHASE_REUSE, .queries = block, .context = canvas - block};
    }
    span->first_queries = span->logit_rows = span->queries;
    return since_refresh == 0 ? 1 : state->interval_steps - since_refresh;
}

static uint32_t rows_held(const void *state, const struct request *request) {
    (void)state;
    return request->canvas_tokens;
}

const struct cache_policy unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "interval",
               .doc = "KV of the canvas, renewed every few steps; knows nothing of what changed",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_OUTSIDE_BLOCK,
    .plan = plan,
    .rows_held = rows_held,
};
