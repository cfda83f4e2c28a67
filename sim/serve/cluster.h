/* Several replicas: which of them are to be scheduled, and what routers see of each.
 *
 * Both are kept as they change, so that a turn of the loop costs what happened in it and not what
 * there is: hundreds of replicas are as quick, per step, as one. */
#ifndef UNMASK_SIM_SERVE_CLUSTER_H
#define UNMASK_SIM_SERVE_CLUSTER_H

#include "sim/serve/lifecycle.h"

void cluster_init(struct lifecycle *life);
void cluster_fini(struct lifecycle *life);

/* The replica is not what routers saw of it. */
static inline void cluster_changed(struct lifecycle *life, uint32_t index) {
    life->views_until_ns[index] = 0;
}

/* To be scheduled, as far as it is idle and has work. */
static inline void cluster_due(struct lifecycle *life, uint32_t index) {
    life->due[index / 64] |= UINT64_C(1) << index % 64;
}

/* The replica that served the conversation's previous request; no replica's index: there was none,
 * or it is not tracked (one replica). */
uint32_t cluster_home(struct lifecycle *life, uint64_t session);
void cluster_settle(struct lifecycle *life, uint64_t session, uint32_t replica);

/* Where a request goes, by the router's word, which may be no replica's index, or ROUTE_HOLD until
 * `*until_ns`. Only `home` has what
 * its conversation left. */
uint32_t cluster_route(struct lifecycle *life, uint32_t slot, uint32_t home, int64_t *until_ns);

/* Whether it may hold the request back so long: ERR_WORLD, or ERR_STARVES where it never stops. */
int cluster_check_hold(struct lifecycle *life, uint32_t slot, int64_t until_ns, struct err *err);

/* What the router moves, into life->moves; and whether it may move that. */
int cluster_moves(struct lifecycle *life, uint32_t *n, struct err *err);
int cluster_check_move(struct lifecycle *life, const struct route_move *move, struct err *err);

/* A request was queued: steps in flight end for it where the scheduler wants to be asked. */
void cluster_queued(struct lifecycle *life, uint32_t index);

/* The replica's batch is in flight, for `steps` steps. */
void cluster_flies(struct lifecycle *life, uint32_t index, uint32_t steps);

#endif
