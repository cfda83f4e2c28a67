/* Fast-dLLM's two caches (arXiv 2505.22618, section 3.2): a pass over the whole canvas at the start
 * of a block, whose keys and values the block's other steps reuse. With interval_steps such passes
 * return within a block, K_int of dLLM-Serve (arXiv 2512.17077, section 2.3).
 *
 * prefix: what is before the block is kept; later steps run the block and everything after it.
 * dual: all outside of the block is kept, so that the suffix is stale by up to a block. */
#include "sim/policy/cache/renewal.h"

struct state {
    uint32_t interval_steps;
};

static const struct param params[] = {RENEWAL_PARAM(struct state)};

/* What runs and stays; dual: of what is after the block, too. */
static void answer(const struct request *request, bool dual, bool renews, struct row_sets *rows) {
    const uint32_t first = window_first(request), end = window_end(request);
    const uint32_t canvas = request->canvas_tokens;
    *rows = (struct row_sets){.kind = ROW_KV, .keep = {{0, first}}, .held = canvas};
    if (dual) {
        rows->keep[1] = (struct range){end, canvas};
    }
    rows_run(rows, renews ? 0 : first, renews || !dual ? canvas : end);
}

static uint32_t plan(const struct state *state, const struct request *request, bool dual,
                     struct row_sets *rows) {
    const uint32_t reuses = renewal_in(request, state->interval_steps);
    answer(request, dual, reuses == 0, rows);
    return reuses == 0 ? 1 : reuses;
}

static uint32_t plan_prefix(const void *state, const void *memory, const struct request *request,
                            struct row_sets *rows) {
    (void)memory;
    return plan(state, request, false, rows);
}

static uint32_t plan_dual(const void *state, const void *memory, const struct request *request,
                          struct row_sets *rows) {
    (void)memory;
    return plan(state, request, true, rows);
}

/* A renewal can be put off by as many steps as lie between two, so that rows are at most twice as
 * old; a block's first one cannot. */
static uint32_t put_off(const struct state *state, const struct request *request, bool dual,
                        struct row_sets *rows) {
    answer(request, dual, false, rows);
    return window_steps(request) > 0 ? state->interval_steps : 0;
}

static uint32_t put_off_prefix(const void *state, const void *memory, const struct request *request,
                               struct row_sets *rows) {
    (void)memory;
    return put_off(state, request, false, rows);
}

static uint32_t put_off_dual(const void *state, const void *memory, const struct request *request,
                             struct row_sets *rows) {
    (void)memory;
    return put_off(state, request, true, rows);
}

#define FAST_DLLM(called, says)                                                                    \
    {                                                                                              \
        .abi = POLICY_ABI, .kind = POLICY_CACHE, .size = sizeof(struct cache_policy),              \
        .state_bytes = sizeof(struct state), .name = (called), .doc = (says), .params = params,    \
        .n_params = sizeof params / sizeof params[0]                                               \
    }

const struct cache_policy cache_prefix = {
    .policy =
        FAST_DLLM("prefix", "KV before the block is kept; the suffix is recomputed in every step"),
    .plan = plan_prefix,
    .put_off = put_off_prefix,
};

const struct cache_policy cache_dual = {
    .policy =
        FAST_DLLM("dual", "KV of the whole canvas, renewed once per block; the suffix goes stale"),
    .plan = plan_dual,
    .put_off = put_off_dual,
};
