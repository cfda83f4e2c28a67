/* LLaDA's low-confidence remasking with a fixed schedule: a block of n positions in T steps commits
 * n / T positions a step and one more in each of the first n mod T (ML-GSAI/LLaDA generate.py). */
#include <stdbool.h>

#include "sim/policy/decoder.h"

static uint32_t count(const void *state, const struct request *request, uint32_t *repeat) {
    (void)state;
    uint32_t n = request->block_length;
    uint32_t steps = request->steps_per_block < n ? request->steps_per_block : n;
    uint32_t base = n / steps, longer = n % steps;
    bool is_longer = request->step_in_block < longer;
    uint32_t commits = is_longer ? base + 1 : base;
    *repeat = is_longer ? longer - request->step_in_block : UINT32_MAX;
    return commits < request->masked_in_block ? commits : request->masked_in_block;
}

const struct decoder decoder_fixed = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .name = "fixed",
               .doc = "the same number of positions in every step, the most confident first"},
    .count = count,
};
