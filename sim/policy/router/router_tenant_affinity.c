/* Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, arXiv 1608.01350): a
 * tenant's requests go to the replica that its hash names, and to the next one after it while that
 * has more than (1 + slack) times the mean of requests, this one counted. So what a tenant left in
 * a replica's memory is found again, and no replica is much busier than the others. */
#include <math.h>

#include "sim/policy/router/router.h"

static const struct param params[] = {
    {"slack", PARAM_F64, 0, "1", "0.25", 0, 1000, NULL, 0,
     "share by which a replica's requests may exceed the mean before the next one is taken"},
};

/* SplitMix64 (Steele, Lea, Flood 2014): one step from `x`. */
static uint64_t mixed(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static uint64_t load_of(const struct replica_view *replica) {
    return (uint64_t)replica->n_running + replica->n_waiting;
}

static uint32_t route(void *opaque, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    const double slack = *(const double *)opaque;
    uint64_t there = 1;
    uint32_t i = 0;
    (void)until_ns;
    do { /* there is one at least */
        there += load_of(&view->replicas[i]);
    } while (++i < view->n);
    const double most = ceil((1 + slack) * (double)there / view->n);
    uint32_t at = (uint32_t)(mixed(request->tenant) % view->n);
    while ((double)load_of(&view->replicas[at]) + 1 > most) { /* not all have more than the mean */
        at = (at + 1) % view->n;
    }
    return at;
}

const struct router router_tenant_affinity = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER,
               .size = sizeof(struct router),
               .state_bytes = sizeof(double),
               .name = "tenant-affinity",
               .doc =
                   "a tenant's own replica while its load is near the mean; counts requests alone",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .route = route,
};
