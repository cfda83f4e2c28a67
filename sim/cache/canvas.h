/* Where a cache policy keeps the whole canvas (KEEPS_CANVAS): which positions a step runs. */
#ifndef UNMASK_SIM_CACHE_CANVAS_H
#define UNMASK_SIM_CACHE_CANVAS_H

#include <stdbool.h>

#include "sim/cache/cache.h"

/* Positions [first, end), all of them or without those of the active block that are left out. */
struct canvas_run {
    uint32_t first, end;
    bool all;
};

/* What request->span runs. */
struct canvas_run canvas_run_of(const struct cache_policy *cache, const void *state,
                                const struct request *request);

/* How many of the active block's positions are among them. */
uint32_t canvas_run_in_block(const struct cache_policy *cache, const void *state,
                             const struct request *request);

#endif
