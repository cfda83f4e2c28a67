/* Requests that say themselves how their tokens are drawn: what a system makes of it, and what it
 * cannot honour. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_SAMPLING_H
#define UNMASK_SIM_SYSTEM_SYSTEM_SAMPLING_H

#include "kernels/rules/draw_rule.h"
#include "sim/base/err.h"
#include "sim/base/sampling.h"

struct system;

/* By what a request's tokens are drawn: by its own word, then the system's. */
struct draw_rule system_drawing(const struct system *system, const struct sampling *asked);

/* ERR_USAGE for what the system does not do. top_k and top_p change nothing of the most likely
 * token. */
int system_check_sampling(const struct system *system, const struct sampling *asked,
                          struct err *err);

#endif
