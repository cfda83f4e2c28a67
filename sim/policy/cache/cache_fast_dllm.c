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

/* What runs and stays. */
static void answer_prefix(const struct request *request, bool renews, struct row_sets *rows) {
    *rows = (struct row_sets){
        .kind = ROW_KV, .keep = {{0, window_first(request)}}, .held = request->canvas_tokens};
    rows_run(rows, renews ? 0 : window_first(request), request->canvas_tokens);
}

static void answer_dual(const struct request *request, bool renews, struct row_sets *rows) {
    const uint32_t end = window_end(request), canvas = request->canvas_tokens;
    answer_prefix(request, renews, rows);
    rows->keep[1] = (struct range){end, canvas};
    rows_run(rows, renews ? 0 : window_first(request), renews ? canvas : end);
}

/* How many steps the answer holds. */
static uint32_t renewal(const struct state *state, const struct request *request, bool *renews) {
    const uint32_t reuses = renewal_in(request, state->interval_steps);
    *renews = reuses == 0;
    return *renews ? 1 : reuses;
}

/* A renewal can be put off by as many steps as lie between two, so that rows are at most twice as
 * old; a block's first one cannot. */
static uint32_t bound(const struct state *state, const struct request *request) {
    return window_steps(request) > 0 ? state->interval_steps : 0;
}

#define CALLBACKS(which)                                                                           \
    static uint32_t plan_##which(const void *state, const void *memory,                            \
                                 const struct request *request, struct row_sets *rows) {           \
        bool renews;                                                                               \
        const uint32_t steps = renewal(state, request, &renews);                                   \
        (void)memory;                                                                              \
        answer_##which(request, renews, rows);                                                     \
        return steps;                                                                              \
    }                                                                                              \
    static uint32_t put_off_##which(const void *state, const void *memory,                         \
                                    const struct request *request, struct row_sets *rows) {        \
        (void)memory;                                                                              \
        answer_##which(request, false, rows);                                                      \
        return bound(state, request);                                                              \
    }
CALLBACKS(prefix)
CALLBACKS(dual)

#define POLICY_OF(which, says)                                                                     \
    {                                                                                              \
        .policy = {.abi = POLICY_ABI,                                                              \
                   .kind = POLICY_CACHE,                                                           \
                   .size = sizeof(struct cache_policy),                                            \
                   .state_bytes = sizeof(struct state),                                            \
                   .name = #which,                                                                 \
                   .doc = (says),                                                                  \
                   .params = params,                                                               \
                   .n_params = sizeof params / sizeof params[0]},                                  \
        .plan = plan_##which, .put_off = put_off_##which,                                          \
    }
const struct cache_policy cache_prefix =
    POLICY_OF(prefix, "KV before the block is kept; the suffix is recomputed in every step");
const struct cache_policy cache_dual =
    POLICY_OF(dual, "KV of the whole canvas, renewed once per block; the suffix goes stale");
