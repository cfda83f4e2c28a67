/* Sizes that a step is rounded up to where the device itself decides how much goes on behind an
 * eviction: its launches are recorded once for each of a few sizes, and what is beyond the tokens
 * that stay is harmless work. The one rule by which the engine records, the cost model prices and
 * the planner makes room. */
#ifndef UNMASK_SIM_GRAPH_BUCKET_H
#define UNMASK_SIM_GRAPH_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/graph/shape.h"

/* The size for n tokens or rows, 0 for none: half a unit, one, then multiples of it up to 16, from
 * there on up to twice as many of twice the unit, and so on: beyond 16 units at most an eighth more
 * than asked for. unit: above 0. */
int64_t bucket_size(int64_t n, int64_t unit);

/* Requests are rounded up to so many. */
enum { BUCKET_REQUESTS = 64 };

/* Whether the device decides a step: some of its tokens may be evicted, none are prefilled. unit 0:
 * the host decides. */
bool bucket_applies(const struct step_shape *shape, int64_t unit);

/* What such a step runs over: tokens, kept tokens and logit rows as rounded. */
void bucket_round(struct step_shape *shape, int64_t unit);

/* What such a step has room for: the most that as many requests, rounded, may ask for, each a block
 * of block_tokens; never more than max_tokens, unless it asks for that. */
int64_t bucket_most(int64_t n_requests, int64_t block_tokens, int64_t max_tokens);
void bucket_widen(struct step_shape *shape, int64_t most);

#endif
