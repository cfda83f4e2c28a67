/* When drafts are checked by what checks have won so far: the contextual bandit of S2D2's released
 * code (phymhan/S2D2 SDAR/generate_ssd_policy.py at 279500a, contextual_bandit_ucb; UCB1 in each of
 * a few cases). A case is how long the first run of masks is, how much of its block the request has
 * filled, and how unsure its drafts are on average, each of these in as many equal bins. A pass
 * that drafts is checked where the mean reward of checks in its case, and a bonus for how rarely it
 * was tried, is no less than that of passes that are not: the positions that such a pass commits,
 * or half of those that a check commits, which took two. */
#ifndef UNMASK_SIM_POLICY_DECODER_BANDIT_H
#define UNMASK_SIM_POLICY_DECODER_BANDIT_H

#include <stdbool.h>
#include <stdint.h>

enum { BANDIT_MOST_BINS = 4, BANDIT_MOST_CASES = 64 };

/* Of one request; zeros before its first pass. */
struct bandit {
    uint32_t n_asked; /* passes that it decided on */
    uint32_t waits;   /* 1 + the arm whose reward is to come; 0: none's is */
    struct {
        uint32_t n;
        double sum;                /* of rewards */
    } arms[2 * BANDIT_MOST_CASES]; /* of each case: not checked, checked */
};

/* A pass's case, from 0. run: masks of the first run, of a window of `length` positions, `filled`
 * of which the request has filled; unsure: mean entropy over its greatest, 0 to 1. */
uint32_t bandit_case(uint32_t bins, uint32_t run, uint32_t length, uint32_t filled, double unsure);

/* Whether a pass of that case is checked; explore: the bonus's factor. */
bool bandit_checks(struct bandit *bandit, uint32_t of, double explore);

/* That pass, or its check, committed n positions, at least 1; nothing where no reward is due. */
void bandit_learn(struct bandit *bandit, uint32_t n);

#endif
