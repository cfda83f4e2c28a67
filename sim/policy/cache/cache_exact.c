/* Exact keys and values: what is committed is computed once, in its own context, and stays. Block
 * diffusion prefills the prompt's whole blocks, denoises a block against them and runs it once more
 * when it is done, to write its keys and values (the commit pass; SDAR, arXiv 2510.06303, LMDeploy
 * and SGLang). Autoregressive models are the case of one token a block, whose keys and values the
 * step that decides on the next token writes.
 *
 * With cross_block there is no commit pass between blocks: the first pass of the next one runs the
 * finished one before it as well, whose tokens see no further than before, and writes its keys and
 * values where the new block's tokens read them (dInfer, arXiv 2510.08666 and its released code).
 * Where logits are shifted the commit pass yields a token, and stays, unless several blocks are in
 * flight. */
#include "sim/policy/cache/exact.h"

struct state {
    struct exact_state exact;
    bool cross_block;
};

static const struct param params[] = {
    EXACT_PARAMS,
    {"cross_block", PARAM_BOOL, 0, "1", "off", 0, 1, NULL, offsetof(struct state, cross_block),
     "a finished block's exact KV is written by the first pass of the next, not by one of its own "
     "[model.attention = block-causal and model.shifted_logits = off or model.attention = "
     "block-causal and blocks_in_flight > 1]"},
};

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    uint32_t holds = exact_plan(state, request, rows), end = window_end(request);
    (void)memory;
    if (!state->cross_block || request->causal != SEES_BLOCKS || window_begins_decided(request)) {
        return holds;
    }
    bool is_over = !window_is_open(request), is_last = exact_is_last(request);
    bool stores = is_last ? state->exact.commit_last : window_is_full(request);
    bool lacks_some = window_block(request) > 0 && (!is_over || stores) &&
                      request->cached_tokens == window_before(request);
    /* With several blocks in flight more than one may be left to the next pass. */
    uint32_t least = window_most(request) > 1 ? window_before(request) : window_first(request);
    if (lacks_some) {
        rows->run.end = rows->keep[0].end = end;
        rows->head = (struct range){window_first(request), end};
    } else if (request->cached_tokens >= least && is_over && !stores && !is_last) {
        rows->run = rows->head = (struct range){end, end};
        rows->skips = 0;
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
    .plan = plan,
};
