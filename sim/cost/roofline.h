/* Roofline: an operator's time from its work and the best rates a GPU is known to reach.
 *
 * Used where a GPU has no profile, and by people as a bound. time = launch + max(flops / rate,
 * bytes / bandwidth), with the work of a product rounded up to whole 128 x 128 tiles. */
#ifndef UNMASK_SIM_COST_ROOFLINE_H
#define UNMASK_SIM_COST_ROOFLINE_H

#include <stdint.h>

#include "sim/model/gpu.h"

double roofline_ns(const struct gpu *gpu, double flops, double bytes);
double roofline_gemm_ns(const struct gpu *gpu, int64_t m, int64_t n, int64_t k);

#endif
