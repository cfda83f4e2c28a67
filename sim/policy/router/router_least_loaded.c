/* An arrival goes to the replica with the fewest output positions still to commit; ties to the
 * lowest index. */
#include "sim/policy/router/router.h"

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    const struct replica_view *replicas = view->replicas;
    const uint32_t n = view->n;
    (void)until_ns;
    (void)state;
    (void)request;
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = replicas[i].outstanding_tokens < replicas[best].outstanding_tokens ? i : best;
    }
    return best;
}

const struct router router_least_loaded = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER,
               .size = sizeof(struct router),
               .name = "least-loaded",
               .doc = "fewest uncommitted output positions; ignores prompt lengths"},
    .route = route,
};
