/* What schedulers see, and what they are told between their decisions. */
#ifndef UNMASK_SIM_SERVE_TELLING_H
#define UNMASK_SIM_SERVE_TELLING_H

#include "sim/serve/lifecycle.h"
#include "sim/serve/selection.h"

/* What the scheduler sees of a replica, where it estimates by `estimator`. */
struct schedule_view telling_view(const struct lifecycle *life, const struct replica *replica,
                                  const struct estimator *estimator);

/* One thing that happened to a request at a replica. ERR_WORLD: the scheduler asked what cannot be
 * answered. */
int telling_one(struct lifecycle *life, uint32_t index, enum happening_kind kind, uint32_t slot,
                struct err *err);

/* What became of a decision: which requests were preempted, and which started. */
int telling_decided(struct lifecycle *life, uint32_t index, const struct batch *batch,
                    struct err *err);

/* Steps of the replica's batch end: before anything of them is accounted for, and after. */
void telling_begin(struct lifecycle *life, const struct replica *replica);
int telling_steps(struct lifecycle *life, uint32_t index, uint32_t n, uint32_t steps, int64_t ns,
                  struct err *err);

#endif
