/* Options of the command line that do something in some runs alone. */
#ifndef UNMASK_EXPERIMENTS_RUN_STATED_H
#define UNMASK_EXPERIMENTS_RUN_STATED_H

#include <stdint.h>

#include "sim/base/condition.h"
#include "sim/base/warning.h"

/* An option of the command line that something reads only where the condition at the end of its doc
 * holds (sim/base/condition.h). */
struct stated_option {
    const char *name, *value, *doc; /* value NULL: a flag */
};

/* A warning for each of those that were given, whose condition does not hold of the facts. */
void stated_warn(const struct stated_option *stated, uint32_t n, const struct facts *facts,
                 struct warnings *warnings);

#endif
