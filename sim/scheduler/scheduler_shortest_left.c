/* Shortest remaining service first (SRPT; of expected service where a decoder draws): those run
 * that have the least left to do, as many as finish soonest (concurrency.h), and a request that
 * runs is paused, with what it holds, for one that has less. On one machine that works off one
 * request at a time no order has a lower mean latency (Schrage, 1968).
 *
 * The guard against starvation: a request older than `patience` goes before all that arrived behind
 * it and before all younger ones, in order of arrival. So whatever arrives, it is done at most so
 * much later as the requests before it in that order take. */
#include "sim/scheduler/concurrency.h"
#include "sim/scheduler/service.h"

struct state {
    int64_t patience_ns;
    struct concurrency concurrency;
    struct service service;
};

static const struct param params[] = {
    {"patience", PARAM_I64, 0, "ns", "600 s", 0, 1e15, NULL, offsetof(struct state, patience_ns),
     "a request that has been there longer is not overtaken any more"},
    CONCURRENCY_PARAM(offsetof(struct state, concurrency.put_off)),
};

/* Those that are out of patience first, by age: their keys are negative. */
static double key_of(void *opaque, const struct schedule_view *view, uint32_t slot) {
    struct state *state = opaque;
    int64_t arrival_ns = view->requests[slot].arrival_ns;
    double steps;
    return view->now_ns - arrival_ns > state->patience_ns
               ? (double)(arrival_ns - view->now_ns)
               : service_left(&state->service, view, slot, &steps);
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    struct state *state = opaque;
    concurrency_schedule(&state->concurrency, view, key_of, state, batch);
}

const struct scheduler scheduler_shortest_left = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "shortest-left",
               .doc = "shortest remaining service first (SRPT); long requests wait, up to patience",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .schedule = schedule,
};
