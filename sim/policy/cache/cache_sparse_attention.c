/* SparseD (arXiv 2509.24014, section 4, and released code): every step runs the whole canvas and
 * nothing is cached; what is saved is attention. The first share of the steps attends to all keys.
 * The last of these scores them once, and each head of each block of queries keeps the blocks of
 * keys that it attends to the most, the prompt's and the output's chosen apart; all later steps
 * attend to these alone.
 *
 * The paper's steps are as many as it was told to take; here they are steps_per_block of every
 * block, fewer where a decoder commits more at once. The released code takes the prompt's share of
 * all blocks and then drops the output's, so that it keeps that many of the prompt's at most. */
#include "sim/policy/cache/cache.h"

struct state {
    double skip, select;
    uint32_t pattern_tokens;
};

static const struct param params[] = {
    {"skip", PARAM_F64, 0, "1", "0.2", 0, 1, NULL, offsetof(struct state, skip),
     "share of a request's steps that attend to all keys (0.2 as released)"},
    {"select", PARAM_F64, 0, "1", "0.3", 0, 1, NULL, offsetof(struct state, select),
     "share of the key blocks that a block of queries attends to (0.3; 0.5 for short prompts)"},
    {"pattern_tokens", PARAM_U32, 0, "tokens", "128", 1, 65536, NULL,
     offsetof(struct state, pattern_tokens),
     "size of a block of queries or keys in the pattern (128; 32 for short prompts)"},
};

static uint32_t blocks_in(uint32_t tokens, uint32_t block) {
    return tokens / block + (tokens % block > 0);
}

static uint32_t share_of(const struct state *state, uint32_t blocks) {
    uint32_t kept = (uint32_t)(state->select * blocks) + 1;
    return kept < blocks ? kept : blocks;
}

/* Key blocks that every block of queries attends to. */
static uint32_t kept_blocks(const struct state *state, const struct request *request) {
    uint32_t all = blocks_in(request->canvas_tokens, state->pattern_tokens);
    uint32_t of_prompt = blocks_in(request->prompt_tokens, state->pattern_tokens);
    return share_of(state, of_prompt) + share_of(state, all - of_prompt);
}

/* The step that scores: as released, the first after the share that is skipped. */
static uint32_t scoring_step(const struct state *state, const struct request *request) {
    uint32_t blocks = window_blocks(request);
    double skipped = state->skip * blocks * request->steps_per_block;
    return skipped < UINT32_MAX - 1 ? (uint32_t)skipped + 1 : UINT32_MAX;
}

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    uint32_t canvas = request->canvas_tokens, scoring = scoring_step(state, request);
    uint32_t kept = kept_blocks(state, request);
    uint64_t tokens = (uint64_t)kept * state->pattern_tokens;
    uint64_t cells = (uint64_t)kept * blocks_in(canvas, state->pattern_tokens);
    uint32_t keys = tokens < canvas ? (uint32_t)tokens : canvas;
    (void)memory;
    *rows = (struct row_sets){.kind = ROW_PATTERN,
                              .chooser = CHOSEN_BY_SCORE,
                              .n_chosen = request->steps == scoring ? keys : 0,
                              .held = cells < UINT32_MAX ? (uint32_t)cells : UINT32_MAX,
                              .attends = request->steps > scoring ? keys : 0};
    rows_run(rows, 0, canvas);
    return request->steps < scoring    ? scoring - request->steps
           : request->steps == scoring ? 1
                                       : UINT32_MAX;
}

const struct cache_policy cache_sparse_attention = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "sparse-attention",
               .doc = "no cache: each head attends to keys it chose once (SparseD); simulated only",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .plan = plan,
};
