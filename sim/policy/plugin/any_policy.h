/* A policy's descriptor of whatever kind, with callbacks of ours in the place of its own. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_ANY_POLICY_H
#define UNMASK_SIM_POLICY_PLUGIN_ANY_POLICY_H

#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/router/router.h"
#include "sim/policy/scheduler/scheduler.h"

union any_policy {
    struct policy policy; /* which all of them begin with */
    struct scheduler scheduler;
    struct cache_policy cache;
    struct decoder decoder;
    struct router router;
};

#endif
