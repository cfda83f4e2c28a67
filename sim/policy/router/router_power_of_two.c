/* Of two replicas drawn for each arrival, the one with fewer output positions to commit; the first
 * drawn of equals. (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001.)
 * The draw hangs on the request alone. */
#include "sim/policy/router/router.h"

/* SplitMix64 (Steele, Lea, Flood 2014): one step from `x`. */
static uint64_t mixed(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    const struct replica_view *replicas = view->replicas;
    const uint32_t n = view->n;
    (void)until_ns;
    (void)state;
    const uint64_t draw = mixed(request->id);
    const uint32_t one = (uint32_t)(draw >> 32) % n;
    const uint32_t other = n > 1 ? (one + 1 + (uint32_t)draw % (n - 1)) % n : one;
    return replicas[other].outstanding_tokens < replicas[one].outstanding_tokens ? other : one;
}

const struct router router_power_of_two = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER,
               .size = sizeof(struct router),
               .name = "power-of-two",
               .doc = "the less loaded of two drawn replicas; looks at two, misses the emptiest"},
    .route = route,
};
