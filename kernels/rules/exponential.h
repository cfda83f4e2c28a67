/* e^x in single precision, the same bits on a CPU and on a GPU. */
#ifndef UNMASK_KERNELS_RULES_EXPONENTIAL_H
#define UNMASK_KERNELS_RULES_EXPONENTIAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/rules/portable.h"

/* Of -87 <= x <= 87, within a few units in the last place; e^0 is 1; NaN for NaN. The reduction and
 * the polynomial are those of expf.c in Moshier's Cephes Mathematical Library, 2.2. */
RULE_FUNCTION float exp_single(float x) {
    const float n = rintf(RULE_MULTIPLY(x, 1.44269504088896341f));
    const float r =
        RULE_ADD(RULE_ADD(x, RULE_MULTIPLY(n, -0.693359375f)), RULE_MULTIPLY(n, 2.12194440e-4f));
    float p = 1.9875691500e-4f;
    p = RULE_ADD(RULE_MULTIPLY(p, r), 1.3981999507e-3f);
    p = RULE_ADD(RULE_MULTIPLY(p, r), 8.3334519073e-3f);
    p = RULE_ADD(RULE_MULTIPLY(p, r), 4.1665795894e-2f);
    p = RULE_ADD(RULE_MULTIPLY(p, r), 1.6666665459e-1f);
    p = RULE_ADD(RULE_MULTIPLY(p, r), 5.0000001201e-1f);
    p = RULE_ADD(RULE_ADD(RULE_MULTIPLY(RULE_MULTIPLY(p, r), r), r), 1.0f);
    const uint32_t bits = x == x ? (uint32_t)((int32_t)n + 127) << 23 : 0x7fc00000u;
    float power;
    memcpy(&power, &bits, sizeof power);
    return RULE_MULTIPLY(p, power);
}

/* The logistic function in single precision, the same bits on a CPU and on a GPU, so that both
 * choose the same experts by it. */

/* 1 / (1 + exp(-x)) within a few units in the last place; NaN for NaN. */
RULE_FUNCTION float sigmoid_single(float x) {
    const float most = 87.0f; /* exp(87) is still finite */
    const float z = x > most ? -most : x < -most ? most : -x;
    return RULE_DIVIDE(1.0f, RULE_ADD(1.0f, exp_single(z)));
}

#endif
