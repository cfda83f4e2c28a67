#include "sim/decode/rule.h"

#include <float.h>
#include <math.h>

#include "kernels/rules/credit.h"
#include "sim/base/err.h"

struct deciding {
    const struct decode_rule *rule;
    const struct decode_seen *seen;
    const float *values; /* what rows rank by; NULL: by more than that */
};

static float rank_of(const void *of, uint32_t i) {
    const struct deciding *d = of;
    const struct decode_seen *seen = d->seen;
    return decide_rank(d->rule->rank, d->rule->temperature, seen->confidence, seen->margin,
                       seen->entropy, i, d->rule->key, (uint64_t)seen->first + seen->offset[i]);
}

/* Of ranks that are a value of each row, without noise. */
static float value_of(const void *of, uint32_t i) {
    return ((const struct deciding *)of)->values[i];
}

static bool is_masked(const void *of, uint32_t i) {
    (void)of, (void)i;
    return true;
}

static bool follows(const void *of, uint32_t i) {
    const struct deciding *d = of;
    return d->seen->offset[i + 1] == d->seen->offset[i] + 1;
}

uint32_t decode_choose(const struct decode_rule *rule, const struct decode_seen *seen,
                       uint32_t count, uint8_t *commit) {
    const float *const values[DECODE_RANKS] = {[RANK_CONFIDENCE] = seen->confidence,
                                               [RANK_MARGIN] = seen->margin,
                                               [RANK_ENTROPY] = seen->entropy};
    const struct deciding d = {rule, seen, rule->temperature > 0 ? NULL : values[rule->rank]};
    ASSERT(rule->kind != DECODE_COUNT || (count >= 1 && count <= seen->n));
    if (d.values != NULL) {
        const struct decide_rows rows = {&d, seen->n, value_of, is_masked, follows};
        return decide_commits(rule, &rows, count, commit);
    }
    const struct decide_rows rows = {&d, seen->n, rank_of, is_masked, follows};
    return decide_commits(rule, &rows, count, commit);
}

static bool is_within(float x, float least, float most) {
    return x >= least && x <= most;
}

int decode_rule_check(const struct decode_rule *rule, bool counts, bool has_statistics,
                      struct err *err) {
    const char *fault =
        (rule->kind == DECODE_COUNT) != counts
            ? (counts ? "counts, but names a rule that does not"
                      : "names a rule that counts, but lacks the callback count")
        : rule->kind != DECODE_COUNT && rule->temperature != 0
            ? "draws by temperature, but does not count"
        : rule->kind == DECODE_ENTROPY_BOUNDED && rule->rank != RANK_ENTROPY
            ? "bounds entropy, but ranks by another thing"
        : (rule->rank == RANK_MARGIN || rule->rank == RANK_ENTROPY) && !has_statistics
            ? "ranks by margin or entropy, but does not say that it reads them"
        : rule->kind == DECODE_JOINT && rule->rank != RANK_CONFIDENCE
            ? "revises by confidence, but ranks by another thing"
        : !(is_within(rule->threshold, -1e9f, 1e9f) && is_within(rule->slack, 0, 1e9f) &&
            is_within(rule->low, -1e9f, 1e9f) && is_within(rule->factor, 0, 1e9f) &&
            is_within(rule->bound, 0, 1e9f) && is_within(rule->temperature, 0, 1e9f) &&
            is_within(rule->edit, 0, 1) && is_within(rule->penalty, 0, 1e9f))
            ? "leaves a number of its rule unset, or out of range"
            : NULL;
    if (rule->kind >= DECODE_KINDS || rule->rank >= DECODE_RANKS) {
        return err_world(err, "names rule %u by rank %u, of %d and %d", rule->kind, rule->rank,
                         DECODE_KINDS, DECODE_RANKS);
    }
    return fault == NULL ? 0 : err_world(err, "%s", fault);
}

float credit_raise(const struct decode_credit *credit, float earned, float p) {
    double odds = (double)p * exp(credit_bonus(earned, credit->alpha));
    double raised = odds / (odds + 1 - (double)p);
    return fminf(fmaxf((float)raised, FLT_MIN), 1 - FLT_EPSILON / 2);
}
