/* The two numbers of iteration smoothing, for kernels and reference implementations alike: double
 * precision, one rounding an operation, then single precision. */
#ifndef UNMASK_KERNELS_RULES_SMOOTH_H
#define UNMASK_KERNELS_RULES_SMOOTH_H

#include "kernels/calls_smooth.h"
#include "kernels/rules/portable.h"

RULE_FUNCTION float smooth_weight(const struct call_keep_expected *call, int32_t step) {
    const double grown =
        RULE_ADD2(call->weight_init, RULE_MULTIPLY2(call->weight_growth, (double)step));
    return (float)(grown < call->weight_most ? grown : call->weight_most);
}

RULE_FUNCTION float smooth_threshold(double decay, int32_t step, float least) {
    const float sunk = (float)RULE_ADD2(1.0, -RULE_MULTIPLY2(decay, (double)step));
    return sunk > least ? sunk : least;
}

#endif
