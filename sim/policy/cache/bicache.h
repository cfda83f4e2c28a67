/* The state of a cache whose leading layers take shared prefixes over (CACHE_LEADS). */
#ifndef UNMASK_SIM_POLICY_CACHE_BICACHE_H
#define UNMASK_SIM_POLICY_CACHE_BICACHE_H

#include "sim/policy/cache/cache.h"

struct bicache {
    double depth, share;
    uint32_t interval_steps;
    uint32_t layers; /* the system's word: what `depth` is of its model; 0: not known yet */
};

#endif
