/* The guard of routers. */
#include "sim/check/guard_parts.h"

#include <string.h>

static bool route_once(struct guard *guard, void *state, const struct request *request,
                       const struct replica_view *replicas, uint32_t n, uint32_t *index) {
    struct guard_scratch *scratch = guard->scratch;
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    memcpy(scratch->replicas, replicas, n * sizeof *replicas);
    guard_enter(guard, "route");
    *index = ((const struct router *)guard->inner)->route(state, &lent, scratch->replicas, n);
    guard_leave(guard);
    return guard_keeps_request(guard, &lent, request) &&
           guard_keeps(guard, PROMISE_READS,
                       memcmp(scratch->replicas, replicas, n * sizeof *replicas) == 0,
                       "writes to the view of the replicas, which it may only read") &&
           guard_keeps(guard, PROMISE_INDEX, *index < n, "chooses replica %u of %u, counted from 0",
                       *index, n);
}

uint32_t guarded_route(void *state, const struct request *request,
                       const struct replica_view *replicas, uint32_t n) {
    struct guard *guard = state;
    ASSERT(n >= 1 && n <= guard->scratch->max_slots);
    uint32_t first, second;
    memcpy(guard->scratch->state, guard->inner_state, guard->inner->state_bytes);
    bool kept = guard->err.kind == ERR_NONE &&
                route_once(guard, guard->scratch->state, request, replicas, n, &first) &&
                route_once(guard, guard->inner_state, request, replicas, n, &second) &&
                guard_keeps(guard, PROMISE_REPEATABLE, first == second,
                            "chooses replica %u, then %u when asked the same again", first, second);
    return kept ? second : 0;
}
