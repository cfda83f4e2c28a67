/* The delayed cache: a token that was committed is computed once more, in its final form, together
 * with the tokens still masked, and is then left out of the block's passes, so that no pass commits
 * the block as a whole (dKV-Cache's idea, arXiv 2505.15781, inside a block; DC in FOCUS, arXiv
 * 2601.23278, section 4.3). Waiting for its right neighbour as well, DC+, keeps what it attends to
 * near its end. */
#include "sim/policy/cache/exact.h"

static const struct param params[] = {EXACT_PARAMS};

static uint32_t plan_delayed(const void *state, const void *memory, const struct request *request,
                             struct row_sets *rows) {
    (void)memory;
    (void)exact_plan(state, request, rows);
    rows->settles = BLOCK_DELAYED;
    return 1;
}

static uint32_t plan_neighbour(const void *state, const void *memory, const struct request *request,
                               struct row_sets *rows) {
    (void)memory;
    (void)exact_plan(state, request, rows);
    rows->settles = BLOCK_NEIGHBOUR;
    return 1;
}

const struct cache_policy cache_delayed = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct exact_state),
               .name = "delayed",
               .doc =
                   "exact KV; a token leaves its block's passes once computed in final form (DC)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .plan = plan_delayed,
};

const struct cache_policy cache_neighbour = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct exact_state),
               .name = "neighbour",
               .doc = "the same, once its right neighbour is committed as well (DC+)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .plan = plan_neighbour,
};
