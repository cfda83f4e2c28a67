/* Entropy-bounded renoising (DiffusionGemma; vllm-project/vllm diffusion_gemma.py,
 * _compiled_sample_step, and SGLang's Gemma4Renoise). A canvas begins as random tokens. After each
 * pass a token is drawn for every position, and those of least entropy are accepted as long as the
 * entropies before add up to no more than a bound; all other positions are given new random tokens,
 * and the next pass decides on all of them anew. The canvas is over when two passes agree on every
 * most likely token and the mean entropy is below a threshold, or after a number of passes. Only
 * then are its tokens final: all are committed by its last pass.
 *
 * The engine does so with real logits (engine/session/renoise.h). In simulations what is drawn of a
 * canvas is how many passes it takes, by the only published distribution of a
 * renoising model: 2,115 canvases on real prompts (tenstorrent/tt-metal #50431). It is uniform
 * within eight passes; of the last eight, PUBLISHED_AT_LIMIT reach the limit, which makes the mean
 * the published 26.6. */
#include "sim/base/rng.h"
#include "sim/policy/decoder/renoise.h"

enum { RENOISE_BINS = 6, RENOISE_BIN = 8, PUBLISHED_LIMIT = RENOISE_BINS * RENOISE_BIN };

static const uint32_t published[RENOISE_BINS] = {150, 543, 467, 230, 171, 554};
static const double PUBLISHED_AT_LIMIT = 0.925;

static const struct param params[] = {
    {"entropy_bound", PARAM_F64, 0, "nats", "0.1", 0, 1000, NULL,
     offsetof(struct renoise, entropy_bound),
     "positions are accepted in order of their entropy as long as those before add up to no more "
     "[backend = cpu|cuda]"},
    {"t_min", PARAM_F64, 0, "1", "0.4", 0.01, 100, NULL, offsetof(struct renoise, t_min),
     "temperature that passes come down to [backend = cpu|cuda]"},
    {"t_max", PARAM_F64, 0, "1", "0.8", 0.01, 100, NULL, offsetof(struct renoise, t_max),
     "temperature of the first pass [backend = cpu|cuda]"},
    {"max_steps", PARAM_U32, 0, "steps", "48", 1, 4096, NULL, offsetof(struct renoise, max_steps),
     "denoising passes of a canvas at most"},
    {"confidence_threshold", PARAM_F64, 0, "nats", "0.005", 0, 1, NULL,
     offsetof(struct renoise, confidence_threshold),
     "mean entropy below which a canvas that no longer changes is over (0: none is before "
     "max_steps, as in benchmarks of random tokens)"},
    {"seed", PARAM_U32, 0, "1", "1", 0, UINT32_MAX, NULL, offsetof(struct renoise, seed),
     "seed of the draws [backend = cpu|cuda or decoder.confidence_threshold > 0]"},
};

/* Passes of a canvas whose place in the distribution is u, in (0, 1). */
static uint32_t published_steps(double u) {
    uint32_t total = 0, bin = 0;
    for (uint32_t i = 0; i < RENOISE_BINS; i++) {
        total += published[i];
    }
    double place = u * total;
    for (; bin + 1 < RENOISE_BINS && place >= published[bin]; bin++) {
        place -= published[bin];
    }
    const double share = place / published[bin];
    const bool is_last = bin + 1 == RENOISE_BINS;
    if (is_last && share >= 1 - PUBLISHED_AT_LIMIT) {
        return PUBLISHED_LIMIT;
    }
    const double within =
        is_last ? share / (1 - PUBLISHED_AT_LIMIT) * (RENOISE_BIN - 1) : share * RENOISE_BIN;
    return bin * RENOISE_BIN + 1 + (uint32_t)within;
}

static uint32_t steps_of(const struct renoise *state, const struct request *request) {
    if (state->confidence_threshold <= 0) {
        return state->max_steps;
    }
    const double u = rng_keyed(state->seed, request->id, window_block(request), 0);
    const uint32_t steps = published_steps(u);
    return steps < state->max_steps ? steps : state->max_steps;
}

static uint32_t choose(const void *opaque, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    const bool is_over = window_steps(request) + 1 >= steps_of(opaque, request);
    memset(commit, is_over, seen->n);
    return is_over ? seen->n : 0;
}

/* Nothing is committed before the last pass. */
static uint32_t take_back(const void *state, const struct request *request,
                          const struct decode_kept *kept, uint8_t *again) {
    (void)state, (void)request, (void)kept, (void)again;
    return 0;
}

const struct decoder decoder_renoise = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct renoise),
               .name = "renoise",
               .doc = "a canvas of random tokens, all decided anew in each step until they stay; "
                      "nothing is final before (DiffusionGemma)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .choose = choose,
    .take_back = take_back,
    .way = DECODER_RENOISES,
};
