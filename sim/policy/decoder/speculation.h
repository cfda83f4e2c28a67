/* Self-speculation (S2D2, arXiv 2603.25702; phymhan/S2D2 generate_ssd_policy.py): a block model
 * whose blocks are one token long is autoregressive, and checks what it drafted with whole blocks.
 *
 * A pass over a block gives every masked position a draft. Then it either commits as a threshold
 * does, or nothing, and the next pass checks: it has twice the block's rows, the block with its
 * drafts and as many masks, the i-th of which sees what precedes the block, the tokens before it
 * and itself. Of the first run of neighbouring masks drafts are accepted from left to right, with
 * the chance q / p: by the check's row the draft's token has probability q, by the row that drafted
 * it p, at the temperature 1 that the released code takes for greedy runs too. At the first that is
 * not accepted a token is drawn from what of the check's distribution is above the draft's, and the
 * pass commits no more. Or a draft is accepted where the check's most likely token is the same
 * (`same`), and the first other one is replaced by that: what a model without blocks writes. */
#ifndef UNMASK_SIM_POLICY_DECODER_SPECULATION_H
#define UNMASK_SIM_POLICY_DECODER_SPECULATION_H

#include "sim/policy/cache/blocks.h"
#include "sim/policy/decoder/bandit.h"
#include "sim/policy/decoder/decoder.h"

enum speculation_when {
    SPECULATE_STATIC,  /* expected drafts - cost >= least */
    SPECULATE_DYNAMIC, /* expected drafts - cost * (drafts above the threshold) >= least */
    SPECULATE_SPAN,    /* a run of `span` masks or more */
    SPECULATE_BANDIT,  /* by what checks have won before (bandit.h) */
};

enum speculation_accept { ACCEPT_RATIO, ACCEPT_SAME };

struct speculation {
    uint32_t when;   /* enum speculation_when */
    uint32_t accept; /* enum speculation_accept */
    uint32_t span, bins, seed;
    double threshold, cost, least, hysteresis, explore;
};

/* Whether a pass that drafted so is checked by the next: the drafts that are expected to stand add
 * up the products of exp(-H / log V) along the first run, with H a position's entropy. Where the
 * drafts of the request's last pass were checked, `hysteresis` fewer suffice. bandit: the
 * request's, which is then told what the pass or its check commits; NULL unless SPECULATE_BANDIT.
 */
bool speculation_checks(const struct speculation *state, const struct request *request,
                        const struct decode_seen *seen, uint32_t vocab, struct bandit *bandit);

/* Whether requests have a bandit. */
static inline bool speculation_learns(const struct speculation *state) {
    return state->when == SPECULATE_BANDIT;
}

/* Whether the request's next step checks the drafts of its last one, under this decoder. */
static inline bool speculation_is_check(const struct request *request) {
    return blocks_decide(request) && window_earlier(request) > 0;
}

/* How many of seen->n positions stand in the first run of neighbouring masks. */
uint32_t speculation_run(const struct decode_seen *seen);

#endif
