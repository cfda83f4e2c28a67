/* What a decoder that gives credit makes of a system: an operator of its graph, and memory. */
#ifndef UNMASK_SIM_SERVE_SYSTEM_CREDIT_H
#define UNMASK_SIM_SERVE_SYSTEM_CREDIT_H

#include "sim/graph/builder.h"
#include "sim/serve/system.h"

/* ERR_USAGE where there are no logits that credit could be added to. */
int system_check_credit(const struct system *system, struct err *err);

/* The graph's options, and what is kept of each request that runs: credit for every position of a
 * block. That bounds how many run; where nothing else does, as many as a step has blocks. */
void system_keep_credit(struct system *system, struct graph_options *options);

#endif
