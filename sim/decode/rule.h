/* Rules of decoders: which masked positions a pass commits, by what the model says of each.
 *
 * Decoders are parameters around one of these rules (sim/policy/decoder_*.c); simulations and
 * rollouts apply decode_choose, the engine's device the kernel of the same rule
 * (kernels/decode/decode.cu, kernels/ref/twin_decode.c), with the same choices bit for bit:
 * everything is single precision, one rounding an operation. Where values are equal the earlier
 * position goes first, and at least one position is committed. */
#ifndef UNMASK_SIM_DECODE_RULE_H
#define UNMASK_SIM_DECODE_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* Kernels number kinds and ranks alike (enum kernel_rule and enum kernel_rank, kernels/calls.h). */
enum decode_kind {
    /* A number of positions that is known before the pass: those that rank first. */
    DECODE_COUNT,
    /* Those at or above min(threshold, best - slack), the best in any case; without slack it is
     * compared with the threshold alone (Fast-dLLM, arXiv 2505.22618, section 3.3; with slack,
     * dInfer's get_transfer_index_threshold). */
    DECODE_THRESHOLD,
    /* Best first, the n-th (from 1) as long as it is at or above 1 - factor / (n + 1); the first in
     * any case (Fast-dLLM, get_transfer_index_dynamic, which also takes the last of several when it
     * alone falls short; that is not followed). */
    DECODE_FACTOR,
    /* Of every longest run of neighbouring masked positions the best, when it is above `low`; all
     * above the threshold; the best of all in any case (dInfer's HierarchyDecoder). */
    DECODE_HIERARCHICAL,
    /* Best first, as long as their entropies, the next one's among them, add up to less than
     * `bound` nats; the first in any case (SDAR's entropy_bounded). */
    DECODE_ENTROPY_BOUNDED,
};
enum { DECODE_KINDS = DECODE_ENTROPY_BOUNDED + 1 };

/* What positions are compared by: the larger first. */
enum decode_rank {
    RANK_CONFIDENCE, /* probability of the most likely token */
    RANK_MARGIN,     /* less that of the second (Dream's topk_margin) */
    RANK_ENTROPY,    /* sum of p log p over the vocabulary, 0 where it is sure (Dream's entropy) */
    RANK_ORDER,      /* nothing: the earlier position first */
    RANK_DRAW,       /* a draw from [0, 1), a multiple of 2^-24, by key and position */
};
enum { DECODE_RANKS = RANK_DRAW + 1 };

/* Numbers that a kind or rank does not name are not read. */
struct decode_rule {
    uint32_t kind; /* enum decode_kind */
    uint32_t rank; /* enum decode_rank; RANK_ENTROPY under DECODE_ENTROPY_BOUNDED */
    float threshold, slack, low, factor, bound;
    /* Of DECODE_COUNT: positions are compared by their value plus this times decode_noise. Above 0
     * those that rank first are so drawn without replacement, each with probabilities proportional
     * to exp(value / temperature) among the positions left (Dream's alg_temp; Kool, van Hoof and
     * Welling, arXiv 1903.06059, section 2.2). 0: by their value alone. */
    float temperature;
    uint64_t key; /* of draws and noise */
};

/* Whether a rule's choice depends on its key. */
static inline bool decode_rule_draws(const struct decode_rule *rule) {
    return rule->rank == RANK_DRAW || rule->temperature > 0;
}

/* What a step says of a block's masked positions, in canvas order. */
struct decode_seen {
    uint32_t n;              /* positions asked for, >= 1 */
    uint32_t first;          /* the block's first position in the canvas */
    const uint32_t *offset;  /* [n], within the block, ascending; where masked positions are
                                missing in between, neighbours they are not */
    const float *confidence; /* [n], in (0, 1) */
    const float *margin;     /* [n], in [0, confidence]; NULL unless asked for */
    const float *entropy;    /* [n], <= 0; the same */
};

/* Sets commit[n] to 1 or 0 and returns how many are 1, at least 1. `count`: of DECODE_COUNT, from 1
 * to n. */
uint32_t decode_choose(const struct decode_rule *rule, const struct decode_seen *seen,
                       uint32_t count, uint8_t *commit);

/* The draw of RANK_DRAW for a position of the canvas. */
float decode_draw(uint64_t key, uint64_t position);

/* Standard Gumbel noise by key and position: -log(-log u) of u in (0, 1), an odd multiple of 2^-24;
 * from -2.82 to 16.64, within 4e-7 of its exact value relative to the larger of it and 1. The same
 * operations as keyed_noise (kernels/rules/keyed.h), and so the same bits. */
float decode_noise(uint64_t key, uint64_t position);

/* Credit (dInfer): a token that stays the most likely one from step to step is made more likely.
 * In every pass over a masked position what its tokens have earned shrinks by `beta`, the most
 * likely one earns its probability to the power of gamma, and the logit of each grows by
 * alpha log(1 + earned). A new block starts without any. */
struct decode_credit {
    float alpha, beta, gamma; /* 0.7, 0.8, 0.2 as released */
};

/* Tokens of a position that have credit, where they are a list: no more than the passes it has been
 * in, and so than its block has positions; of longer blocks the least are forgotten. */
enum { CREDIT_MOST_TOKENS = 64 };

/* The credit of a token that was the most likely with probability p. */
float credit_earn(const struct decode_credit *credit, float earned, float p);

/* The probability of a token whose logit its credit raises against unchanged others:
 * p e^b / (p e^b + 1 - p) with b = alpha log(1 + earned). */
float credit_raise(const struct decode_credit *credit, float earned, float p);

#endif
