/* Self-speculation (S2D2, arXiv 2603.25702; phymhan/S2D2 generate_ssd_policy.py): a block model
 * whose blocks are one token long is autoregressive, and checks what it drafted with whole blocks.
 *
 * A pass over a block gives every masked position a draft. Then it either commits as a threshold
 * does, or nothing, and the next pass checks: it has twice the block's rows, the block with its
 * drafts and as many masks, the i-th of which sees what precedes the block, the tokens before it
 * and itself. Of the first run of neighbouring masks the drafts are committed that such a row would
 * choose as well, from left to right, and at the first other one the row's own token. That is the
 * limit of the released code's rejection sampling at temperature 0, where both choose the most
 * likely token. */
#ifndef UNMASK_SIM_POLICY_DECODER_SPECULATION_H
#define UNMASK_SIM_POLICY_DECODER_SPECULATION_H

#include "sim/policy/decoder/decoder.h"

enum speculation_when {
    SPECULATE_STATIC,  /* expected drafts - cost >= least */
    SPECULATE_DYNAMIC, /* expected drafts - cost * (drafts above the threshold) >= least */
    SPECULATE_SPAN,    /* a run of `span` masks or more */
};

struct speculation {
    uint32_t when; /* enum speculation_when */
    uint32_t span;
    double threshold, cost, least;
};
extern const struct decoder decoder_self_speculation;

/* Whether a pass that drafted so is checked by the next: the drafts that are expected to stand add
 * up the products of exp(-H / log V) along the first run, with H a position's entropy. */
bool speculation_checks(const struct speculation *state, const struct decode_seen *seen,
                        uint32_t vocab);

/* How many of seen->n positions stand in the first run of neighbouring masks. */
uint32_t speculation_run(const struct decode_seen *seen);

#endif
