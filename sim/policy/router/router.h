/* Routers: to which replica a request goes, and when.
 *
 * A router is asked about each arrival. It may hold a request back, which then waits at the router,
 * and may move requests that wait from one replica to another. With one replica it is not asked.
 * Its promises, checked in every run: the replica exists, a time to ask again at is after now, what
 * it moves waits, and it holds nothing back for ever. */
#ifndef UNMASK_SIM_POLICY_ROUTER_ROUTER_H
#define UNMASK_SIM_POLICY_ROUTER_ROUTER_H

#include <stddef.h>

#include "sim/policy/abi.h"
#include "sim/policy/window.h"

struct replica_view {
    uint32_t n_running, n_waiting;
    int64_t kv_free_bytes;
    uint64_t outstanding_tokens; /* output positions not yet committed, waiting ones included */
    uint32_t n_whole; /* running requests whose next step computes their whole canvas, or prompt */
    uint32_t shared_tokens;  /* of the request's prompt, what its conversation left here */
    const uint32_t *waiting; /* slots of those that wait, in their order */
};

struct route_view {
    int64_t now_ns;
    uint64_t seed;                       /* of the run */
    const struct request *requests;      /* by slot */
    const struct replica_view *replicas; /* [n] */
    uint32_t n;
    uint32_t n_held; /* requests that are held back, without the one that is asked about */
};

enum { ROUTE_HOLD = UINT32_MAX };

struct route_move {
    uint32_t slot; /* of a request that waits at a replica */
    uint32_t to;   /* index of another replica, at the end of whose queue it then waits */
};

struct router {
    struct policy policy;
    /* Index of the chosen replica, < view->n, or ROUTE_HOLD: the request is held back, and asked
     * about again once a step has ended or a request has left somewhere, and at `*until_ns` (after
     * now; INT64_MAX before the call: at no time). Those that are held back are asked about in the
     * order of their arrival. */
    uint32_t (*route)(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns);
    /* May be NULL. Asked after steps have ended and requests have arrived, before schedulers are:
     * which waiting requests change their replica. Writes up to `capacity` moves, and returns how
     * many; no request twice. */
    uint32_t (*move)(void *state, const struct route_view *view, struct route_move *moves,
                     uint32_t capacity);
};

extern const struct router *const router_table[];
extern const size_t router_table_size;

#endif
