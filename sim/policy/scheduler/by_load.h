/* Requests that join as under `continuous`, and words for all of them while many are there; what is
 * common to schedulers that say other words. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_BY_LOAD_H
#define UNMASK_SIM_POLICY_SCHEDULER_BY_LOAD_H

#include <stdbool.h>

#include "sim/policy/scheduler/scheduler.h"

/* The first of a scheduler's state. Two numbers of requests keep it from swinging. */
struct by_load {
    uint32_t from, to;
    uint32_t is_loaded;
};

#define BY_LOAD_PARAMS(state)                                                                      \
    PARAM("from", PARAM_U32, state, load.from, "requests", "12", 1, 1000000,                       \
          "requests in the system from which on it counts as loaded"),                             \
        PARAM("to", PARAM_U32, state, load.to, "requests", "8", 0, 1000000,                        \
              "requests in the system down to which it stays loaded; below scheduler.from")

/* Fills the batch; whether the requests that it lists are to be said the words of a loaded system.
 * Words hold until a request is listed again, so that all are when the load changes. */
bool by_load_list(struct by_load *load, const struct schedule_view *view, struct batch *batch);

#endif
