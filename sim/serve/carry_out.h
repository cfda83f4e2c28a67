/* A scheduler's decision carried out: who gives memory back, who takes it, who starts. */
#ifndef UNMASK_SIM_SERVE_CARRY_OUT_H
#define UNMASK_SIM_SERVE_CARRY_OUT_H

#include "sim/serve/lifecycle.h"

/* Preempts, lets those listed grow, cuts prefills to what the scheduler takes of them, admits. The
 * batch becomes that of those who do take part: under prefix caching, where a request was
 * preempted, they may be fewer than were listed. */
int carry_out(struct lifecycle *life, struct replica *replica, struct batch *batch,
              struct err *err);

#endif
