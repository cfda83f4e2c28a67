/* dKV-Cache (arXiv 2505.15781): a bidirectional model's keys and values change least once their
 * token is decoded, so a decoded token is run once more in its final form and then left out; masked
 * ones always run. dkv-decode renews everything every few steps of a block, dkv-prefill keeps the
 * prompt alone, dkv-pd renews the prompt and what is decoded at intervals of their own. Positions
 * that run lie scattered.
 *
 * Where logits are shifted (Dream) the row before a position decides on it, and stands for it: it
 * runs while that position is masked, once more when it is decoded, and is left out from then on,
 * whatever its own token is. This is un-shift, the paper's main variant (appendix B) and that of
 * the released code's examples; of its others right-shift loses rows that decide, and un-and-right
 * is stricter. */
#include "sim/policy/cache/renewal.h"

struct state {
    uint32_t interval_steps, prompt_interval_steps, first_steps;
};

#define INTERVAL(name, initial, doc)                                                               \
    { #name, PARAM_U32, 0, "steps", initial, 1, 1000000, NULL, offsetof(struct state, name), doc }

/* Renewal at a block's first step, and again at every such interval of its steps. */
static bool is_due(const struct request *request, uint32_t interval_steps) {
    return window_steps(request) % interval_steps == 0;
}

/* From `first` on, of the active block what is not settled where `skips` says so; all of [0, kept)
 * is kept. The canvas's last row decides on nothing: the released code leaves it out from a
 * request's third step on. */
static uint32_t answer(struct row_sets *rows, const struct request *request, uint32_t first,
                       bool skips, uint32_t kept) {
    *rows =
        (struct row_sets){.kind = ROW_KV,
                          .settles = kept == request->canvas_tokens ? BLOCK_DELAYED : BLOCK_WHOLE,
                          .skips = skips,
                          .keep = {{0, kept}},
                          .held = kept};
    rows_run_listed(rows, request, first);
    if (rows_are_before(rows, request) && request->steps == 1) {
        rows->run.end = request->canvas_tokens;
    }
    return 1;
}

/* The rows of the prompt but the one that decides on the output's first position. */
static uint32_t prompt_rows(const struct request *request) {
    return request->prompt_tokens - (request->causal == SEES_CANVAS && request->shifted != 0);
}

static uint32_t plan_decode(const void *opaque, const void *memory, const struct request *request,
                            struct row_sets *rows) {
    const struct state *state = opaque;
    bool renews = is_due(request, state->interval_steps) ||
                  window_steps(request) < state->first_steps || request->overdue_steps > 0;
    (void)memory;
    return answer(rows, request, renews ? 0 : window_first(request), !renews,
                  request->canvas_tokens);
}

/* But for those that a block begins with, by as many steps as lie between two. */
static uint32_t put_off_decode(const void *opaque, const void *memory,
                               const struct request *request, struct row_sets *rows) {
    const struct state *state = opaque;
    (void)memory;
    (void)answer(rows, request, window_first(request), true, request->canvas_tokens);
    return window_steps(request) > 0 && window_steps(request) >= state->first_steps
               ? state->interval_steps
               : 0;
}

static uint32_t plan_prefill(const void *opaque, const void *memory, const struct request *request,
                             struct row_sets *rows) {
    const struct state *state = opaque;
    bool renews = is_due(request, state->prompt_interval_steps);
    (void)memory;
    return answer(rows, request, renews ? 0 : prompt_rows(request), false, prompt_rows(request));
}

static uint32_t plan_both(const void *opaque, const void *memory, const struct request *request,
                          struct row_sets *rows) {
    const struct state *state = opaque;
    bool renews_all = is_due(request, state->prompt_interval_steps);
    bool renews = renews_all || is_due(request, state->interval_steps);
    uint32_t first = window_first(request);
    (void)memory;
    if (renews) {
        first = renews_all ? 0 : prompt_rows(request);
    }
    return answer(rows, request, first, !renews, request->canvas_tokens);
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
    .plan = plan_decode,
    .put_off = put_off_decode,
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
    .plan = plan_prefill,
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
    .plan = plan_both,
};
