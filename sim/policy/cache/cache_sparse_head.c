/* dLLM-Serve: every KV head keeps its own rows, packed densely as [heads, rL, D] for the life of
 * the request (arXiv 2512.17077, section 4.5). The cost is the uniform policy's; quality differs.
 */
#include "sim/policy/cache/sparse.h"

/* ceil(r L): the static budget that admission reserves. */
static uint32_t ceil_rows(const struct sparse_state *state, uint32_t rows) {
    uint32_t kept = (uint32_t)(state->retention * rows);
    return kept < state->retention * rows ? kept + 1 : kept;
}

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)memory;
    *rows = (struct row_sets){.chooser = CHOSEN_BY_HEAD,
                              .held = ceil_rows(state, request->canvas_tokens)};
    return sparse_plan(state, request, rows);
}

static uint32_t put_off(const void *state, const void *memory, const struct request *request,
                        struct row_sets *rows) {
    (void)memory;
    *rows = (struct row_sets){.chooser = CHOSEN_BY_HEAD,
                              .held = ceil_rows(state, request->canvas_tokens)};
    return sparse_put_off(state, request, rows);
}

const struct cache_policy cache_sparse_head = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct sparse_state),
               .name = "sparse-head",
               .doc = "each KV head retains its own rows, packed densely (dLLM-Serve)",
               .params = sparse_params,
               .n_params = SPARSE_N_PARAMS},
    .plan = plan,
    .put_off = put_off,
};
