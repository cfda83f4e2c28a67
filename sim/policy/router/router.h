/* Routers: to which replica an arriving request goes. */
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
    uint32_t shared_tokens; /* of the request's prompt, what its conversation left here */
};

struct router {
    struct policy policy;
    /* Index of the chosen replica, < n. */
    uint32_t (*route)(void *state, const struct request *request,
                      const struct replica_view *replicas, uint32_t n);
};

extern const struct router *const router_table[];
extern const size_t router_table_size;

#endif
