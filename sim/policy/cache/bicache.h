/* BiCache, for those who look at it (sim/system). */
#ifndef UNMASK_SIM_POLICY_CACHE_BICACHE_H
#define UNMASK_SIM_POLICY_CACHE_BICACHE_H

#include "sim/policy/cache/cache.h"

struct bicache {
    uint32_t depth, interval_steps;
    double share;
};
extern const struct cache_policy cache_bicache;

#endif
