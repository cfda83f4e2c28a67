#include "sim/decode/smooth.h"

#include <float.h>
#include <math.h>

#include "kernels/rules/smooth.h"

double smoothing_weight(const struct smoothing *smoothing, uint32_t i) {
    return i == 0 ? 0
                  : smooth_weight(smoothing->weight_init, smoothing->weight_growth,
                                  smoothing->weight_most, i - 1);
}

float smoothing_threshold(const struct smoothing *smoothing, uint32_t i, float threshold) {
    return smooth_threshold(smoothing->threshold_decay, i, threshold);
}

/* Rounding to single precision must not leave the open interval. */
void smoothing_raise(const struct smoothing *smoothing, uint32_t i, uint32_t n, float *confidence) {
    double factor = exp(smoothing->gain * smoothing_weight(smoothing, i)); /* of the odds */
    for (uint32_t at = 0; at < n && factor != 1; at++) {
        double p = confidence[at];
        double raised = p * factor / (1 - p + p * factor);
        confidence[at] = p > 0 ? fminf((float)raised, 1 - FLT_EPSILON / 2) : 0;
    }
}
