/* Rules of decoders: which masked positions a pass commits, by the model's outputs for each. The
 * simulator, the engine's devices and the reference implementation all compile this, so that they
 * choose alike: everything is single precision, one rounding an operation. Where values are equal
 * the earlier position goes first, and at least one position is committed. */
#ifndef UNMASK_KERNELS_RULES_DECIDE_H
#define UNMASK_KERNELS_RULES_DECIDE_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/rules/keyed.h"

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
    /* Of masked positions those above the threshold, or, where they are fewer than a number that is
     * known before the pass, those that rank first, one at least; and of the others, but for the
     * prompt's, those that hold another token than the most likely one is, where that one is above
     * `edit`: they are given it (LLaDA2.1's joint threshold; SGLang's JointThreshold, and
     * diffusers' BlockRefinementScheduler, which has the number). */
    DECODE_JOINT,
};
enum { DECODE_KINDS = DECODE_JOINT + 1 };

/* What a rule makes of a row. */
enum decide_outcome { DECIDE_NOTHING, DECIDE_COMMIT, DECIDE_REVISE };

/* What positions are compared by: the larger first. */
enum decode_rank {
    RANK_CONFIDENCE, /* probability of the most likely token */
    RANK_MARGIN,     /* less that of the second (Dream's topk_margin) */
    RANK_ENTROPY,    /* sum of p log p over the vocabulary, 0 where it is sure (Dream's entropy) */
    RANK_ORDER,      /* nothing: the earlier position first */
    RANK_DRAW,       /* keyed_draw of the rule's key and the position in the canvas */
};
enum { DECODE_RANKS = RANK_DRAW + 1 };

/* Numbers that a kind or rank does not name are not read. */
struct decode_rule {
    uint32_t kind; /* enum decode_kind */
    uint32_t rank; /* enum decode_rank; RANK_ENTROPY under DECODE_ENTROPY_BOUNDED */
    float threshold, slack, low, factor, bound;
    /* Of DECODE_COUNT: positions are compared by their value plus this times keyed_noise. Above 0
     * those that rank first are so drawn without replacement, each with probabilities proportional
     * to exp(value / temperature) among the positions left (Dream's alg_temp; Kool, van Hoof and
     * Welling, arXiv 1903.06059, section 2.2). 0: by their value alone. */
    float temperature;
    uint64_t key; /* of draws and noise */
    /* Of DECODE_JOINT: 1, which no probability is above: nothing is revised; and how many passes
     * that begin without a masked position may revise, those after them change nothing. */
    float edit;
    uint32_t post_passes;
    /* Of DECODE_JOINT: passes that fill a block, an even share of it at least in each. A block that
     * takes this many is over with the last of them. 0: the best position at least, any number. */
    uint32_t steps;
    float penalty; /* that the logit of the token before a position loses, ahead of everything */
};

/* DECODE_JOINT: whether a decided row is given its most likely token in place of the one it holds.
 * The mask is no token to be given. */
RULE_FUNCTION bool decide_revises(float edit, float confidence, int32_t token, int32_t held,
                                  int32_t mask) {
    return confidence > edit && token != held && token != mask;
}

/* Whether ranks depend on a key and on positions. */
RULE_FUNCTION bool decide_draws(uint32_t rank, float temperature) {
    return rank == RANK_DRAW || temperature > 0;
}

/* What row i is compared by; key and position are read where ranks are drawn. */
RULE_FUNCTION float decide_rank(uint32_t rank, float temperature, const float *confidence,
                                const float *margin, const float *entropy, int64_t i, uint64_t key,
                                uint64_t position) {
    float value = 0; /* of RANK_ORDER */
    switch ((enum decode_rank)rank) {
    case RANK_CONFIDENCE:
        value = confidence[i];
        break;
    case RANK_MARGIN:
        value = margin[i];
        break;
    case RANK_ENTROPY:
        value = entropy[i];
        break;
    case RANK_ORDER:
        break;
    case RANK_DRAW:
        value = keyed_draw(key, position);
        break;
    }
    return temperature > 0 ? keyed_noised(value, temperature, key, position) : value;
}

/* DECODE_THRESHOLD: the least rank that goes, besides the best. */
RULE_FUNCTION float decide_least(float threshold, float slack, float best) {
    const float near_best = RULE_ADD(best, -slack);
    return slack > 0 && near_best < threshold ? near_best : threshold;
}

/* DECODE_FACTOR and DECODE_ENTROPY_BOUNDED: whether the n-th from 0 by rank goes, when all before
 * it do; *sum, 0 before the first, is the rule's. */
RULE_FUNCTION bool decide_goes(uint32_t kind, float factor, float bound, uint32_t n, float rank,
                               float *sum) {
    if (kind == DECODE_FACTOR) {
        return n == 0 || rank >= RULE_ADD(1.0f, -RULE_DIVIDE(factor, (float)(n + 2)));
    }
    *sum = RULE_ADD(*sum, -rank);
    return n == 0 || *sum < bound;
}

/* DECODE_HIERARCHICAL: whether a row goes that is not the best of all. */
RULE_FUNCTION bool decide_in_run(float threshold, float low, float rank, bool leads_its_run) {
    return rank > threshold || (leads_its_run && rank > low);
}

/* A request's rows as rules see them, for one thread to decide. What decides is inlined into who
 * asks, so that a constant `rank` or `candidate` is no call. */
struct decide_rows {
    const void *of;
    uint32_t n;
    float (*rank)(const void *of, uint32_t i);
    bool (*candidate)(const void *of, uint32_t i);
    bool (*follows)(const void *of, uint32_t i); /* rows i and i + 1, candidates, are neighbours */
};

/* The candidate of first .. end that ranks first and is not committed yet; end: none. */
RULE_INLINE uint32_t decide_best(const struct decide_rows *rows, uint32_t first, uint32_t end,
                                 const uint8_t *commit) {
    uint32_t best = end;
    float most = 0;
    for (uint32_t i = first; i < end; i++) {
        if (rows->candidate(rows->of, i) && !commit[i]) {
            const float rank = rows->rank(rows->of, i);
            if (best == end || rank > most) {
                best = i;
                most = rank;
            }
        }
    }
    return best;
}

RULE_INLINE void decide_in_order(const struct decode_rule *rule, const struct decide_rows *rows,
                                 uint32_t count, uint8_t *commit) {
    float sum = 0;
    for (uint32_t n = 0; n < rows->n; n++) {
        const uint32_t i = decide_best(rows, 0, rows->n, commit);
        if (i == rows->n ||
            (rule->kind == DECODE_COUNT ? n >= count
                                        : !decide_goes(rule->kind, rule->factor, rule->bound, n,
                                                       rows->rank(rows->of, i), &sum))) {
            return;
        }
        commit[i] = 1;
    }
}

RULE_INLINE void decide_runs(const struct decode_rule *rule, const struct decide_rows *rows,
                             uint8_t *commit) {
    for (uint32_t first = 0, end; first < rows->n; first = end) {
        end = first + 1;
        if (!rows->candidate(rows->of, first)) {
            continue;
        }
        while (end < rows->n && rows->candidate(rows->of, end) &&
               rows->follows(rows->of, end - 1)) {
            end++;
        }
        const uint32_t best = decide_best(rows, first, end, commit);
        for (uint32_t i = first; i < end; i++) {
            commit[i] =
                decide_in_run(rule->threshold, rule->low, rows->rank(rows->of, i), i == best);
        }
    }
}

/* DECODE_JOINT: those above the threshold, then the best of the others up to `least`. */
RULE_INLINE void decide_above(float threshold, const struct decide_rows *rows, uint32_t least,
                              uint8_t *commit) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->n; i++) {
        commit[i] = rows->candidate(rows->of, i) && rows->rank(rows->of, i) > threshold;
        n += commit[i];
    }
    for (; n < least; n++) {
        const uint32_t i = decide_best(rows, 0, rows->n, commit);
        if (i == rows->n) {
            return;
        }
        commit[i] = 1;
    }
}

/* Sets commit[n] to 1 or 0 and returns how many are 1. count: of DECODE_COUNT, and of DECODE_JOINT
 * at least, all where there are fewer candidates. */
RULE_INLINE uint32_t decide_commits(const struct decode_rule *rule, const struct decide_rows *rows,
                                    uint32_t count, uint8_t *commit) {
    memset(commit, 0, rows->n);
    const uint32_t best = decide_best(rows, 0, rows->n, commit);
    if (best == rows->n) {
        return 0;
    }
    if (rule->kind == DECODE_THRESHOLD) {
        const float least = decide_least(rule->threshold, rule->slack, rows->rank(rows->of, best));
        for (uint32_t i = 0; i < rows->n; i++) {
            commit[i] = rows->candidate(rows->of, i) && rows->rank(rows->of, i) >= least;
        }
    } else if (rule->kind == DECODE_JOINT) {
        decide_above(rule->threshold, rows, count, commit);
    } else if (rule->kind == DECODE_HIERARCHICAL) {
        decide_runs(rule, rows, commit);
    } else {
        decide_in_order(rule, rows, count, commit);
    }
    commit[best] = commit[best] || rule->kind != DECODE_COUNT || count > 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->n; i++) {
        n += commit[i];
    }
    return n;
}

#endif
