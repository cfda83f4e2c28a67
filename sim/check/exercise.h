/* An exercise: a policy driven through its guard over fixed random work.
 *
 * Schedulers run small closed worlds (their own decisions make the next view), cache policies and
 * decoders walk random requests to their end, routers see random replicas. Edge cases come first:
 * an empty view, a request that cannot fit, a full pool, a queue of a thousand. Schedulers that
 * grow run worlds with exact keys and values besides, whose pools run out and whose prompts do not
 * fit into a step; exact cache policies are walked through prefills in chunks, commit passes and
 * preemption. The same policy sees the same work in every run. */
#ifndef UNMASK_SIM_CHECK_EXERCISE_H
#define UNMASK_SIM_CHECK_EXERCISE_H

#include "sim/check/guard.h"

struct exercise {
    struct guard guard;                    /* of the variant under way; its err ends the exercise */
    uint64_t n_checked[PROMISE_COUNT];     /* over the variants before */
    uint64_t n_calls, n_preempted, n_idle; /* the same */
    char variant[128];                     /* "" or "stop_at_misfit = off" */
};

/* Runs `policy` with its initial parameter values, then with every other value of each on/off and
 * word parameter. Stops at the first broken promise, which is in exercise->guard.err with the
 * number of the call. */
void exercise_policy(struct exercise *exercise, const struct policy *policy);

#endif
