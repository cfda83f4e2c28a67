/* Arrivals go to the replicas in turn, whatever their load. */
#include "sim/policy/router/router.h"

struct state {
    uint32_t next;
};

static uint32_t route(void *opaque, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    const uint32_t n = view->n;
    (void)until_ns;
    struct state *state = opaque;
    (void)request;
    uint32_t chosen = state->next % n;
    state->next = chosen + 1;
    return chosen;
}

const struct router router_round_robin = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER,
               .size = sizeof(struct router),
               .state_bytes = sizeof(struct state),
               .name = "round-robin",
               .doc = "the replicas in turn; blind to load"},
    .route = route,
};
