/* An arrival, whose first step computes its whole canvas, goes where the fewest others are about to
 * do the same: requests that wait will, and running ones whose next step is a refresh or prefill.
 * Of equals, to the fewest output positions to commit; then to the lowest index. */
#include <stdbool.h>

#include "sim/policy/router/router.h"

static uint32_t n_whole(const struct replica_view *replica) {
    return replica->n_waiting + replica->n_whole;
}

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    const struct replica_view *replicas = view->replicas;
    const uint32_t n = view->n;
    (void)until_ns;
    (void)state;
    (void)request;
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t ours = n_whole(&replicas[i]), least = n_whole(&replicas[best]);
        const bool is_less = replicas[i].outstanding_tokens < replicas[best].outstanding_tokens;
        best = ours < least || (ours == least && is_less) ? i : best;
    }
    return best;
}

const struct router router_phase_aware = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER,
               .size = sizeof(struct router),
               .name = "phase-aware",
               .doc = "fewest requests about to compute a whole canvas; load breaks ties alone"},
    .route = route,
};
