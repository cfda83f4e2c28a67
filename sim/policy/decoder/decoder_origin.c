/* Dream's origin (diffusion_generate, alg = origin): every masked position is released with the
 * share that the time grid releases in a step, whatever the model says of it; where chance releases
 * none, the one that was nearest to it. Draws are keyed by request, step and position. */
#include "sim/base/rng.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/decoder/time_grid.h"

struct state {
    struct time_grid grid;
    uint32_t seed;
};

static const struct param params[] = {
    TIME_GRID_PARAM(struct state, grid.epsilon),
    {"seed", PARAM_U32, 0, "1", "1", 0, UINT32_MAX, NULL, offsetof(struct state, seed),
     "seed of the draws"},
};

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct state *state = opaque;
    *out = (struct decode_rule){
        .kind = DECODE_THRESHOLD,
        .rank = RANK_DRAW,
        .threshold = (float)time_grid_left(&state->grid, request),
        .key = rng_key(state->seed, request->id, window_steps(request)),
    };
}

const struct decoder decoder_origin = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct state),
               .name = "origin",
               .doc =
                   "positions at random, as many as Dream's time grid expects; blind to the model",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
};
