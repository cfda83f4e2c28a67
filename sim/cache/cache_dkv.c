/* dKV-Cache (arXiv 2505.15781): a bidirectional model's keys and values change least once their
 * token is decoded, so a decoded token is run once more in its final form and then left out; masked
 * ones always run. dkv-decode renews everything every few steps of a block, dkv-prefill keeps the
 * prompt alone, dkv-pd renews the prompt and what is decoded at intervals of their own. Positions
 * that run lie scattered. */
#include "sim/cache/cache.h"

#include "sim/decode/block.h"

struct state {
    uint32_t interval_steps, prompt_interval_steps, first_steps;
};

#define INTERVAL(name, initial, doc)                                                               \
    { #name, PARAM_U32, 0, "steps", initial, 1, 1000000, NULL, offsetof(struct state, name), doc }

/* Renewal at a block's first step, and again at every such interval of its steps. */
static bool is_due(const struct request *request, uint32_t interval_steps) {
    return request->step_in_block % interval_steps == 0;
}

static uint32_t plan_span(struct span *span, const struct request *request, uint32_t queries) {
    bool is_full = queries == request->canvas_tokens;
    *span = (struct span){.phase = is_full ? PHASE_REFRESH : PHASE_REUSE,
                          .queries = queries,
                          .first_queries = queries,
                          .context = request->canvas_tokens - queries,
                          .logit_rows = queries};
    return 1;
}

/* What is masked, in the block and behind it, and what the step before decided. */
static uint32_t undecided(const struct request *request) {
    uint32_t behind = request->block_start + request->block_length;
    return request->uncached_in_block + request->canvas_tokens - behind;
}

static uint32_t plan_decode(const void *opaque, const struct request *request, struct span *span) {
    const struct state *state = opaque;
    bool renews =
        is_due(request, state->interval_steps) || request->step_in_block < state->first_steps;
    return plan_span(span, request, renews ? request->canvas_tokens : undecided(request));
}

static uint32_t plan_prefill(const void *opaque, const struct request *request, struct span *span) {
    const struct state *state = opaque;
    bool renews = is_due(request, state->prompt_interval_steps);
    return plan_span(span, request, renews ? request->canvas_tokens : request->output_tokens);
}

static uint32_t plan_both(const void *opaque, const struct request *request, struct span *span) {
    const struct state *state = opaque;
    if (is_due(request, state->prompt_interval_steps)) {
        return plan_span(span, request, request->canvas_tokens);
    }
    bool renews = is_due(request, state->interval_steps);
    return plan_span(span, request, renews ? request->output_tokens : undecided(request));
}

static void output_window(const void *state, const struct request *request, uint32_t *first,
                          uint32_t *end) {
    (void)state;
    *first = request->prompt_tokens;
    *end = request->canvas_tokens;
}

/* The block and everything behind it, which is masked. */
static void undecided_window(const void *state, const struct request *request, uint32_t *first,
                             uint32_t *end) {
    (void)state;
    *first = request->block_start;
    *end = request->canvas_tokens;
}

static void both_window(const void *opaque, const struct request *request, uint32_t *first,
                        uint32_t *end) {
    const struct state *state = opaque;
    undecided_window(state, request, first, end);
    *first = is_due(request, state->interval_steps) ? request->prompt_tokens : *first;
}

static uint32_t rows_held(const void *state, const struct request *request) {
    (void)state;
    return request->canvas_tokens;
}

static uint32_t prompt_rows_held(const void *state, const struct request *request) {
    (void)state;
    return request->prompt_tokens;
}

static const struct param decode_params[] = {
    INTERVAL(interval_steps, "8", "steps of a block between full passes"),
    INTERVAL(first_steps, "1", "full passes that a block begins with"),
};
static const struct param prefill_params[] = {
    INTERVAL(prompt_interval_steps, "8", "steps of a block between full passes"),
};
static const struct param both_params[] = {
    INTERVAL(interval_steps, "4", "steps of a block between passes over the output (assumed)"),
    INTERVAL(prompt_interval_steps, "16", "steps of a block between full passes (assumed)"),
};

const struct cache_policy cache_dkv_decode = {
    .policy =
        {.abi = POLICY_ABI,
         .kind = POLICY_CACHE,
         .size = sizeof(struct cache_policy),
         .state_bytes = sizeof(struct state),
         .name = "dkv-decode",
         .doc =
             "decoded tokens are left out, renewed at intervals (dKV-Cache); masked ones all run",
         .params = decode_params,
         .n_params = sizeof decode_params / sizeof decode_params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_CANVAS,
    .leaves_out = BLOCK_DELAYED,
    .plan = plan_decode,
    .rows_held = rows_held,
    .window = undecided_window,
};

const struct cache_policy cache_dkv_prefill = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "dkv-prefill",
               .doc =
                   "the prompt's KV alone is kept (dKV-Cache); the whole output runs in every step",
               .params = prefill_params,
               .n_params = sizeof prefill_params / sizeof prefill_params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_OUTSIDE_BLOCK,
    .plan = plan_prefill,
    .rows_held = prompt_rows_held,
    .window = output_window,
};

const struct cache_policy cache_dkv_pd = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "dkv-pd",
               .doc = "prompt and decoded tokens are renewed at two intervals (dKV-PD)",
               .params = both_params,
               .n_params = sizeof both_params / sizeof both_params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_CANVAS,
    .leaves_out = BLOCK_DELAYED,
    .plan = plan_both,
    .rows_held = rows_held,
    .window = both_window,
};
