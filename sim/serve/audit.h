/* The audit at the end of a run: every request that arrived has left, and none holds memory. */
#ifndef UNMASK_SIM_SERVE_AUDIT_H
#define UNMASK_SIM_SERVE_AUDIT_H

#include "sim/serve/lifecycle.h"

/* After a run without an error, also an interrupted one. A failed audit is our own mistake, not a
 * plug-in's: what policies may do was checked at every step. */
void audit_run(struct lifecycle *life);

/* While a run goes on, after a request was taken out of a replica that computes nothing: what the
 * replica counts is what those that are left hold and need. */
void audit_replica(struct lifecycle *life, const struct replica *replica);

#endif
