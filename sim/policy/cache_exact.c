/* Exact keys and values: what is committed is computed once, in its own context, and stays. Block
 * diffusion prefills the prompt's whole blocks, denoises a block against them and runs it once more
 * when it is done, to write its keys and values (the commit pass; SDAR, arXiv 2510.06303, LMDeploy
 * and SGLang). Autoregressive models are the case of one token a block, whose keys and values the
 * step that decides on the next token writes. */
#include "sim/policy/exact.h"

static const struct param params[] = {EXACT_PARAMS};

const struct cache_policy cache_exact = {
    .policy =
        {.abi = POLICY_ABI,
         .kind = POLICY_CACHE,
         .size = sizeof(struct cache_policy),
         .state_bytes = sizeof(struct exact_state),
         .name = "exact",
         .doc = "exact KV in pages, block-causal and autoregressive models; one more pass a block",
         .params = params,
         .n_params = sizeof params / sizeof params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_EXACT,
    .plan = exact_plan,
    .rows_held = exact_rows_held,
};
