/* Exact keys and values: what is committed is computed once, in its own context, and stays. Block
 * diffusion prefills the prompt's whole blocks, denoises a block against them and runs it once more
 * when it is done, to write its keys and values (the commit pass; SDAR, arXiv 2510.06303, LMDeploy
 * and SGLang). Autoregressive models are the case of one token a block, whose keys and values the
 * step that decides on the next token writes. */
#include "sim/policy/cache.h"

struct state {
    uint32_t ahead_blocks;
    bool commit_last, commit_logits;
};

static const struct param params[] = {
    {"ahead_blocks", PARAM_U32, 0, "blocks", "0", 0, 1024, NULL,
     offsetof(struct state, ahead_blocks), "blocks behind the active one with memory of their own"},
    {"commit_last", PARAM_BOOL, 0, "1", "on", 0, 1, NULL, offsetof(struct state, commit_last),
     "the last block, too, has a commit pass before its request is done"},
    {"commit_logits", PARAM_BOOL, 0, "1", "on", 0, 1, NULL, offsetof(struct state, commit_logits),
     "a commit pass goes through the output head, though nobody reads it"},
};

static uint32_t block_end(const struct request *request) {
    return request->block_start + request->block_length;
}

static uint32_t plan_token(const struct request *request, struct span *span) {
    uint32_t missing =
        request->masked_in_block > 0 ? request->block_start - request->cached_tokens : 0;
    *span = (struct span){.phase = missing > 1 ? PHASE_PREFILL : PHASE_REUSE,
                          .queries = missing,
                          .first_queries = missing,
                          .context = request->cached_tokens,
                          .logit_rows = missing > 0,
                          .exact = 1};
    return 1;
}

static uint32_t plan(const void *opaque, const struct request *request, struct span *span) {
    const struct state *state = opaque;
    if (request->causal == SEES_TOKENS) {
        return plan_token(request, span);
    }
    if (request->cached_tokens < request->block_start) {
        *span = (struct span){.phase = PHASE_PREFILL,
                              .queries = request->block_start - request->cached_tokens,
                              .context = request->cached_tokens,
                              .exact = 1};
        span->first_queries = span->queries;
        return 1;
    }
    *span = (struct span){.phase = PHASE_REUSE,
                          .queries = request->block_length,
                          .first_queries = request->block_length,
                          .context = request->block_start,
                          .logit_rows = request->block_length,
                          .exact = 1};
    if (request->masked_in_block > 0) {
        return UINT32_MAX;
    }
    bool is_last = block_end(request) == request->canvas_tokens;
    bool is_done = request->cached_tokens == block_end(request) || (is_last && !state->commit_last);
    span->phase = PHASE_COMMIT;
    span->logit_rows = state->commit_logits ? span->logit_rows : 0;
    span->queries = is_done ? 0 : span->queries;
    return 1;
}

static uint32_t rows_held(const void *opaque, const struct request *request) {
    const struct state *state = opaque;
    if (request->causal == SEES_TOKENS) {
        return request->block_start;
    }
    uint64_t rows = block_end(request) + (uint64_t)state->ahead_blocks * request->block_tokens;
    return rows < request->canvas_tokens ? (uint32_t)rows : request->canvas_tokens;
}

const struct cache_policy cache_exact = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "exact",
               .doc = "exact KV that grows block by block; one more pass over each finished block",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_EXACT,
    .plan = plan,
    .rows_held = rows_held,
};
