/* The formats that `unmask trace convert` writes. */
#ifndef UNMASK_EXPERIMENTS_COMMAND_TRACE_TARGETS_H
#define UNMASK_EXPERIMENTS_COMMAND_TRACE_TARGETS_H

#include <stdbool.h>
#include <stdio.h>

#include "analysis/trace_facts.h"
#include "sim/base/err.h"

/* Which columns of the plain format the rows have besides times and lengths. */
struct beside {
    bool tenant, prefix, answer, session, think, group;
};

struct target {
    const char *name;
    void (*head)(FILE *out, const struct beside *has);
    void (*row)(FILE *out, const struct arrival *row, const struct beside *has);
    bool has_times, has_beside, has_sessions; /* what it can hold */
};

/* NULL, with ERR_USAGE and the nearest name, where none is called so. */
const struct target *target_find(const char *name, struct err *err);

struct beside beside_of(const struct arrivals *arrivals);

#endif
