/* How much a row has changed, as dLLM-Cache ranks rows (arXiv 2506.06295): the cosine distance
 * between what it is and what it was, of sums that ranks with parts of the row can add up.
 *
 * Sums of differences instead of products: rows that hardly changed differ in the last bits of a
 * cosine, where its order is chance, and in all bits of these. */
#ifndef UNMASK_KERNELS_RULES_CHANGE_H
#define UNMASK_KERNELS_RULES_CHANGE_H

#include <math.h>

#include "kernels/rules/portable.h"

/* Of a row n that was c: the sums over channels of (n - c)^2, (n - c)(n + c) and c^2. */
enum { CHANGE_SUMS = 3 };

/* One less the cosine; 1 where either is nothing, as a cosine of 0 (PyTorch's cosine_similarity,
 * whose epsilon is this). With lengths a and b, 2 a b (1 - cos) = (n - c)^2 - (a - b)^2. */
RULE_FUNCTION float change_of(const float *sums) {
    const double least = 1e-8, was = sums[2];
    const double is = RULE_ADD2(was, (double)sums[1]);
    const double a = is > 0 ? sqrt(is) : 0, b = was > 0 ? sqrt(was) : 0;
    if (a < least || b < least) {
        return 1.0f;
    }
    const double gap = RULE_DIVIDE2((double)sums[1], RULE_ADD2(a, b));
    const double twice = RULE_ADD2((double)sums[0], -RULE_MULTIPLY2(gap, gap));
    return (float)RULE_DIVIDE2(twice, RULE_MULTIPLY2(2.0, RULE_MULTIPLY2(a, b)));
}

#endif
