/* Sparse-dLLM: one set of retained rows for all heads (arXiv 2508.02558). The retained rows and the
 * block under way are held as rows of plain KV. */
#include "sim/policy/cache/sparse.h"

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)memory;
    *rows = (struct row_sets){.chooser = CHOSEN_FOR_HEADS,
                              .held = sparse_rows_kept(state, request->canvas_tokens) +
                                      request->block_tokens};
    return sparse_plan(state, request, rows);
}

static uint32_t put_off(const void *state, const void *memory, const struct request *request,
                        struct row_sets *rows) {
    (void)memory;
    *rows = (struct row_sets){.chooser = CHOSEN_FOR_HEADS,
                              .held = sparse_rows_kept(state, request->canvas_tokens) +
                                      request->block_tokens};
    return sparse_put_off(state, request, rows);
}

const struct cache_policy cache_sparse_uniform = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct sparse_state),
               .name = "sparse-uniform",
               .doc = "the same retained rows for all heads (Sparse-dLLM)",
               .params = sparse_params,
               .n_params = SPARSE_N_PARAMS},
    .plan = plan,
    .put_off = put_off,
};
