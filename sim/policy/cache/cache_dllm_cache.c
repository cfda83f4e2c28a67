/* dLLM-Cache: prompt and output features are refreshed at their own intervals; between refreshes
 * only the least similar share of the output positions is recomputed (arXiv 2506.06295).
 *
 * As its released code does: layer 0 always runs the whole canvas, the values of all output
 * positions are projected for the similarity test, and the head runs over the whole canvas. A ratio
 * of 0 compares nothing, and a share of less than one position moves none: what runs then is the
 * prompt where that is refreshed, and else nothing after layer 0. Intervals count the request's
 * steps. One that was preempted has lost its features, and renews them all before the first step of
 * each block from then on. */
#include "sim/policy/cache/cache.h"
#include "sim/policy/window.h"

struct state {
    uint32_t prompt_interval_steps, output_interval_steps;
    double transfer_ratio;
};

static const struct param params[] = {
    {"prompt_interval_steps", PARAM_U32, 0, "steps", "100", 1, 1e6, NULL,
     offsetof(struct state, prompt_interval_steps), "steps between refreshes of the prompt"},
    {"output_interval_steps", PARAM_U32, 0, "steps", "7", 1, 1e6, NULL,
     offsetof(struct state, output_interval_steps), "steps between refreshes of the output"},
    {"transfer_ratio", PARAM_F64, 0, "1", "0.25", 0, 1, NULL,
     offsetof(struct state, transfer_ratio), "share of output positions recomputed in between"},
};

static uint32_t steps_to_multiple(uint32_t step, uint32_t interval) {
    return interval - step % interval;
}

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    const uint32_t prompt = request->prompt_tokens, canvas = request->canvas_tokens;
    const bool has_lost = request->preemptions > 0 && window_passes(request) == 0;
    const bool renews_prompt = has_lost || request->steps % state->prompt_interval_steps == 0;
    const bool renews_output = has_lost || request->steps % state->output_interval_steps == 0;
    const uint32_t moved = (uint32_t)(state->transfer_ratio * request->output_tokens);
    const uint32_t chosen = (renews_prompt ? prompt : 0) + moved;
    const bool runs_output =
        renews_output || (state->transfer_ratio > 0 && (renews_prompt || moved > 0));
    (void)memory;
    *rows = (struct row_sets){.kind = ROW_FEATURES,
                              .chooser = CHOSEN_BY_CHANGE,
                              .run = {renews_prompt ? 0 : prompt, runs_output ? canvas : prompt},
                              .head = {0, canvas},
                              .keep = {{0, canvas}},
                              .n_chosen = runs_output && !renews_output ? chosen : 0,
                              .held = canvas};
    if (renews_prompt || renews_output) {
        return 1;
    }
    uint32_t to_prompt = steps_to_multiple(request->steps, state->prompt_interval_steps);
    uint32_t to_output = steps_to_multiple(request->steps, state->output_interval_steps);
    return to_prompt < to_output ? to_prompt : to_output;
}

const struct cache_policy cache_dllm_cache = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "dllm-cache",
               .doc = "interval refresh plus similarity-guided partial updates; twice the memory",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .plan = plan,
};
