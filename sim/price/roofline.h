/* Roofline: an operator's time from its work and the best rates a GPU is known to reach.
 *
 * Used where a GPU has no profile, and by people as a bound. time = launch + max(flops / rate,
 * bytes / bandwidth), with the FLOPs of a product rounded up to whole 128 x 128 tiles. Products of
 * fp8 with fp8 have a rate of their own. */
#ifndef UNMASK_SIM_PRICE_ROOFLINE_H
#define UNMASK_SIM_PRICE_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/model/gpu.h"
#include "sim/step/op.h"

double roofline_ns(const struct gpu *gpu, const struct op_work *work);
double roofline_product_ns(const struct gpu *gpu, int64_t m, int64_t n, int64_t k,
                           const struct op_work *work);
/* Of this many bytes and nothing else. */
double roofline_bytes_ns(const struct gpu *gpu, double bytes);

/* Of `ns` of an operator whose bytes alone take memory `moving_ns`: what a lower clock stretches.
 * All of it where operations bind, nothing where memory does, and little between: a kernel does
 * both at once, so that the two times make its own as OVERLAP-th powers, which add up. On an H200
 * whose clock had fallen by a quarter, products of 256 rows took as much longer as those of 8,192,
 * where memory took two thirds of their time, and those of 128 a quarter as much, where it took
 * 0.87 of it (2026-11-22, experiments/gpu/transients.py; 1, which stood here before, has the
 * products of 256 rows at a third). */
#define OVERLAP 6.0
double stretched_ns(double ns, double moving_ns);

/* The floor: the least time that an operator can take, whatever a table of times says.
 *
 * Tables are timed in loops that find small weights and keys in the L2 cache, and are asked for
 * unmeasured shapes; in a step, what one layer leaves in the cache is gone before the
 * operator's next repetition. So the weights of a product, those of the experts that are hit, and
 * cached keys and values come from memory at no more than its peak; products take no less
 * than their FLOPs at the peak. Activations may stay in the L2 cache and have no floor. 0 on the
 * host's CPU, whose peaks are assumed and no data sheet's. */
double floor_ns(const struct gpu *gpu, const struct op_work *work);

#endif
