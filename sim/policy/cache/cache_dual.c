/* Fast-dLLM's dual cache: KV of the whole canvas is renewed once per block; the other steps run the
 * block alone against it, so the suffix is stale by up to a block (arXiv 2505.22618, section 3.2).
 * With interval_steps it is renewed within a block as well, K_int of dLLM-Serve (arXiv 2512.17077,
 * section 2.3).
 */
#include "sim/policy/cache/renewal.h"

struct state {
    uint32_t interval_steps;
};

static const struct param params[] = {RENEWAL_PARAM(struct state)};

static void answer(const struct request *request, bool renews, struct row_sets *rows) {
    uint32_t start = window_first(request), end = window_end(request);
    *rows = (struct row_sets){.kind = ROW_KV,
                              .keep = {{0, start}, {end, request->canvas_tokens}},
                              .held = request->canvas_tokens};
    rows_run(rows, renews ? 0 : start, renews ? request->canvas_tokens : end);
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

const struct cache_policy cache_dual = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "dual",
               .doc = "KV of the whole canvas, renewed once per block; the suffix goes stale",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .plan = plan,
    .put_off = put_off,
};
