/* Which masked rows of a pass go last, whatever the decoder: on devices, which know the mask's id.
 * Policies do not, so that this is no part of decide.h, which plug-ins include. */
#ifndef UNMASK_KERNELS_RULES_PLACE_H
#define UNMASK_KERNELS_RULES_PLACE_H

#include <math.h>
#include <stdint.h>

#include "kernels/rules/portable.h"

/* What a masked row with this token is compared by: one that would be given the mask, and so stay
 * masked, goes after all others. */
RULE_FUNCTION float decide_place(float rank, int32_t token, int32_t mask) {
    return token != mask ? rank : -INFINITY;
}

#endif
