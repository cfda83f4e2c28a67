/* Takes turns, and keeps whose turn it is in a static variable. The same request, asked for again,
 * goes where it went. */
#include "sim/policy/router/router.h"

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    static uint64_t last, turn;
    (void)state, (void)until_ns;
    turn += last != request->id + 1;
    last = request->id + 1;
    return (uint32_t)((turn + turn / 3) % view->n);
}

const struct router unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                .kind = POLICY_ROUTER,
                                                .size = sizeof(struct router),
                                                .name = "turns",
                                                .doc = "takes turns, whatever there is to do"},
                                     .route = route};
