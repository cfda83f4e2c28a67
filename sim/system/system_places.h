/* What outlasts a step, beside keys and values, of each position of the blocks that run: the credit
 * that decoders give, and the embeddings that iteration smoothing expects. Operators of a system's
 * graph, and memory. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_PLACES_H
#define UNMASK_SIM_SYSTEM_SYSTEM_PLACES_H

#include "sim/graph/builder.h"
#include "sim/system/system.h"

/* ERR_USAGE where there are no logits that credit could be added to, or embeddings made of. */
int system_check_places(const struct system *system, struct err *err);

/* The graph's options, and what is kept of each request that runs. That bounds how many run; where
 * nothing else does, as many as a step has blocks. */
void system_keep_places(struct system *system, struct graph_options *options);

#endif
