/* Exact keys and values: what is committed is computed once, in its own context, and stays. Block
 * diffusion prefills the prompt's whole blocks, denoises a block against them and runs it once more
 * when it is done, to write its keys and values (the commit pass; SDAR, arXiv 2510.06303, LMDeploy
 * and SGLang). Autoregressive models are the case of one token a block, whose keys and values the
 * step that decides on the next token writes. */
#include "sim/policy/exact.h"

struct state {
    struct exact_state exact;
};

static const struct param params[] = {EXACT_PARAMS(struct state, exact)};

static uint32_t plan(const void *state, const struct request *request, struct span *span) {
    return exact_plan(&((const struct state *)state)->exact, request, span);
}

static uint32_t rows_held(const void *state, const struct request *request) {
    return exact_rows_held(&((const struct state *)state)->exact, request);
}

const struct cache_policy cache_exact = {
    .policy =
        {.abi = POLICY_ABI,
         .kind = POLICY_CACHE,
         .size = sizeof(struct cache_policy),
         .state_bytes = sizeof(struct state),
         .name = "exact",
         .doc = "exact KV in pages, block-causal and autoregressive models; one more pass a block",
         .params = params,
         .n_params = sizeof params / sizeof params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_EXACT,
    .plan = plan,
    .rows_held = rows_held,
};
