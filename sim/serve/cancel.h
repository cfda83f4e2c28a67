/* Cancellation: a request is taken out before it is done, because who asked for it has left.
 *
 * Its time is known beforehand where a record is played again, and comes from outside where clients
 * are served. A request whose replica computes leaves at the end of that step, and steps that are
 * repeated end at their next border for it. What is left of the replica is audited each time. */
#ifndef UNMASK_SIM_SERVE_CANCEL_H
#define UNMASK_SIM_SERVE_CANCEL_H

#include "sim/serve/lifecycle.h"

/* The request in that slot is to be taken out from `cancel_ns` on; 0: it is not. */
void cancel_from(struct lifecycle *life, uint32_t slot, int64_t cancel_ns);

/* The request of that id, from now on; one that has left is left alone. */
void cancel_now(struct lifecycle *life, uint64_t id);

/* Takes out those whose time has come. */
int cancel_due(struct lifecycle *life, struct err *err);

#endif
