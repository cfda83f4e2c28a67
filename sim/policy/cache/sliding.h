/* The cache of a window that slides, for those who look at it (sim/system/system_refuse.c). */
#ifndef UNMASK_SIM_POLICY_CACHE_SLIDING_H
#define UNMASK_SIM_POLICY_CACHE_SLIDING_H

#include "sim/policy/cache/cache.h"

extern const struct cache_policy cache_sliding;

#endif
