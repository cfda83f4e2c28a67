/* Rolling out: blocks of a decode process, decoded one after another under a rule, and counted.
 *
 * No time passes and no batch exists; what is counted per token is what serving multiplies with
 * what a token costs. */
#ifndef UNMASK_SIM_DECODE_ROLLOUT_H
#define UNMASK_SIM_DECODE_ROLLOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/decode.h"
#include "sim/decode/block.h"
#include "sim/decode/focus.h"
#include "sim/decode/process.h"
#include "sim/decode/rule.h"
#include "sim/decode/smooth.h"

enum { ROLLOUT_MOST_POSITIONS = 256 };

struct rollout_rule {
    uint32_t block_tokens; /* at most ROLLOUT_MOST_POSITIONS */
    enum block_cache cache;
    bool evicts; /* FOCUS, by `focus` */
    struct focus_rule focus;
    struct decode_rule rule; /* draws are keyed anew in every pass, by the rule's key */
    uint32_t count;          /* of DECODE_COUNT: positions of a pass, as far as there are any */
    bool credits;            /* before the rule, by `credit` */
    struct decode_credit credit;
    bool ranks;   /* count decoded_in_top_quintile */
    bool smooths; /* iteration smoothing, by `smoothing` */
    struct smoothing smoothing;
    double temperature; /* that logits are divided by; 0: 1 */
    /* A request's text ends after this many of its positions; 0: it does not. */
    uint32_t answer_tokens;
    uint32_t fixed_tokens; /* how many of a request's first tokens are known before, fewer than a
                              block */
    /* Called for every denoising pass with what a decode trace would hold; where the rule evicts or
     * ranks, importances before are 0 and those after are the deltas. May be NULL. */
    void (*see)(void *state, const struct decode_positions *pass);
    void *see_state;
};

/* Sums over blocks. */
struct rollout {
    uint64_t blocks, decoded; /* positions after the end of text are not counted */
    uint64_t passes;          /* commit passes among them */
    uint64_t processed;       /* positions run, over all passes; in layers 0 and 1 under eviction */
    uint64_t kept;            /* the same in the later layers; equal to it without eviction */
    uint64_t of_count[ROLLOUT_MOST_POSITIONS + 1]; /* denoising passes, by positions decoded; 0 of
                                                      those that could revise alone */
    uint64_t revised;                              /* tokens that were given another one */
    /* Decoded tokens whose delta is in the top quintile of its pass (figures 4, 12 and 13 of the
     * FOCUS paper): the k-th largest of n masked positions is the percentile 1 - (k - 1/2) / n. */
    uint64_t decoded_in_top_quintile;
};

/* Adds `n` blocks of `request`, from its first on. */
void rollout_request(const struct decode_process *process, uint64_t seed, uint64_t request,
                     const struct rollout_rule *rule, uint32_t n, struct rollout *sums);

/* Decoded per denoising pass; positions kept per decoded token; share in the top quintile. */
double rollout_tokens_per_step(const struct rollout *sums);
double rollout_redundancy(const struct rollout *sums);
double rollout_top_quintile(const struct rollout *sums);

#endif
