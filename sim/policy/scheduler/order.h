/* Requests in the order of a key, for schedulers that rank all that wait: the least key first, on a
 * tie those that run, then the earlier one.
 *
 * Keys change with time and with load, so that no order by them lasts. What lasts is kept from call
 * to call, in the scheduler's memory of each request (struct schedule_view's own): waiting requests
 * stand in groups, inside of which the order by keys never changes. A call then costs what came and
 * went since the last one, the first request of each group, and as many as it takes.
 *
 * Requests older than `patience` go before all others, in order of arrival. A group may begin with
 * requests that are late: their keys are ORDER_LATE less their age, and its others' are below. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_ORDER_H
#define UNMASK_SIM_POLICY_SCHEDULER_ORDER_H

#include <stdbool.h>

#include "sim/policy/scheduler/scheduler.h"

#define ORDER_LATE 1e18

/* A request that could take part. */
struct candidate {
    double key; /* the least first */
    uint32_t slot;
    bool waits; /* and is admitted if it takes part */
};

/* A part of a group, from the request that comes next to where it ends. */
struct order_part {
    double key;         /* of the one that comes next */
    uint32_t next, end; /* slot + 1; 0: none */
};

/* A scheduler's memory of a request; zeros when it arrives.
 *
 * Service is counted in query tokens: on GPUs that computation binds, full and narrow passes cost
 * about the same a token. What a whole request takes is what its passes to come add up to when it
 * is met first (struct schedule_view's foresee); of one that runs as much is left as of its output.
 * Where a decoder draws, that is the expected service. Policies by the distribution's hazard rate
 * (Gittins) differ from those by its mean only where a request that has run long is expected to run
 * the longer; blocks are drawn each for itself, so that here it is not. */
struct ranked {
    double tokens, steps; /* the service of the whole request; 0: not asked for yet */
    double group, rank;   /* the order of those that wait: by group, rank and place */
    uint64_t place;       /* the n-th that came to wait */
    uint32_t left, right, before, after; /* in the tree and the list of those that wait; slot + 1 */
    uint32_t where;                      /* enum order_where */
    uint32_t is_narrow; /* its first step may run no whole canvas or prompt, under prefix caching
                           from some time on */
    /* Room for 2 parts of groups during a call; those of the k-th group stand with slot k. */
    struct order_part parts[2];
};

/* Part of a scheduler's state, zeros at first. */
struct order {
    uint32_t root;             /* of a tree of those that wait and are in patience; slot + 1 */
    uint32_t n_ranked, n_aged; /* those that wait: in the tree, and out of patience */
    uint32_t n_narrow;         /* of both */
    uint64_t n_places;
};

/* How a scheduler ranks. `state` is its own. */
struct order_rules {
    /* Group and rank of a request that begins to wait and is in patience; met for the first time,
     * its tokens and steps are known. */
    void (*place)(const void *state, const struct request *request, struct ranked *ranked);
    /* The key now of a request in patience, of which `share` is left to do. */
    double (*key)(const void *state, const struct schedule_view *view,
                  const struct request *request, const struct ranked *ranked, double share);
};

struct order_use {
    struct order *order;
    const struct order_rules *rules;
    const void *state;
    const struct schedule_view *view;
    int64_t patience_ns;
};

/* Takes up what came to wait since the last call, and what was admitted and waits all the same. */
void order_sync(const struct order_use *use);

/* Those that run, by key, at most `most` of them; returns how many. */
uint32_t order_running(const struct order_use *use, struct candidate *out, uint32_t most);

/* Those that wait, one after the other; begin with zeros. */
struct order_walk {
    uint32_t n_aged, n_parts;
    bool is_begun;
};
bool order_next(const struct order_use *use, struct order_walk *walk, struct candidate *out);

/* What the batch admits does not wait any more. */
void order_admit(const struct order_use *use, const struct batch *batch);

#endif
