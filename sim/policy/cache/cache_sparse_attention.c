/* SparseD (arXiv 2509.24014, section 4, and released code): every step runs the whole canvas and
 * nothing is cached; what is saved is attention. The first share of the steps attends to all keys.
 * The last of these scores them once, and each head of each block of queries keeps the blocks of
 * keys that it attends to the most, the prompt's and the output's chosen apart; all later steps
 * attend to these alone.
 *
 * The paper's steps are as many as it was told to take; here they are steps_per_block of every
 * block, fewer where a decoder commits more at once. As in the released code a block of keys in
 * which the prompt ends is one of the prompt's, unless it is the canvas's last, and the prompt's
 * share is taken of all blocks, of which the output's are then dropped. A request that was
 * preempted has lost its pattern, and chooses anew in the first step of each block from then on. */
#include "sim/base/num.h"
#include "sim/policy/cache/cache.h"
#include "sim/policy/window.h"

struct state {
    double skip, select;
    uint32_t pattern_tokens, scores; /* enum pattern_scores */
};

static const char *const score_words[] = {"released", "head-size", "heads", NULL};

static const struct param params[] = {
    {"skip", PARAM_F64, 0, "1", "0.2", 0, 1, NULL, offsetof(struct state, skip),
     "share of a request's steps that attend to all keys (0.2 as released)"},
    {"select", PARAM_F64, 0, "1", "0.3", 0, 1, NULL, offsetof(struct state, select),
     "share of the key blocks that a block of queries attends to (0.3; 0.5 for short prompts)"},
    {"pattern_tokens", PARAM_U32, 0, "tokens", "128", 1, 65536, NULL,
     offsetof(struct state, pattern_tokens),
     "size of a block of queries or keys in the pattern (128; 32 for short prompts)"},
    PARAM_ONE_OF("scores", struct state, scores, score_words, "released",
                 "number whose root divides scores where blocks are chosen: of heads, or of a "
                 "head's channels; released: of heads, but for shifted logits"),
};

/* As released, one more than the share of them. */
static uint32_t share_of(const struct state *state, uint32_t blocks) {
    uint32_t kept = (uint32_t)(state->select * blocks) + 1;
    return kept < blocks ? kept : blocks;
}

static struct row_pattern pattern_of(const struct state *state, const struct request *request) {
    struct row_pattern pattern = {.tokens = state->pattern_tokens, .scores = state->scores};
    const uint32_t n = pattern_blocks(&pattern, request->canvas_tokens);
    const uint32_t of_prompt = pattern_blocks(&pattern, request->prompt_tokens);
    pattern.rest = of_prompt < n ? of_prompt : n - 1;
    pattern.keep = share_of(state, n);
    pattern.keep_rest = share_of(state, n - pattern.rest);
    return pattern;
}

/* Keys that a query attends to by the pattern, at most. */
static uint32_t kept_keys(const struct row_pattern *pattern, uint32_t canvas) {
    const uint32_t of_prompt = pattern->keep < pattern->rest ? pattern->keep : pattern->rest;
    const uint64_t tokens = ((uint64_t)of_prompt + pattern->keep_rest) * pattern->tokens;
    return tokens < canvas ? (uint32_t)tokens : canvas;
}

/* Words of all blocks of queries, such that stores begin where others' do. */
static uint32_t held_words(const struct row_pattern *pattern, uint32_t canvas) {
    enum { ALIGN_WORDS = 8 };
    const uint32_t n = pattern_blocks(pattern, canvas);
    const int64_t words = align_up((int64_t)n * pattern_words(n), ALIGN_WORDS);
    return words < UINT32_MAX ? (uint32_t)words : UINT32_MAX;
}

/* The step that scores: as released, the first after the share that is skipped. */
static uint32_t scoring_step(const struct state *state, const struct request *request) {
    const double steps = (double)window_blocks(request) * request->steps_per_block;
    const double skipped = state->skip * steps;
    return skipped < UINT32_MAX - 1 ? (uint32_t)skipped + 1 : UINT32_MAX;
}

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    const uint32_t canvas = request->canvas_tokens, scoring = scoring_step(state, request);
    const bool has_lost =
        request->preemptions > 0 && window_passes(request) == 0 && request->steps > scoring;
    const bool chooses = request->steps == scoring || has_lost;
    const struct row_pattern pattern = pattern_of(state, request);
    const uint32_t keys = kept_keys(&pattern, canvas);
    (void)memory;
    *rows = (struct row_sets){.kind = ROW_PATTERN,
                              .chooser = CHOSEN_BY_SCORE,
                              .n_chosen = chooses ? keys : 0,
                              .held = held_words(&pattern, canvas),
                              .attends = request->steps > scoring && !has_lost ? keys : 0,
                              .pattern = pattern};
    rows_run(rows, 0, canvas);
    return request->steps < scoring ? scoring - request->steps : chooses ? 1 : UINT32_MAX;
}

const struct cache_policy cache_sparse_attention = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "sparse-attention",
               .doc = "no cache: each head attends to blocks of keys it chose once (SparseD)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .plan = plan,
};
