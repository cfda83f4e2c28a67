/* Shortest remaining service first (SRPT; of expected service where a decoder draws): those run
 * that have the least left to do, as many as finish soonest (concurrency.h), and a request that
 * runs is paused, with what it holds, for one that has less. On one machine that works off one
 * request at a time no order has a lower mean latency (Schrage, 1968).
 *
 * The guard against starvation: a request older than `patience` goes before all that arrived after
 * it and before all younger ones, in order of arrival. So whatever arrives, it is done at most so
 * much later as the requests before it in that order take. */
#include "sim/policy/scheduler/concurrency.h"

struct state {
    int64_t patience_ns;
    struct concurrency concurrency;
    struct order order;
};

static const struct param params[] = {
    {"patience", PARAM_I64, 0, "ns", "600 s", 0, 1e15, NULL, offsetof(struct state, patience_ns),
     "a request that has been in the system longer is not overtaken any more"},
    CONCURRENCY_PARAM(offsetof(struct state, concurrency.put_off)),
};

/* What waits has all of its service to get, whatever happens meanwhile: one group. */
static void place(const void *state, const struct request *request, struct ranked *ranked) {
    (void)state, (void)request;
    ranked->group = 0;
    ranked->rank = ranked->tokens;
}

static double key(const void *state, const struct schedule_view *view,
                  const struct request *request, const struct ranked *ranked, double share) {
    (void)state, (void)view, (void)request;
    return share * ranked->tokens;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    static const struct order_rules rules = {place, key};
    struct state *state = opaque;
    const struct order_use use = {&state->order, &rules, state, view, state->patience_ns};
    concurrency_schedule(&state->concurrency, &use, batch);
}

const struct scheduler scheduler_shortest_left = {
    .policy = SCHEDULER_POLICY(
        "shortest-left",
        "shortest remaining service first (SRPT); long requests wait, up to patience", struct state,
        params),
    .request_bytes = sizeof(struct ranked),
    .schedule = schedule,
};
