/* What `unmask plan` says of a step's live bytes, to people and to programs. */
#ifndef UNMASK_EXPERIMENTS_CLI_PLAN_USAGE_H
#define UNMASK_EXPERIMENTS_CLI_PLAN_USAGE_H

#include <jansson.h>

#include "sim/memory/usage.h"

/* The peak-to-average ratio of activation memory, which no planner changes. */
void plan_usage_print_ratio(const struct usage *usage);
json_t *plan_usage_ratio_json(const struct usage *usage);

/* What the peak of a placement is made of, by class of tensor, and its inflation. */
void plan_usage_print_peak(const struct graph *graph, const struct placement *placement,
                           const struct usage *usage);
json_t *plan_usage_peak_json(const struct graph *graph, const struct placement *placement,
                             const struct usage *usage);

#endif
