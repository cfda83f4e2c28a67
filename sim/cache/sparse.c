#include "sim/cache/sparse.h"

const struct param sparse_params[SPARSE_N_PARAMS] = {
    {"retention", PARAM_F64, 0, "1", "0.5", 0.001, 1, NULL,
     offsetof(struct sparse_state, retention), "share of the context rows kept"},
    {"delay_steps", PARAM_U32, 0, "steps", "1", 0, 64, NULL,
     offsetof(struct sparse_state, delay_steps),
     "full passes of a block before the one that selects"},
    {"pool_kernel", PARAM_U32, 0, "tokens", "3", 1, 63, NULL,
     offsetof(struct sparse_state, pool_kernel), "width of the max-pool over scores"},
};

uint32_t sparse_rows_kept(const struct sparse_state *state, uint32_t rows) {
    uint32_t kept = (uint32_t)(state->retention * rows);
    return kept > 0 ? kept : 1;
}

uint32_t sparse_plan(const void *opaque, const struct request *request, struct span *span) {
    const struct sparse_state *state = opaque;
    uint32_t context = request->canvas_tokens - request->block_length;
    if (request->step_in_block <= state->delay_steps || context == 0) {
        *span = (struct span){.phase = PHASE_REFRESH, .queries = request->canvas_tokens};
        if (request->step_in_block == state->delay_steps && context > 0) {
            span->select_rows = context;
            span->pack_rows = sparse_rows_kept(state, context);
        }
    } else {
        *span = (struct span){.phase = PHASE_REUSE,
                              .queries = request->block_length,
                              .context = sparse_rows_kept(state, context)};
    }
    span->first_queries = span->logit_rows = span->queries;
    return request->step_in_block <= state->delay_steps ? 1 : UINT32_MAX;
}
