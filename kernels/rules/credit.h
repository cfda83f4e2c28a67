/* Credit (dInfer): a token that stays the most likely one from step to step is made more likely. In
 * every pass over a masked position what its tokens have earned shrinks by beta, the most likely
 * one earns its probability to the power of gamma, and the logit of each grows by credit_bonus. A
 * new block starts without any. */
#ifndef UNMASK_KERNELS_RULES_CREDIT_H
#define UNMASK_KERNELS_RULES_CREDIT_H

#include <math.h>

#include "kernels/rules/portable.h"

RULE_FUNCTION float credit_faded(float earned, float beta) {
    return RULE_MULTIPLY(earned, beta);
}

RULE_FUNCTION float credit_earned(float earned, float p, float gamma) {
    return RULE_ADD(earned, (float)pow((double)p, (double)gamma));
}

RULE_FUNCTION double credit_bonus(float earned, float alpha) {
    return RULE_MULTIPLY2((double)alpha, log1p((double)earned));
}

#endif
