/* dKV-Cache's greedy variant (arXiv 2505.15781; released for random remasking alone,
 * generation_utils/llada_dkv_cache_greedy.py): a reusing step runs the positions it decides, those
 * that the step before decided, in their final form, and for each of the first the w nearest masked
 * ones besides, by turns to its left and to its right, so that n decisions a step cost n (w + 2)
 * positions at most. What lies behind the block runs in full passes alone, and so windows end with
 * the block; the released demo has one block. Everything is renewed at a block's first step and
 * every few steps (2 in the demo, whose window is 4). */
#include "sim/cache/cache.h"

#include "sim/decode/block.h"

struct state {
    uint32_t interval_steps, window;
};

static const struct param params[] = {
    {"interval_steps", PARAM_U32, 0, "steps", "2", 1, 1000000, NULL,
     offsetof(struct state, interval_steps), "steps of a block between full passes"},
    {"window", PARAM_U32, 0, "tokens", "4", 0, 65536, NULL, offsetof(struct state, window),
     "masked positions that run around each that is decided"},
};

static uint32_t plan(const void *opaque, const struct request *request, struct span *span) {
    const struct state *state = opaque;
    bool renews = request->step_in_block % state->interval_steps == 0;
    uint32_t queries = renews ? request->canvas_tokens : request->uncached_in_block;
    *span = (struct span){.phase = renews ? PHASE_REFRESH : PHASE_REUSE,
                          .queries = queries,
                          .first_queries = queries,
                          .context = request->canvas_tokens - queries,
                          .logit_rows = queries};
    return 1;
}

/* Up to so many of the masked positions around one that do not run yet. */
static void add_nearest(const struct listing_view *view, uint32_t at, uint32_t n, uint8_t *runs) {
    for (uint32_t far = 1; n > 0 && far < view->length; far++) {
        bool left = at >= far && view->masked[at - far] && !runs[at - far];
        if (left) {
            runs[at - far] = 1;
            n--;
        }
        bool right = at + far < view->length && view->masked[at + far] && !runs[at + far];
        if (right && n > 0) {
            runs[at + far] = 1;
            n--;
        }
    }
}

static uint32_t list(const void *opaque, const struct listing_view *view, uint8_t *runs) {
    const struct state *state = opaque;
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->length; i++) {
        runs[i] = view->pending[i] && (!view->masked[i] || view->next[i]);
    }
    for (uint32_t i = 0; i < view->length; i++) {
        if (view->next[i]) {
            add_nearest(view, i, state->window, runs);
        }
    }
    for (uint32_t i = 0; i < view->length; i++) {
        n += runs[i];
    }
    return n;
}

static uint32_t rows_held(const void *state, const struct request *request) {
    (void)state;
    return request->canvas_tokens;
}

const struct cache_policy cache_dkv_greedy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "dkv-greedy",
               .doc = "what steps decide and masked ones near (dKV-Cache); for blind decoders; "
                      "goes stale",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .row = CACHE_ROW_KV,
    .keeps = KEEPS_CANVAS,
    .leaves_out = BLOCK_DELAYED,
    .foresees = 1,
    .plan = plan,
    .rows_held = rows_held,
    .list = list,
};
