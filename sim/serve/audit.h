/* The books at the end of a run: everybody who arrived has left, and nobody holds anything. */
#ifndef UNMASK_SIM_SERVE_AUDIT_H
#define UNMASK_SIM_SERVE_AUDIT_H

#include "sim/serve/lifecycle.h"

/* After a run without an error, interrupted ones included. Books that do not balance are our own
 * mistake, whatever plug-in took part: what policies may do was checked at every step. */
void audit_run(struct lifecycle *life);

#endif
