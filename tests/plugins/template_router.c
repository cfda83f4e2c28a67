/* A router of your own: a starting point. It sends a request to where the fewest positions have yet
 * to be committed, and holds it back while every replica has too many waiting.
 *
 *   cc -std=c11 -shared -fPIC -I. -o my_router.so tests/plugins/template_router.c
 *   unmask check-plugin ./my_router.so
 *   unmask run --replicas 4 --router ./my_router.so
 *
 * The rules stand in sim/policy/router/router.h. A router that has `.move` may also send requests
 * that wait at one replica to another. */
#include "sim/policy/router/router.h"

struct state {
    uint32_t most_waiting;
};

static const struct param params[] = {
    {"most_waiting", PARAM_U32, 0, "1", "64", 1, 1000000, NULL,
     offsetof(struct state, most_waiting),
     "requests that wait at a replica, beyond which no other is sent there"},
};

static uint32_t route(void *opaque, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    const struct state *state = opaque;
    uint32_t best = ROUTE_HOLD;
    (void)request;
    (void)until_ns; /* asked again when something changes, not at a time */
    for (uint32_t i = 0; i < view->n; i++) {
        const struct replica_view *replica = &view->replicas[i];
        if (replica->n_waiting < state->most_waiting &&
            (best == ROUTE_HOLD ||
             replica->outstanding_tokens < view->replicas[best].outstanding_tokens)) {
            best = i;
        }
    }
    return best;
}

const struct router unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                .kind = POLICY_ROUTER,
                                                .size = sizeof(struct router),
                                                .state_bytes = sizeof(struct state),
                                                .name = "fewest-outstanding",
                                                .doc = "fewest positions to come; blind to memory",
                                                .params = params,
                                                .n_params = sizeof params / sizeof params[0]},
                                     .route = route};
