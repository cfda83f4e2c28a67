/* The version of the policy descriptors, and what every descriptor starts with.
 *
 * A user's policy is a shared object that exports one const descriptor named `unmask_policy`; it
 * links against nothing of ours. Descriptors carry their ABI and their size, and are refused with
 * one sentence when either does not fit. */
#ifndef UNMASK_SIM_POLICY_ABI_H
#define UNMASK_SIM_POLICY_ABI_H

#include <stdint.h>

#include "sim/base/param.h"

enum { POLICY_ABI = 23 };

enum policy_kind {
    POLICY_SCHEDULER = 1,
    POLICY_CACHE = 2,
    POLICY_DECODER = 3,
    POLICY_ROUTER = 4,
};

/* First member of every descriptor. */
struct policy {
    uint32_t abi;         /* POLICY_ABI */
    uint32_t kind;        /* enum policy_kind */
    uint32_t size;        /* sizeof the whole descriptor */
    uint32_t state_bytes; /* the policy's own state, zeroed, then the parameters' initial values */
    const char *name, *doc;     /* doc: one line that also admits the weakness */
    const struct param *params; /* laid out in the state */
    uint64_t n_params;
};

#endif
