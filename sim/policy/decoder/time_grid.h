/* Dream's time grid (dream-org/Dream diffusion_generate): time falls linearly from 1 to `epsilon`
 * in as many steps as a block has; a step from t to s releases the share 1 - s / t of what is
 * masked, the last one all.
 *
 * Where the released code would release none, which leaves the canvas as it was for the next step
 * to see again, one position is released; so that a block may be done before its steps are.
 *
 * Its alg_temp, above 0, draws as many positions without replacement, by softmax of what they are
 * ranked by over alg_temp, instead of taking the best; draws are keyed by request, step and
 * position. */
#ifndef UNMASK_SIM_POLICY_DECODER_TIME_GRID_H
#define UNMASK_SIM_POLICY_DECODER_TIME_GRID_H

#include <stddef.h>

#include "sim/base/param.h"
#include "sim/base/rng.h"
#include "sim/decode/rule.h"
#include "sim/policy/request.h"

struct time_grid {
    double epsilon;
};

/* `field`: of a struct time_grid in a decoder's state, or all of it. */
#define TIME_GRID_PARAM(state, field)                                                              \
    {                                                                                              \
        "epsilon", PARAM_F64, 0, "1", "0.001", 0, 0.5, NULL, offsetof(state, field),               \
            "time at which the last step ends"                                                     \
    }

/* The state of a decoder that ranks positions; the grid stands first. */
struct time_grid_ranked {
    struct time_grid grid;
    double alg_temp;
    uint32_t seed;
};

#define TIME_GRID_RANKED_PARAMS                                                                    \
    TIME_GRID_PARAM(struct time_grid_ranked, grid.epsilon),                                        \
        {"alg_temp",                                                                               \
         PARAM_F64,                                                                                \
         0,                                                                                        \
         "1",                                                                                      \
         "0",                                                                                      \
         0,                                                                                        \
         1e6,                                                                                      \
         NULL,                                                                                     \
         offsetof(struct time_grid_ranked, alg_temp),                                              \
         "positions are drawn by softmax(rank / alg_temp) (0: the best)"},                         \
    {                                                                                              \
        "seed", PARAM_U32, 0, "1", "1", 0, UINT32_MAX, NULL,                                       \
            offsetof(struct time_grid_ranked, seed), "seed of the draws [decoder.alg_temp > 0]"    \
    }

/* The rule of such a decoder. */
static inline struct decode_rule time_grid_rule(const struct time_grid_ranked *state,
                                                const struct request *request,
                                                enum decode_rank rank) {
    struct decode_rule rule = {.kind = DECODE_COUNT, .rank = rank};
    if (state->alg_temp > 0) {
        rule.temperature = (float)state->alg_temp;
        rule.key = rng_key(state->seed, request->id, window_steps(request));
    }
    return rule;
}

/* s / t of the request's next step; 0 in the last. */
static inline double time_grid_left(const struct time_grid *grid, const struct request *request) {
    double step = (1 - grid->epsilon) / request->steps_per_block;
    double t = 1 - step * window_steps(request);
    return window_steps(request) + 1 < request->steps_per_block ? (t - step) / t : 0;
}

/* The `count` of a decoder whose state is or begins with a struct time_grid. */
static inline uint32_t time_grid_count(const void *grid, const struct request *request,
                                       uint32_t *repeat) {
    double left = time_grid_left(grid, request);
    uint32_t n = (uint32_t)(window_masked(request) * (1 - left));
    *repeat = 1;
    return n > 0 ? n : 1;
}

#endif
