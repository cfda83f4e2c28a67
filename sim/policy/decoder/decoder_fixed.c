/* LLaDA's low-confidence remasking with a fixed schedule (ML-GSAI/LLaDA generate.py; SDAR's
 * low_confidence_static).
 *
 * A published model's tokens a pass are no whole number of steps: with `steps` = 3.69 a request's
 * blocks take 3 or 4 steps each, in turn, so that their mean is exact; what is drawn is nothing. */
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/decoder/even_steps.h"

struct state {
    double steps;
};

static const struct param params[] = {
    {"steps", PARAM_F64, 0, "1", "0", 0, 65536, NULL, offsetof(struct state, steps),
     "mean steps of a block, at least 1 (0: steps_per_block)"},
};

/* Requests stand at different places of the same sequence. */
static uint32_t steps_of(double mean, const struct request *request) {
    double block = (double)(window_block(request) + request->id % 1024);
    uint32_t steps = (uint32_t)((uint64_t)((block + 1) * mean) - (uint64_t)(block * mean));
    return steps < 1 ? 1 : steps;
}

static uint32_t count(const void *opaque, const struct request *request, uint32_t *repeat) {
    const struct state *state = opaque;
    return state->steps > 0 ? even_steps_of(request, steps_of(state->steps, request), repeat)
                            : even_steps_count(request, repeat);
}

const struct decoder decoder_fixed = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "fixed",
               .doc = "the same number of positions in every step, the most confident first",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .count = count,
};
