/* The rule by which the built-in focus evicts, for whoever has it carried out elsewhere than in the
 * policy's own evict: a device, whose kernel is tested equal. Policies from plug-ins are asked. */
#ifndef UNMASK_SIM_CACHE_CACHE_FOCUS_H
#define UNMASK_SIM_CACHE_CACHE_FOCUS_H

#include "sim/cache/exact.h"
#include "sim/decode/focus.h"

/* false where the policy is another. Its memory of a request is a struct focus_yield. */
bool cache_focus_rule(const struct cache_policy *cache, const void *state, struct focus_rule *rule);

/* What it shares with the exact policies; of the built-in focus alone. */
const struct exact_state *cache_focus_exact(const void *state);

extern const struct cache_policy cache_focus;

#endif
