/* The two numbers of iteration smoothing by a request's steps so far, shared by the simulator, the
 * kernels and their reference implementations. Double precision, one rounding an operation.
 */
#ifndef UNMASK_KERNELS_RULES_SMOOTH_H
#define UNMASK_KERNELS_RULES_SMOOTH_H

#include <stdint.h>

#include "kernels/rules/portable.h"

/* min(init + growth step, most) */
RULE_FUNCTION double smooth_weight(double init, double growth, double most, uint32_t step) {
    const double grown = RULE_ADD2(init, RULE_MULTIPLY2(growth, (double)step));
    return grown < most ? grown : most;
}

/* max(1 - decay step, least) */
RULE_FUNCTION float smooth_threshold(double decay, uint32_t step, float least) {
    const float sunk = (float)RULE_ADD2(1.0, -RULE_MULTIPLY2(decay, (double)step));
    return sunk > least ? sunk : least;
}

#endif
