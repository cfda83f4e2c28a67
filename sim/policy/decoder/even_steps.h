/* Even steps: a block of n positions in T steps commits n / T positions a step and one more in each
 * of the first n mod T (ML-GSAI/LLaDA generate.py, SDAR's get_num_transfer_tokens). */
#ifndef UNMASK_SIM_POLICY_DECODER_EVEN_STEPS_H
#define UNMASK_SIM_POLICY_DECODER_EVEN_STEPS_H

#include <stdbool.h>

#include "sim/decode/rule.h"
#include "sim/policy/window.h"

/* Positions to commit when `steps` (at least 1) steps decode a block. */
static inline uint32_t even_steps_of(const struct request *request, uint32_t steps,
                                     uint32_t *repeat) {
    uint32_t n = window_length(request);
    steps = steps < n ? steps : n;
    uint32_t base = n / steps, longer = n % steps;
    bool is_longer = window_steps(request) < longer;
    uint32_t commits = is_longer ? base + 1 : base;
    *repeat = is_longer ? longer - window_steps(request) : UINT32_MAX;
    return commits < window_masked(request) ? commits : window_masked(request);
}

/* A decoder's `count`. */
static inline uint32_t even_steps_count(const struct request *request, uint32_t *repeat) {
    return even_steps_of(request, request->steps_per_block, repeat);
}

/* Positions that a rule of DECODE_JOINT fills at least; 0: as it is without such a number. */
static inline uint32_t even_steps_least(const struct request *request,
                                        const struct decode_rule *rule) {
    uint32_t ignored;
    return rule->kind == DECODE_JOINT && rule->steps > 0
               ? even_steps_of(request, rule->steps, &ignored)
               : 0;
}

#endif
