/* Sparse-dLLM: one set of retained rows for all heads (arXiv 2508.02558). The retained rows and the
 * block under way are held as rows of plain KV. */
#include "sim/cache/sparse.h"

static uint32_t rows_held(const void *opaque, const struct request *request) {
    return sparse_rows_kept(opaque, request->canvas_tokens) + request->block_tokens;
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
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_CHOSEN_TOGETHER,
    .selects = 1,
    .plan = sparse_plan,
    .rows_held = rows_held,
};
