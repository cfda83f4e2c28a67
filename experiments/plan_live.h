/* What `unmask plan` says of a step's live bytes, to people and to programs. */
#ifndef UNMASK_EXPERIMENTS_PLAN_LIVE_H
#define UNMASK_EXPERIMENTS_PLAN_LIVE_H

#include <jansson.h>

#include "sim/memory/live.h"

/* The peak-to-average ratio of activation memory, which no planner changes. */
void plan_live_print_ratio(const struct live *live);
json_t *plan_live_ratio_json(const struct live *live);

/* What the peak of a placement is made of, by class of tensor, and its inflation. */
void plan_live_print_peak(const struct graph *graph, const struct placement *placement,
                          const struct live *live);
json_t *plan_live_peak_json(const struct graph *graph, const struct placement *placement,
                            const struct live *live);

#endif
