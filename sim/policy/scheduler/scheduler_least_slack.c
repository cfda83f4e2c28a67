/* Least slack first: of requests with an objective for their latency those run that can wait the
 * shortest time before they miss it, as many as finish soonest (concurrency.h). Slack is what is
 * left until arrival + objective, less the steps that the request has yet to take (expected ones
 * where a decoder draws), each as long as a step of that many requests. Tenants may have objectives
 * of their own.
 *
 * A request that can no longer be on time goes after all that can, where it makes none of them
 * late. The guard against starvation: one older than `patience` goes before all others, in order of
 * arrival. So whatever arrives, it is done at most so much later as the requests before it in that
 * order take. */
#include "sim/policy/scheduler/concurrency.h"

enum { TENANTS = 8 }; /* with objectives of their own, from the first on */

struct state {
    int64_t patience_ns, latency_ns[TENANTS];
    struct concurrency concurrency;
    struct order order;
};

#define OBJECTIVE(name, tenant, initial, doc)                                                      \
    {                                                                                              \
        name, PARAM_I64, 0, "ns", initial, 0, 1e15, NULL,                                          \
            offsetof(struct state, latency_ns) + (tenant) * sizeof(int64_t), doc                   \
    }

static const struct param params[] = {
    OBJECTIVE("latency", 0, "60 s", "objective: a request's latency from its arrival on"),
    {"patience", PARAM_I64, 0, "ns", "600 s", 0, 1e15, NULL, offsetof(struct state, patience_ns),
     "a request that has been in the system longer is not overtaken any more"},
    OBJECTIVE("latency_1", 1, "0", "objective for requests of tenant 1 (0: as latency)"),
    OBJECTIVE("latency_2", 2, "0", "objective for requests of tenant 2 (0: as latency)"),
    OBJECTIVE("latency_3", 3, "0", "objective for requests of tenant 3 (0: as latency)"),
    OBJECTIVE("latency_4", 4, "0", "objective for requests of tenant 4 (0: as latency)"),
    OBJECTIVE("latency_5", 5, "0", "objective for requests of tenant 5 (0: as latency)"),
    OBJECTIVE("latency_6", 6, "0", "objective for requests of tenant 6 (0: as latency)"),
    OBJECTIVE("latency_7", 7, "0", "objective for requests of tenant 7 (0: as latency)"),
    CONCURRENCY_PARAM(offsetof(struct state, concurrency.put_off)),
};

/* Whose objective the request has. */
static uint32_t objective_of(const struct state *state, const struct request *request) {
    return request->tenant < TENANTS && state->latency_ns[request->tenant] > 0 ? request->tenant
                                                                               : 0;
}

/* Of requests with as many steps to take and one objective the earlier one never has more slack. */
static void place(const void *opaque, const struct request *request, struct ranked *ranked) {
    ranked->group = ranked->steps * TENANTS + objective_of(opaque, request);
    ranked->rank = 0;
}

/* By slack; those that will be late last, by arrival. */
static double key(const void *opaque, const struct schedule_view *view,
                  const struct request *request, const struct ranked *ranked, double share) {
    const struct state *state = opaque;
    int64_t age_ns = view->now_ns - request->arrival_ns;
    int64_t latency_ns = state->latency_ns[objective_of(state, request)];
    double steps = share * ranked->steps;
    double slack_ns = (double)(latency_ns - age_ns) - steps * state->concurrency.step_ns;
    return slack_ns >= 0 ? slack_ns : ORDER_LATE - (double)age_ns;
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    static const struct order_rules rules = {place, key};
    struct state *state = opaque;
    const struct order_use use = {&state->order, &rules, state, view, state->patience_ns};
    concurrency_schedule(&state->concurrency, &use, batch);
}

const struct scheduler scheduler_least_slack = {
    .policy =
        {.abi = POLICY_ABI,
         .kind = POLICY_SCHEDULER,
         .size = sizeof(struct scheduler),
         .state_bytes = sizeof(struct state),
         .name = "least-slack",
         .doc = "least slack to each tenant's latency objective; requests that will be late wait",
         .params = params,
         .n_params = sizeof params / sizeof params[0]},
    .request_bytes = sizeof(struct ranked),
    .schedule = schedule,
};
