/* Asked twice: stands between the serving loop and a policy in a trial. Each question is put to the
 * policy twice, with other bytes where it writes its answer; the answers must be alike, and hold
 * for as many steps as they say. Whether an answer is one that the policy may give, the loop says,
 * as in every run. */
#ifndef UNMASK_SIM_POLICY_CHECK_TWICE_H
#define UNMASK_SIM_POLICY_CHECK_TWICE_H

#include <signal.h>

#include "sim/policy/plugin/any_policy.h"

enum { TWICE_CALLBACK_CHARS = 16 };

struct twice {
    /* Read from another process while a call is under way. */
    char callback[TWICE_CALLBACK_CHARS]; /* being executed, else "" */
    volatile uint64_t n_calls;           /* of the policy */

    uint64_t n_decisions, most_decisions; /* of a scheduler that selected something */
    bool drops_words;                     /* they go with some decoders alone */
    bool lasts_hours; /* whether requests that are passed over for hours are found */
    uint64_t n_preempted, n_swapped, n_chunks, n_idle, n_evictions, n_rejected, n_held, n_moved;
    volatile sig_atomic_t stop; /* set with err, and once there were most_decisions */
    struct err err;             /* the first answer that was not the same */
};

/* The policy's callbacks become those that ask twice, with the same state, and *twice is what they
 * write to: of one policy at a time. */
void twice_wrap(struct twice *twice, union any_policy *policy);

#endif
