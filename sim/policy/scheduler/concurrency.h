/* How many requests to run at once, and which of their passes to take into one step.
 *
 * Running requests share every step. While steps are bound by what they read anyway, one request
 * more costs the others little; beyond the knee of that curve it costs what they do, makes nothing
 * faster and all slower. What a request costs when n like it run side by side follows from its
 * passes to come (struct schedule_view's foresee), spread evenly: each step has the mean number of
 * full passes, and narrow passes for the rest. Of all n that one is taken for which
 *
 *     cost(n) (Q + n / 10)
 *
 * is least, Q the requests that are there: it takes cost(n) Q until the last of them is done, and
 * the more run at once the longer each of them takes. So few run while few wait, and as many as
 * pay when many do. The tenth was chosen on dLLM-Serve's workloads on L40S, RTX 4090 and H200, of
 * 0.05 to 3. Costs are averaged over the requests that come to stand at the head of the queue, and
 * over neighbouring n, since a length's own steps may fall just on one side of a tile of the
 * GPU's.
 *
 * Full passes of several requests that fall on one step may cost more than one after the other, as
 * long products do on an L40S: then the later ones wait for the next step, and stay apart from then
 * on. And a step that ends just over the edge of a tile of the GPU's pays for the whole tile: of
 * its narrow passes the last ones, up to `put_off`, wait for the next step where that makes a query
 * token of this one cheaper. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_CONCURRENCY_H
#define UNMASK_SIM_POLICY_SCHEDULER_CONCURRENCY_H

#include <stdbool.h>

#include "sim/policy/scheduler/order.h"

enum { CONCURRENCY_TRIED = 22, CONCURRENCY_MOST = 256, CONCURRENCY_RANKED = 512 };

/* A scheduler's own, zeros at first but for its parameter. */
struct concurrency {
    uint32_t put_off; /* narrow passes of a step that may wait for the next one, at most */
    double cost_ns[CONCURRENCY_TRIED]; /* of a request's steps, each; by the number tried */
    uint64_t priced;                   /* id + 1 of the last request that they were priced by */
    double share_full;                 /* of their steps, that is full passes */
    double step_ns;                    /* of a step of as many as were last found best */
};

/* The parameter, where the state has it at `offset`. */
#define CONCURRENCY_PARAM(offset)                                                                  \
    {                                                                                              \
        "put_off", PARAM_U32, 0, "requests", "16", 0, CONCURRENCY_MOST, NULL, offset,              \
            "narrow passes that may wait for the next step where tokens are cheaper without"       \
    }

/* How many should run, 1 to CONCURRENCY_MOST. Prices anew when another request stands at the head
 * of the queue. */
uint32_t concurrency_best(struct concurrency *c, const struct schedule_view *view);

/* Lists candidates, in their order, as many as `most`, as far as tokens and memory go, and admits
 * none after one that does not fit; the first one that may run takes part in any case. */
void concurrency_list(const struct concurrency *c, const struct schedule_view *view,
                      const struct candidate *candidates, uint32_t n, uint32_t most,
                      struct batch *batch);

/* As many as should run of all that run and wait, in their order. A request that runs is paused,
 * with what it holds, for one that waits and has a lower key. */
void concurrency_schedule(struct concurrency *c, const struct order_use *use, struct batch *batch);

/* Whether the request's next step runs more than its active block. */
static inline bool is_full_pass(const struct span *span) {
    return span->phase == PHASE_REFRESH || span->phase == PHASE_PREFILL;
}

#endif
