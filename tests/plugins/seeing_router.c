/* Sends every request to the first replica; holds back what would wait there, until a time or a
 * change, and moves what waits to a replica that has nothing to do. */
#include "sim/policy/router/router.h"

struct state {
    uint32_t most;
    int64_t hold_ns;
};

static const struct param params[] = {
    {"most", PARAM_U32, 0, "1", "4", 1, 1000, NULL, offsetof(struct state, most),
     "requests of the first replica beyond which others are held back"},
    {"hold", PARAM_I64, 0, "ns", "0", 0, 1e15, NULL, offsetof(struct state, hold_ns),
     "for how long at most; 0: until something changes"},
};

static uint32_t route(void *opaque, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    const struct state *state = opaque;
    const struct replica_view *first = &view->replicas[0];
    (void)request;
    if (first->n_running + first->n_waiting < state->most) {
        return 0;
    }
    *until_ns = state->hold_ns > 0 ? view->now_ns + state->hold_ns : *until_ns;
    return state->hold_ns > 0 && view->now_ns - request->arrival_ns >= 4 * state->hold_ns
               ? 0
               : ROUTE_HOLD;
}

static uint32_t move(void *state, const struct route_view *view, struct route_move *moves,
                     uint32_t capacity) {
    uint32_t n = 0;
    (void)state;
    for (uint32_t i = 1; i < view->n && n < capacity && n < view->replicas[0].n_waiting; i++) {
        const struct replica_view *other = &view->replicas[i];
        const uint32_t slot = view->replicas[0].waiting[n];
        if (other->n_running + other->n_waiting == 0 &&
            view->requests[slot].state == REQUEST_QUEUED) {
            moves[n++] = (struct route_move){slot, i};
        }
    }
    return n;
}

const struct router unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                .kind = POLICY_ROUTER,
                                                .size = sizeof(struct router),
                                                .state_bytes = sizeof(struct state),
                                                .name = "seeing",
                                                .doc = "holds back and moves",
                                                .params = params,
                                                .n_params = sizeof params / sizeof params[0]},
                                     .route = route,
                                     .move = move};
