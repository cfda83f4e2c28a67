#include "sim/policy/cache/sparse.h"

const struct param sparse_params[SPARSE_N_PARAMS] = {
    {"retention", PARAM_F64, 0, "1", "0.5", 0.001, 1, NULL,
     offsetof(struct sparse_state, retention), "share of the context rows kept"},
    {"delay_steps", PARAM_U32, 0, "steps", "1", 0, 64, NULL,
     offsetof(struct sparse_state, delay_steps),
     "full passes of a block before the one that selects"},
    RENEWAL_PARAM(struct sparse_state),
};

uint32_t sparse_rows_kept(const struct sparse_state *state, uint32_t rows) {
    uint32_t kept = (uint32_t)(state->retention * rows);
    return kept > 0 ? kept : 1;
}

uint32_t sparse_plan(const struct sparse_state *state, const struct request *request,
                     struct row_sets *rows) {
    uint32_t start = window_first(request), end = window_end(request);
    uint32_t canvas = request->canvas_tokens, context = canvas - window_length(request);
    uint32_t reuses = renewal_in(request, state->interval_steps), step = window_steps(request);
    if (request->overdue_steps > 0) {
        step = state->delay_steps; /* one full pass, which selects */
    } else if (state->interval_steps > 0) {
        step %= state->interval_steps;
    }
    bool renews = step <= state->delay_steps;
    rows->kind = ROW_KV;
    rows_run(rows, renews ? 0 : start, renews ? canvas : end);
    if (step >= state->delay_steps && context > 0) {
        rows->keep[0] = (struct range){0, start};
        rows->keep[1] = (struct range){end, canvas};
        rows->n_chosen = sparse_rows_kept(state, context);
    }
    return renews ? 1 : reuses;
}

uint32_t sparse_put_off(const struct sparse_state *state, const struct request *request,
                        struct row_sets *rows) {
    uint32_t start = window_first(request), end = window_end(request);
    uint32_t canvas = request->canvas_tokens, context = canvas - window_length(request);
    const bool is_first = state->interval_steps > 0 && window_steps(request) > 0 &&
                          window_steps(request) % state->interval_steps == 0;
    rows->kind = ROW_KV;
    rows_run(rows, start, end);
    rows->keep[0] = (struct range){0, start};
    rows->keep[1] = (struct range){end, canvas};
    rows->n_chosen = sparse_rows_kept(state, context);
    return context > 0 && (is_first || request->overdue_steps > 0) ? state->interval_steps : 0;
}
