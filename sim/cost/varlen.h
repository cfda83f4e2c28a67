/* Single queries in an attention kernel for variable lengths, as FlashAttention-2 serves them.
 *
 * One call takes a step's prefills and single queries together where there are both; where there
 * are none but single queries, long sequences are split among thread blocks only as long as the
 * batch would leave the device idle (num_splits_heuristic in csrc/flash_attn/flash_api.cpp: under
 * 0.8 of two thread blocks a multiprocessor). Unsplit, the longest sequences outlast the rest. */
#ifndef UNMASK_SIM_COST_VARLEN_H
#define UNMASK_SIM_COST_VARLEN_H

#include "sim/cost/profile.h"
#include "sim/graph/shape.h"

/* The time of the step's single queries, `spans`, which take `uniform_ns` by themselves when all
 * lengths are equal. Lengths are those of shape->spans, where these are known. */
double varlen_single_ns(const struct profile *profile, const struct step_shape *shape,
                        const struct profile_spans *spans, double uniform_ns,
                        enum profile_match *match);

#endif
