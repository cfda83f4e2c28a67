/* Requests that take turns: all that wait and run stand in one order, which is kept from call to
 * call by what a scheduler is told, and the first of them take part in a step, as many as memory,
 * tokens and places allow. A request that runs and is not among them is paused, with what it holds:
 * block diffusion can stop at the end of any pass. What is common to schedulers that differ in the
 * order.
 *
 * Where memory or places lack for one that stands further ahead, the last ones that run are
 * preempted: swapped out, if that is asked for and the host's memory has room, or else computed
 * anew later, if their caches are exact. Where neither can be it waits until one ends, and none
 * after it starts before. A scheduler of turns `grows`. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_TURNS_H
#define UNMASK_SIM_POLICY_SCHEDULER_TURNS_H

#include "sim/policy/scheduler/growth.h"
#include "sim/policy/scheduler/ranks.h"

/* Part of a scheduler's state, zeros at first. Its memory of each request is a struct ranked. */
struct turns {
    uint32_t at_once;  /* requests of a step; 0: as many as fit */
    uint32_t preempts; /* enum preempts */
    int64_t margin_ns; /* how much later the key of one that runs has to be than that of one
                          that waits, so that it is preempted for it, where keys are times */
    struct ranks running, waiting;
};

#define TURNS_PARAMS(state)                                                                        \
    PARAM("at_once", PARAM_U32, state, turns.at_once, "requests", "0", 0, 65536,                   \
          "requests that take part in a step (0: as many as fit)"),                                \
        PREEMPTS_PARAM(state, turns.preempts)

/* One that arrives, or that has another place in the order from now on: the least key first. */
void turns_put(struct turns *turns, struct ranked *own, uint32_t slot, double key);
void turns_move(struct turns *turns, struct ranked *own, uint32_t slot, double key);

/* Takes up a start, a preemption or an end. */
void turns_told(struct turns *turns, const struct schedule_view *view, const struct happening *h);

/* Those whose turn it is, until something changes; of those that wait the ones past their
 * latest_ns, as far as it gets, are rejected. Returns whether all that run and wait take part. */
bool turns_take(const struct turns *turns, const struct schedule_view *view, struct batch *batch);

#endif
