/* A cache policy of your own: a starting point. It renews the KV of the whole canvas every
 * `interval_steps` steps of a block, and in between runs the block alone against it.
 *
 * The rules (sim/policy/rows.h, sim/policy/cache/cache.h): the answer is a pure function of the
 * request; every field of it is set; it holds for as many steps as `plan` returns, unless the block
 * ends before. What is kept and does not run is read, so it stays the same until all of it runs
 * again.
 *
 * This one is for models that see their whole canvas. For block-causal and autoregressive ones a
 * policy answers with ROW_EXACT and plans prefills and commit passes besides:
 * sim/policy/cache/exact.c.
 */
#include "sim/policy/cache/cache.h"

struct state {
    uint32_t interval_steps;
};

static const struct param params[] = {
    {"interval_steps", PARAM_U32, 0, "steps", "8", 1, 1e6, NULL,
     offsetof(struct state, interval_steps), "steps of a block between two refreshes"},
};

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    uint32_t since_refresh = window_steps(request) % state->interval_steps;
    uint32_t canvas = request->canvas_tokens;
    const struct range block = {window_first(request), window_end(request)};
    (void)memory; /* nothing is remembered of a request */
    *rows = (struct row_sets){
        .kind = ROW_KV, .keep = {{0, block.first}, {block.end, canvas}}, .held = canvas};
    rows_run(rows, since_refresh == 0 ? 0 : block.first, since_refresh == 0 ? canvas : block.end);
    return since_refresh == 0 ? 1 : state->interval_steps - since_refresh;
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
    .plan = plan,
};
