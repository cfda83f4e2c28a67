/* The logistic function in single precision, the same bits on a CPU and on a GPU, so that both
 * choose the same experts by it. */
#ifndef UNMASK_KERNELS_RULES_SIGMOID_H
#define UNMASK_KERNELS_RULES_SIGMOID_H

#include "kernels/rules/exponential.h"

/* 1 / (1 + exp(-x)) within a few units in the last place; NaN for NaN. */
RULE_FUNCTION float sigmoid_single(float x) {
    const float most = 87.0f; /* exp(87) is still finite */
    const float z = x > most ? -most : x < -most ? most : -x;
    return RULE_DIVIDE(1.0f, RULE_ADD(1.0f, exp_single(z)));
}

#endif
