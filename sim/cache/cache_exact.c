/* Exact keys and values: what is committed is computed once, in its own context, and stays. Block
 * diffusion prefills the prompt's whole blocks, denoises a block against them and runs it once more
 * when it is done, to write its keys and values (the commit pass; SDAR, arXiv 2510.06303, LMDeploy
 * and SGLang). Autoregressive models are the case of one token a block, whose keys and values the
 * step that decides on the next token writes.
 *
 * With cross_block there is no commit pass between blocks: the first pass of the next one runs the
 * finished one before it as well, whose tokens see no further than before, and writes its keys and
 * values where the new block's tokens read them (dInfer, arXiv 2510.08666 and its released code).
 * Where logits are shifted the commit pass yields a token, and stays. */
#include "sim/cache/exact.h"

struct state {
    struct exact_state exact;
    bool cross_block;
};

static const struct param params[] = {
    EXACT_PARAMS,
    {"cross_block", PARAM_BOOL, 0, "1", "off", 0, 1, NULL, offsetof(struct state, cross_block),
     "a finished block's exact KV is written by the first pass of the next, not by one of its own"},
};

static uint32_t plan(const void *opaque, const struct request *request, struct span *span) {
    const struct state *state = opaque;
    uint32_t holds = exact_plan(state, request, span);
    if (!state->cross_block || request->causal != SEES_BLOCKS || request->shifted) {
        return holds;
    }
    bool lacks_one = span->phase == PHASE_PREFILL && request->block > 0 &&
                     span->queries == request->block_tokens && request->masked_in_block > 0;
    if (lacks_one) {
        *span = (struct span){.phase = PHASE_REUSE,
                              .queries = span->queries + request->block_length,
                              .first_queries = span->queries + request->block_length,
                              .context = span->context,
                              .logit_rows = request->block_length,
                              .exact = 1};
    } else if (span->phase == PHASE_COMMIT && !exact_is_last(request)) {
        span->queries = span->first_queries = span->logit_rows = 0;
    }
    return holds;
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
    .rows_held = exact_rows_held,
};
