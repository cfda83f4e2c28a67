/* LLaDA's random remasking (ML-GSAI/LLaDA generate.py, remasking = random): the same numbers as
 * `fixed`, at positions drawn at random. LLaDA's own code draws anew in every step; here the order
 * of a request's positions is drawn once, as dKV-Cache's greedy code does for a block: the same in
 * distribution, and known before a step. */
#include "sim/base/rng.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/decoder/even_steps.h"

struct state {
    uint32_t seed;
};

static const struct param params[] = {
    {"seed", PARAM_U32, 0, "1", "1", 0, UINT32_MAX, NULL, offsetof(struct state, seed),
     "seed of the draws"},
};

static uint32_t count(const void *state, const struct request *request, uint32_t *repeat) {
    (void)state;
    return even_steps_count(request, repeat);
}

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    *out = (struct decode_rule){
        .kind = DECODE_COUNT, .rank = RANK_DRAW, .key = rng_key(state->seed, request->id, 0)};
}

const struct decoder decoder_random = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "random",
               .doc = "the same number of positions in every step, at random; blind to the model",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .count = count,
    .rule = rule,
};
