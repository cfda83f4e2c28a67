/* What the bounds of a process have found of a system and a list of passes: workloads that only
 * arrive faster or slower share it. The last KNOWN_MOST of them are kept. From any thread. */
#ifndef UNMASK_SIM_BOUND_KNOWN_H
#define UNMASK_SIM_BOUND_KNOWN_H

#include "sim/bound/machine.h"
#include "sim/bound/prices.h"

enum { KNOWN_MOST = 32 };

/* What it follows from. */
struct known_of {
    const char *system; /* all that prices follow from, as a text */
    const struct passes *passes;
    const struct pass_type *types; /* [PASS_TYPES], of passes_sum */
};

/* Of each request, in their order, what machine.h wants but its release, into `jobs`. */
bool known_take(const struct known_of *of, struct prices *prices, struct machine_job *jobs);
void known_keep(const struct known_of *of, const struct prices *prices,
                const struct machine_job *jobs);

#endif
