/* A system's host: whose machine its host times are of. Internal to the composition of a system. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_HOST_H
#define UNMASK_SIM_SYSTEM_SYSTEM_HOST_H

#include "sim/system/system.h"

/* Look the chosen host up and scale the runtime's host terms by it, and by `host.factor` where that
 * is set; the keys must have been applied. */
int system_take_host(struct system *system, const struct config *constants, struct err *err);

/* The profile of our own runtime says what its host costs; what was set by hand stays. */
void system_take_host_terms(struct system *system);

#endif
