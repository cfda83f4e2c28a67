/* A trial: the serving loop, as it is, over a fixed table of small workloads with one policy in it,
 * and over as many drawn ones: queues that overflow, pools that run out, prompts wider than a step,
 * slow clocks, several replicas, every kind of model and cache, blocks of any size. Every question
 * is asked twice (twice.h), and what the loop checks in every run it checks here. The same policy
 * meets the same work in every trial. */
#ifndef UNMASK_SIM_POLICY_CHECK_TRIAL_H
#define UNMASK_SIM_POLICY_CHECK_TRIAL_H

#include "sim/policy/check/twice.h"

enum { TRIAL_WORK_CHARS = 160, TRIAL_MOST_SERVED = 40 };

struct trial {
    struct twice twice;
    char work[TRIAL_WORK_CHARS]; /* being served */
    struct served {              /* those before it */
        char name[TRIAL_WORK_CHARS];
        uint64_t n_calls;
    } served[TRIAL_MOST_SERVED];
    uint32_t n_served;
    struct err refusal; /* of the last workload that does not go with such a policy */
    struct err err;
};

/* Serves all of it with `policy`, found under `name`: a built-in one's, or a plug-in's path; its
 * callbacks are those of twice.h after that. First with its initial parameter values, then, but
 * for few workloads, with every other value of each on/off and word parameter. Stops at the first
 * broken promise, which is in trial->err. */
void trial_run(struct trial *trial, const char *name, union any_policy *policy);

#endif
