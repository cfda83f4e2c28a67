/* Floors: the least time that an operator can take on a GPU, whatever a table of times says.
 *
 * Tables are timed in loops that find small weights and keys in the L2 cache, and are asked for
 * shapes that nobody measured; in a step, what one layer leaves in the cache is gone before its
 * next turn. So the weights of a product, those of the experts that are hit, and cached keys and
 * values come from memory at no more than its peak; products take no less than their FLOPs at the
 * peak. Activations may stay in the L2 cache and have no floor. */
#ifndef UNMASK_SIM_COST_FLOOR_H
#define UNMASK_SIM_COST_FLOOR_H

#include "sim/graph/graph.h"
#include "sim/model/gpu.h"

/* Bytes that one execution over `rows` rows reads from memory: weights, those of `hits` experts
 * among them, and cached rows that a gather copies. Keys and values of attention are its spans'
 * (floor_span_bytes). */
double floor_bytes(const struct graph *graph, const struct op *op, double rows, double hits);

/* Cached keys and values that an attention operator reads at these sums: all but its own queries'.
 */
double floor_span_bytes(const struct graph *graph, const struct op *op,
                        const int64_t sym[SYM_COUNT]);

/* 0 on the host's CPU, whose peaks are assumed and no data sheet's. */
double floor_ns(const struct gpu *gpu, double flops, double bytes);

#endif
