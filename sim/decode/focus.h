/* FOCUS's eviction: which tokens of a block continue after layer 1, or another (arXiv 2601.23278,
 * sections 4.1 and 4.2).
 *
 * The rule is the released code's (focus_select_and_enforce_ragged of its LMDeploy fork); where the
 * paper reads differently its reading is an option of struct focus_rule. Deltas are importance in
 * layer 1 less importance in layer 0, of the masked positions alone. In order:
 *
 *  1. K = min(n, max(1, ceil(alpha max(average, 1)))) of the n masked positions, in single
 *     precision as in the code and on devices. n <= K: all stay.
 *  2. The positions whose delta is at least mean + standard deviation (of the n, divisor n), if
 * they are K or more; else the K largest deltas, the earlier position on a tie. The paper's K =
 * max(ceil(alpha average), N_sigma) of Eq. 4 is the same.
 *  3. AR context: a masked position whose right neighbour is selected stays.
 *  4. Nothing selected (deltas that are not numbers): all stay.
 *  5. Placeholder integrity: left of the right-most one that stays, masked positions never run
 *     before in this block (beyond the frontier) stay, since later queries need their KV.
 *  6. Positions that are decoded but not yet cached always stay.
 *
 * What Table 3 compares puts k positions in the place of steps 1 and 2: those of the largest
 * deltas, of the smallest, or drawn; here also the left-most, and K of step 1 in the place of k. */
#ifndef UNMASK_SIM_DECODE_FOCUS_H
#define UNMASK_SIM_DECODE_FOCUS_H

#include <stdbool.h>
#include <stdint.h>

enum focus_history {
    FOCUS_MEAN_OF_BLOCK, /* cumulative mean, begun anew in each block (released code) */
    FOCUS_MEAN, /* cumulative mean over all blocks (Eq. 17 to 19 with E.3.1's "preserved") */
    FOCUS_EMA,  /* exponential moving average over all blocks (the paper's words) */
};

enum focus_choice {
    FOCUS_SURGE, /* steps 1 and 2; the others: k positions (Table 3) */
    FOCUS_TOP,
    FOCUS_RANDOM,
    FOCUS_BOTTOM,
    FOCUS_LEFT, /* the left-most ones, whatever the model says */
};

struct focus_rule {
    enum focus_choice choice;
    uint32_t k;     /* not of FOCUS_SURGE; 0: as many as step 1 says */
    uint64_t key;   /* of FOCUS_RANDOM: what a step draws (kernels/rules/keyed.h) */
    double alpha;   /* 1.5 in all results of the paper, 1.0 the code's default */
    bool std_alone; /* compare with the standard deviation, not mean + it (Eq. 5) */
    enum focus_history history;
    double ema_weight; /* of the newest count under FOCUS_EMA; the paper prints none */
};

/* Tokens decoded per step, as the budget knows it; passes that decode nothing do not count. */
struct focus_yield {
    float mean; /* 1 before the first count */
    double sum;
    uint32_t n;
};

void focus_yield_init(struct focus_yield *yield);
void focus_yield_begin_block(struct focus_yield *yield, const struct focus_rule *rule);
void focus_yield_add(struct focus_yield *yield, const struct focus_rule *rule, uint32_t decoded);

/* K of step 1; 0 when nothing is masked. */
uint32_t focus_target(uint32_t n_masked, double average, double alpha);

/* Sets keep[i] to 1 or 0 for each of `length` positions and returns how many are 1. `pending`: the
 * positions being run; `masked`: those of them still masked (entries that are not pending are
 * ignored); `delta` is read where both are set. `frontier`: right-most position kept so far, -1 for
 * none; with -1 in every step the rule is Algorithm 1's literal line 18. */
uint32_t focus_select(const struct focus_rule *rule, uint32_t length, const uint8_t *pending,
                      const uint8_t *masked, const float *delta, double average, int32_t frontier,
                      uint8_t *keep);

#endif
