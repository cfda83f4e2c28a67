/* A ward: a layer between a plug-in and a run.
 *
 * A guard (guard.h) asks everything twice and is for check-plugin; a ward is for runs and costs
 * little: the plug-in is lent read-only memory or copies of its inputs, and writes its answers
 * into memory followed by unmapped pages. Writing to read-only memory or changing a list ends the
 * run with an error; so does a call that crashes, exits or does not return (call_watch.h). The
 * loop checks that the answer is allowed, as for built-in policies. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_WARD_H
#define UNMASK_SIM_POLICY_PLUGIN_WARD_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/policy/abi.h"

/* The descriptor through which `inner`, loaded from `path`, is called from now on; the same for the
 * same. Never freed. */
const struct policy *ward_policy(const struct policy *inner, const char *path);

/* Of a policy, which may be a ward's or another. Fresh memory of state_bytes: what stands around a
 * plug-in's own state. */
void ward_fill_state(const struct policy *policy, void *state);

/* A run begins with this state: from now on a load of the plug-in is called that was never called
 * before (object.h), whatever was asked of it since it was made. */
void ward_begin_run(const struct policy *policy, void *state);

/* The state is a copy of another, whose load of the plug-in it does not share. */
void ward_forget_world(const struct policy *policy, void *state);

/* Before a state's memory is freed. */
void ward_end_state(const struct policy *policy, void *state);

/* Memory that is written at one address and can only be read at another. */
struct lent {
    char *write, *read;
    size_t bytes;
    bool is_mapped;
};

/* Zeros. `is_lent` false: ordinary memory, read where it is written. */
void lent_open(struct lent *lent, size_t bytes, bool is_lent);
void lent_close(struct lent *lent);

/* The readable address of data written at `at`. */
static inline const void *lent_read(const struct lent *lent, const void *at) {
    return lent->read + ((const char *)at - lent->write);
}

#endif
