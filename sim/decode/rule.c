#include "sim/decode/rule.h"

#include <float.h>
#include <math.h>

#include "kernels/rules/credit.h"
#include "sim/base/err.h"

struct deciding {
    const struct decode_rule *rule;
    const struct decode_seen *seen;
};

static float rank_of(const void *of, uint32_t i) {
    const struct deciding *d = of;
    const struct decode_seen *seen = d->seen;
    return decide_rank(d->rule->rank, d->rule->temperature, seen->confidence, seen->margin,
                       seen->entropy, i, d->rule->key, (uint64_t)seen->first + seen->offset[i]);
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
    const struct deciding d = {rule, seen};
    const struct decide_rows rows = {&d, seen->n, rank_of, is_masked, follows};
    ASSERT(rule->kind != DECODE_COUNT || (count >= 1 && count <= seen->n));
    return decide_commits(rule, &rows, count, commit);
}

float credit_raise(const struct decode_credit *credit, float earned, float p) {
    double odds = (double)p * exp(credit_bonus(earned, credit->alpha));
    double raised = odds / (odds + 1 - (double)p);
    return fminf(fmaxf((float)raised, FLT_MIN), 1 - FLT_EPSILON / 2);
}
