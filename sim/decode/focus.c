#include "sim/decode/focus.h"

#include <math.h>

#include "kernels/rules/keyed.h"

void focus_yield_init(struct focus_yield *yield) {
    *yield = (struct focus_yield){.mean = 1};
}

void focus_yield_begin_block(struct focus_yield *yield, const struct focus_rule *rule) {
    if (rule->history == FOCUS_MEAN_OF_BLOCK) {
        focus_yield_init(yield);
    }
}

void focus_yield_add(struct focus_yield *yield, const struct focus_rule *rule, uint32_t decoded) {
    if (decoded == 0) {
        return;
    }
    yield->n++;
    yield->sum += decoded;
    if (rule->history == FOCUS_EMA) {
        double before = (double)yield->mean, weight = (double)(float)rule->ema_weight;
        yield->mean = (float)(before + weight * (decoded - before));
    } else {
        yield->mean = (float)(yield->sum / yield->n);
    }
}

uint32_t focus_target(uint32_t n_masked, double average, double alpha) {
    float wanted = fmaxf(1, ceilf(fmaxf((float)average, 1) * (float)alpha));
    return wanted < (float)n_masked ? (uint32_t)wanted : n_masked;
}

struct masked_deltas {
    const struct focus_rule *rule;
    const uint8_t *pending, *masked;
    const float *delta;
    uint32_t length;
};

static bool is_masked(const struct masked_deltas *of, uint32_t i) {
    return of->pending[i] && of->masked[i];
}

/* The threshold of step 2. */
static double surge(const struct masked_deltas *of, uint32_t n, bool std_alone) {
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < of->length; i++) {
        sum += is_masked(of, i) ? of->delta[i] : 0;
    }
    double mean = sum / n;
    for (uint32_t i = 0; i < of->length; i++) {
        double off = is_masked(of, i) ? of->delta[i] - mean : 0;
        squares += off * off;
    }
    return sqrt(squares / n) + (std_alone ? 0 : mean);
}

static uint32_t select_at_least(const struct masked_deltas *of, double least, uint8_t *keep) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < of->length; i++) {
        keep[i] = is_masked(of, i) && of->delta[i] >= least;
        n += keep[i];
    }
    return n;
}

/* What a fixed number of positions is chosen by: the larger first. */
static float rank(const struct masked_deltas *of, uint32_t i) {
    switch (of->rule->choice) {
    case FOCUS_RANDOM:
        return keyed_draw(of->rule->key, i);
    case FOCUS_BOTTOM:
        return -of->delta[i];
    case FOCUS_LEFT:
        return -(float)i;
    case FOCUS_SURGE:
    case FOCUS_TOP:
        break;
    }
    return of->delta[i];
}

/* The k largest of those that are not kept yet, at most MOST_AT_ONCE, the earlier one on a tie;
 * returns how many there are. */
enum { MOST_AT_ONCE = 16 };
static uint32_t select_some(const struct masked_deltas *of, uint32_t k, uint8_t *keep) {
    struct {
        float rank;
        uint32_t at;
    } best[MOST_AT_ONCE]; /* falling */
    uint32_t n = 0;
    for (uint32_t i = 0; i < of->length; i++) {
        if (!is_masked(of, i) || keep[i] || isnan(of->delta[i])) {
            continue;
        }
        const float own = rank(of, i);
        uint32_t at = n;
        while (at > 0 && own > best[at - 1].rank) {
            at--;
        }
        if (at < k) {
            n += n < k;
            for (uint32_t j = n - 1; j > at; j--) {
                best[j] = best[j - 1];
            }
            best[at].rank = own;
            best[at].at = i;
        }
    }
    for (uint32_t j = 0; j < n; j++) {
        keep[best[j].at] = 1;
    }
    return n;
}

static void select_largest(const struct masked_deltas *of, uint32_t k, uint8_t *keep) {
    for (uint32_t i = 0; i < of->length; i++) {
        keep[i] = 0;
    }
    for (uint32_t some = 1; k > 0 && some > 0; k -= some) {
        some = select_some(of, k < MOST_AT_ONCE ? k : MOST_AT_ONCE, keep);
    }
}

/* Steps 3 to 5. Ascending, so that step 3 sees the selection and nothing that it adds itself. */
static void close_selection(const struct masked_deltas *of, int32_t frontier, uint8_t *keep) {
    int64_t rightmost = -1;
    for (uint32_t i = 0; i < of->length; i++) {
        if (i + 1 < of->length && keep[i + 1] && is_masked(of, i)) {
            keep[i] = 1;
        }
        rightmost = keep[i] ? i : rightmost;
    }
    for (uint32_t i = 0; i < of->length; i++) {
        bool unprocessed = (int64_t)i > frontier && (int64_t)i < rightmost;
        if (is_masked(of, i) && (rightmost < 0 || unprocessed)) {
            keep[i] = 1;
        }
    }
}

uint32_t focus_select(const struct focus_rule *rule, uint32_t length, const uint8_t *pending,
                      const uint8_t *masked, const float *delta, double average, int32_t frontier,
                      uint8_t *keep) {
    const struct masked_deltas of = {rule, pending, masked, delta, length};
    uint32_t n_masked = 0, n_kept = 0;
    for (uint32_t i = 0; i < length; i++) {
        n_masked += is_masked(&of, i);
        keep[i] = pending[i] != 0;
    }
    const bool surges = rule->choice == FOCUS_SURGE;
    uint32_t target =
        surges || rule->k == 0 ? focus_target(n_masked, average, rule->alpha) : rule->k;
    if (n_masked > target) {
        if (!surges || select_at_least(&of, surge(&of, n_masked, rule->std_alone), keep) < target) {
            select_largest(&of, target, keep);
        }
        close_selection(&of, frontier, keep);
    }
    for (uint32_t i = 0; i < length; i++) {
        keep[i] = keep[i] || (pending[i] && !masked[i]);
        n_kept += keep[i];
    }
    return n_kept;
}
