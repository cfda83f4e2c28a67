/* Drawing a token of a row of logits: from their softmax at a temperature, among the most likely
 * ones where some are cut off. One source for the CPU and the GPU, on either of which a row of
 * logits and a random number give the same bits.
 *
 * Probabilities are whole numbers: a token's mass is exp((logit - largest) / temperature) 2^44,
 * rounded down, so that sums are the same in any order and a GPU's threads need none. What has less
 * than 2^-44 of the most likely token's mass has none. Tokens rank by their logit, the lower id
 * first on a tie. top_k keeps the first k; top_p, of these, every token before which there is no
 * more than top_p of their mass, as the released samplers do (Dream's top_p_logits, LMDeploy's
 * _filter_topp_sorted_), so that the first always stays. What is drawn is the token in which a
 * uniform share of the kept mass falls, tokens counted in the order 0, 512, 1024, ..., 1, 513, ...
 *
 * Ranks that divide a vocabulary draw by what each has of these sums, which add up to the same
 * numbers: the columns of that order, the bins of a search for the last token that is kept. */
#ifndef UNMASK_KERNELS_RULES_DRAW_H
#define UNMASK_KERNELS_RULES_DRAW_H

#include "kernels/rules/exponential.h"
#include "kernels/rules/keyed.h"

#include "kernels/rules/draw_rule.h"

enum { DRAW_THREADS = 512, DRAW_MAX_VOCAB = 1 << 19, DRAW_BINS = 256 };

/* What ranks send each other of a row, in this order. */
struct draw_sums {
    unsigned long long mass[DRAW_THREADS]; /* of the columns */
    /* Of the distribution that confidences are of, with the sum of mass times (largest - logit) /
     * temperature, in 2^-40. */
    unsigned long long of_mass, of_weighted;
    uint32_t second, unused; /* draw_key of the largest logit but one */
};

/* Of tokens whose rank begins alike, by its next eight bits. */
struct draw_bins {
    unsigned long long mass[DRAW_BINS];
    uint32_t count[DRAW_BINS];
};

/* The token that is drawn, by the rank that has it, and its mass. */
struct draw_found {
    unsigned long long mass;
    int32_t token; /* of the whole vocabulary; -1: another rank's */
    uint32_t unused;
};

/* What is known of a row between two parts. */
struct draw_state {
    unsigned long long of_mass, of_weighted, kept_mass, limit, above_mass;
    uint32_t above_count, prefix, second, edge, ties;
    int32_t n_kept, edge_end; /* of the tokens as likely as the last that is kept, those below */
    uint32_t cuts;            /* some tokens are not kept */
};

/* The parts of a draw over ranks: sums of all tokens; where tokens may be cut off, a search by
 * top_k and one by top_p, a byte of a logit after another, the highest first, and sums of what they
 * leave; the token; its results. Ranks send each other sums, bins or what is found after each part
 * but the last. */
enum draw_step { DRAW_SUM, DRAW_SEARCH, DRAW_SUM_KEPT, DRAW_FIND, DRAW_FINISH };

struct draw_part {
    enum draw_step step;
    bool by_mass; /* a search: by top_p */
    int shift;    /* and the lowest bit of its byte */
};

/* cuts: there are searches, of logits of this many bytes. */
RULE_FUNCTION struct draw_part draw_part_of(int part, bool cuts, int bytes) {
    const int n_searches = cuts ? 2 * bytes : 0, search = part - 1;
    struct draw_part of = {DRAW_SUM, false, 0};
    if (part > 0 && search < n_searches) {
        of.step = DRAW_SEARCH;
        of.by_mass = search >= bytes;
        of.shift = 8 * (bytes - 1 - search % bytes);
    } else if (part > 0) {
        of.step = (enum draw_step)(part - n_searches + (cuts ? 1 : 2));
    }
    return of;
}

#define DRAW_UNIT 0x1p44f

/* A logit's share of the most likely token's, from its distance to that. */
RULE_FUNCTION float draw_share(float below, float sharpness) {
    const float x = RULE_MULTIPLY(below, sharpness);
    return x > -31.0f ? exp_single(x) : 0.0f;
}

RULE_FUNCTION unsigned long long draw_mass(float below, float sharpness) {
    return (unsigned long long)(draw_share(below, sharpness) * DRAW_UNIT);
}

RULE_FUNCTION unsigned long long draw_weighted(float below, float sharpness) {
    const float share = draw_share(below, sharpness), x = RULE_MULTIPLY(below, sharpness);
    return share > 0 ? (unsigned long long)(RULE_MULTIPLY(share, -x) * 0x1p40f) : 0;
}

/* floor(mass bits / 2^64): the share of it that a random number means. */
RULE_FUNCTION unsigned long long draw_target(unsigned long long mass, uint64_t bits) {
    const uint64_t low = 0xffffffffu, a = mass >> 32, b = mass & low, c = bits >> 32,
                   d = bits & low;
    const uint64_t middle = a * d + (b * d >> 32), other = b * c + (middle & low);
    return a * c + (middle >> 32) + (other >> 32);
}

/* What top_p leaves of a mass before the last token that is kept. */
RULE_FUNCTION unsigned long long draw_limit(unsigned long long mass, double top_p) {
    return (unsigned long long)RULE_MULTIPLY2((double)mass, top_p);
}

/* A float as a number of the same order, and back. */
RULE_FUNCTION uint32_t draw_key(float x) {
    uint32_t bits;
    x = RULE_ADD(x, 0.0f); /* -0 and 0 are a tie */
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

RULE_FUNCTION float draw_unkey(uint32_t key) {
    const uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Whether the rule leaves a row as it is: the most likely token, and the model's probability. */
RULE_FUNCTION bool draw_is_idle(const struct draw_rule *by) {
    return !by->draws && by->temperature == 1.0f && by->top_k == 0 && by->top_p >= 1;
}

struct draw_results {
    float confidence, margin, entropy;
};

/* Of a token with `mine` of a distribution's mass, whose second token has `second`. */
RULE_FUNCTION struct draw_results draw_results_of(unsigned long long mine,
                                                  unsigned long long second,
                                                  unsigned long long mass,
                                                  unsigned long long weighted) {
    const double whole = (double)mass, unit = 0x1p44;
    const double mean =
        RULE_DIVIDE2(RULE_MULTIPLY2((double)weighted, 0x1p-40), RULE_MULTIPLY2(whole, 0x1p-44));
    struct draw_results results;
    results.confidence = (float)RULE_DIVIDE2((double)mine, whole);
    results.margin = (float)RULE_DIVIDE2(RULE_ADD2(unit, -(double)second), whole);
    results.entropy =
        RULE_ADD((float)-mean, keyed_minus_log((float)RULE_MULTIPLY2(whole, 0x1p-44)));
    return results;
}

#endif
