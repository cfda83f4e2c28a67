/* Fast-dLLM's prefix cache: one pass over the canvas at the start of a block keeps the KV before
 * it; later steps run the block and everything after it (arXiv 2505.22618, section 3.2). With
 * interval_steps such passes return within a block. */
#include "sim/policy/cache/renewal.h"

struct state {
    uint32_t interval_steps;
};

static const struct param params[] = {RENEWAL_PARAM(struct state)};

static void answer(const struct request *request, bool renews, struct row_sets *rows) {
    *rows = (struct row_sets){
        .kind = ROW_KV, .keep = {{0, window_first(request)}}, .held = request->canvas_tokens};
    rows_run(rows, renews ? 0 : window_first(request), request->canvas_tokens);
}

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    (void)memory;
    return renewal_plan(request, state->interval_steps, answer, rows);
}

static uint32_t put_off(const void *opaque, const void *memory, const struct request *request,
                        struct row_sets *rows) {
    const struct state *state = opaque;
    (void)memory;
    return renewal_put_off(request, state->interval_steps, answer, rows);
}

const struct cache_policy cache_prefix = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "prefix",
               .doc = "KV before the block is kept; the suffix is recomputed in every step",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .plan = plan,
    .put_off = put_off,
};
