/* Policies by name: the built-in tables, or a shared object when the name holds a slash. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_REGISTRY_H
#define UNMASK_SIM_POLICY_PLUGIN_REGISTRY_H

#include <stdbool.h>

#include "sim/policy/abi.h"

extern const char *const policy_kind_names[]; /* by enum policy_kind */

/* The built-in descriptors of one kind. */
size_t policy_count(enum policy_kind kind);
const struct policy *policy_at(enum policy_kind kind, size_t index);

/* Whether it is built in: its answers are tested under the guard, and are not checked again while
 * it runs. */
bool policy_is_built_in(const struct policy *policy);

/* The descriptor, or NULL and a sentence naming the nearest known one. A loaded shared object stays
 * loaded. */
const struct policy *policy_find(enum policy_kind kind, const char *name, struct err *err);

/* Fresh state of a policy: zeroed, initial parameter values written. */
void *policy_state(const struct policy *policy);

/* A state for a replica or run of its own, with the same parameters: a plug-in's static variables
 * are as if nothing had called it yet. */
void *policy_state_for_run(const struct policy *policy, const void *state);

void policy_state_free(const struct policy *policy, void *state); /* NULL: nothing happens */

#endif
