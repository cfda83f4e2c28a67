/* Where the conversation left keys and values of the prompt's beginning, unless that replica has
 * more output positions to commit than the least loaded one and this prefix together: a prefix is
 * taken to be worth a position a token, assumed. Without one, to the least loaded. (As SGLang's
 * router, Zheng et al., arXiv 2312.07104, which gives up a prefix where loads are out of balance.)
 */
#include "sim/policy/router/router.h"

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    const struct replica_view *replicas = view->replicas;
    const uint32_t n = view->n;
    (void)until_ns;
    (void)state;
    (void)request;
    uint32_t least = 0, home = 0;
    for (uint32_t i = 1; i < n; i++) {
        least = replicas[i].outstanding_tokens < replicas[least].outstanding_tokens ? i : least;
        home = replicas[i].shared_tokens > replicas[home].shared_tokens ? i : home;
    }
    const uint64_t worth = replicas[least].outstanding_tokens + replicas[home].shared_tokens;
    return replicas[home].shared_tokens > 0 && replicas[home].outstanding_tokens <= worth ? home
                                                                                          : least;
}

const struct router router_prefix_aware = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER,
               .size = sizeof(struct router),
               .name = "prefix-aware",
               .doc = "where the conversation's prefix is, unless that is busier than it is worth"},
    .route = route,
};
