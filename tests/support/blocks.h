/* What test_decode.c and test_focus.c share. */
#ifndef UNMASK_TESTS_SUPPORT_BLOCKS_H
#define UNMASK_TESTS_SUPPORT_BLOCKS_H

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/rng.h"
#include "sim/decode/process_file.h"
#include "sim/decode/rollout.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/registry.h"
#include "sim/system/system.h"
#include "tests/support/suite.h"

enum { B = 32, MOST = ROLLOUT_MOST_POSITIONS };

/* Constants of no model: middling. */
static const struct decode_process middling = {.location = 1,
                                               .distance = 3,
                                               .gap = 4,
                                               .context = 1,
                                               .position_spread = 2,
                                               .step_spread = 1,
                                               .delta_distance = 3,
                                               .delta_noise = 2};

static inline struct decode_process random_process(struct rng *rng) {
    return (struct decode_process){.location = 8 * rng_uniform(rng) - 4,
                                   .distance = 6 * rng_uniform(rng),
                                   .gap = 0.1 + 8 * rng_uniform(rng),
                                   .context = 4 * rng_uniform(rng) - 1,
                                   .position_spread = 4 * rng_uniform(rng),
                                   .step_spread = 3 * rng_uniform(rng),
                                   .delta_distance = 20 * rng_uniform(rng),
                                   .delta_noise = 5 * rng_uniform(rng)};
}

static inline uint32_t below(struct rng *rng, uint32_t n) {
    return (uint32_t)(rng_uniform(rng) * n);
}

#endif
