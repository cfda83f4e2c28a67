/* Products of a mixture's experts.
 *
 * Their time is that of the weights they read, those of the experts that are hit, or of the FLOPs,
 * and a launch. Rows say how many were hit (their `hit` column), and a price is for the number that
 * is asked for. Imported rows were routed by a sampler of their own, which hits other numbers of
 * experts than chance does: at 32 tokens and 8 of 256 it hits 129 where chance hits 163. With its
 * number each table streams at one share of the memory's peak, whatever the shape; the same
 * source's rows of balanced routing, which are not among ours, come out within 1 to 5 % of these
 * scaled by the numbers of experts, against 5 to 13 % by chance (64 tokens, H100 and L40S). */
#include <math.h>

#include "sim/cost/profile/profile_table.h"

/* Experts with a token, of `tokens` tokens by aiconfigurator's power law (power_law_logits_v3 in
 * its collector): each expert draws a weight from x^-alpha between the bounds below, the weights
 * are scaled to all pairs and rounded, and pairs that are left over go to the experts that have
 * fewest. The draws are taken at even quantiles: within 2 of the mean of 40 random draws. */
static double power_law_hits(double alpha, int64_t tokens, int64_t top_k, int64_t experts) {
    enum { MOST_EXPERTS = 1024 };
    double weights[MOST_EXPERTS], sum = 0, a = 1 - alpha;
    int64_t pairs = tokens * top_k, placed = 0, empty = 0;
    int64_t n = experts < MOST_EXPERTS ? experts : MOST_EXPERTS;
    bool is_many = pairs > experts;
    double lo = pow(is_many ? 1 : 0.01, a), hi = pow(is_many ? 0.8 * (double)tokens : 2, a);
    for (int64_t i = 0; i < n; i++) {
        weights[i] = pow(lo + (hi - lo) * ((double)i + 0.5) / (double)n, 1 / a);
        sum += weights[i];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t count = (int64_t)(weights[i] / sum * (double)pairs + 0.5);
        placed += count < tokens ? count : tokens;
        empty += count == 0;
    }
    int64_t filled = pairs > placed ? pairs - placed : 0;
    return (double)(n - (empty > filled ? empty - filled : 0));
}

/* What rows hit that do not say it. */
static double unsaid_hits(const struct profile *profile, struct moe_shape shape, double tokens) {
    double alpha = profile->routing_alpha, whole = floor(tokens);
    if (alpha <= 0) {
        double share = (double)shape.top_k / (double)shape.experts;
        return (double)shape.experts * (1 - pow(1 - share, tokens));
    }
    int64_t below = whole < 1 ? 1 : (int64_t)whole;
    double hits = power_law_hits(alpha, below, shape.top_k, shape.experts);
    return tokens <= (double)below
               ? hits
               : on_line(tokens, (double)below, hits, (double)below + 1,
                         power_law_hits(alpha, below + 1, shape.top_k, shape.experts));
}

double moe_row_hits(const struct profile *profile, size_t cell) {
    const struct lattice *moe = &profile->ops[PROFILE_MOE];
    return moe->hits != NULL && !isnan(moe->hits[cell])
               ? moe->hits[cell]
               : unsaid_hits(profile, moe_shape_unpack(lattice_value(moe, cell, MOE_SHAPE)),
                             (double)lattice_value(moe, cell, MOE_TOKENS));
}

/* At so many tokens of a measured shape. Times between rows lie on straight lines, and so do the
 * weights that were read in them; beyond the rows the last one's ratio to what is not said holds.
 */
static double hits_on_rows(const struct profile *profile, size_t i_shape, struct moe_shape has,
                           double tokens) {
    const struct lattice *moe = &profile->ops[PROFILE_MOE];
    size_t base = i_shape * moe->axes[MOE_SHAPE].stride;
    struct lattice_bracket at = lattice_around(moe, base, MOE_TOKENS, tokens);
    const int64_t *measured = moe->axes[MOE_TOKENS].values;
    if (moe->hits == NULL || (at.lo < 0 && at.hi < 0)) {
        return unsaid_hits(profile, has, tokens);
    }
    if (at.exact) {
        return moe_row_hits(profile, base + (size_t)at.lo);
    }
    if (at.lo >= 0 && at.hi >= 0) {
        return on_line(tokens, (double)measured[at.lo], moe_row_hits(profile, base + (size_t)at.lo),
                       (double)measured[at.hi], moe_row_hits(profile, base + (size_t)at.hi));
    }
    ptrdiff_t end = at.lo >= 0 ? at.lo : at.hi;
    double ratio = moe_row_hits(profile, base + (size_t)end) /
                   unsaid_hits(profile, has, (double)measured[end]);
    return fmin((double)has.experts, ratio * unsaid_hits(profile, has, tokens));
}

double moe_roofline_us(const struct profile_peaks *peaks, struct moe_shape shape, double tokens,
                       double hits) {
    double weights = 3 * (double)shape.hidden * (double)shape.expert_ffn;
    double flops = 2 * weights * tokens * (double)shape.top_k;
    double bytes = 2 * (weights * hits + 2 * tokens * (double)shape.hidden);
    return 1e6 * fmax(flops / peaks->flops, bytes / peaks->bandwidth);
}

static double row_roofline_us(const struct profile *profile, size_t i_shape, struct moe_shape shape,
                              double tokens) {
    return moe_roofline_us(&profile->peaks, shape, tokens,
                           hits_on_rows(profile, i_shape, shape, tokens));
}

void moe_find_launch(struct profile *profile) {
    const struct lattice *moe = &profile->ops[PROFILE_MOE];
    double least_us = INFINITY;
    for (size_t cell = 0; cell < moe->n_cells; cell++) {
        if (!isnan(moe->time_us[cell])) {
            struct moe_shape shape = moe_shape_unpack(lattice_value(moe, cell, MOE_SHAPE));
            double tokens = (double)lattice_value(moe, cell, MOE_TOKENS);
            /* At more tokens the FLOPs hide it. */
            double beyond =
                tokens * (double)shape.top_k <= (double)shape.experts
                    ? moe->time_us[cell] - moe_roofline_us(&profile->peaks, shape, tokens,
                                                           moe_row_hits(profile, cell))
                    : INFINITY;
            least_us = fmin(least_us, fmax(0, beyond));
        }
    }
    profile->moe_launch_us = isinf(least_us) ? 0 : least_us;
}

static double apart(double a, double b) {
    return fabs(log(a / b));
}

static size_t nearest_shape(const struct lattice *moe, struct moe_shape wanted) {
    size_t best = 0;
    double best_apart = INFINITY;
    for (size_t i = 0; i < moe->axes[MOE_SHAPE].n; i++) {
        struct moe_shape has = moe_shape_unpack(moe->axes[MOE_SHAPE].values[i]);
        size_t base = i * moe->axes[MOE_SHAPE].stride;
        struct lattice_bracket any = lattice_around(moe, base, MOE_TOKENS, 0);
        if (any.hi < 0) {
            continue; /* a shape that is left out has no row */
        }
        double total = apart((double)has.hidden, (double)wanted.hidden) +
                       apart((double)has.expert_ffn, (double)wanted.expert_ffn) +
                       apart((double)has.top_k, (double)wanted.top_k) +
                       apart((double)has.experts, (double)wanted.experts);
        if (total < best_apart) {
            best = i;
            best_apart = total;
        }
    }
    return best;
}

/* The rows' time at so many tokens of a measured shape. */
static double on_rows(const struct profile *profile, size_t i_shape, struct moe_shape has,
                      double tokens, enum profile_match *match) {
    const struct lattice *moe = &profile->ops[PROFILE_MOE];
    size_t base = i_shape * moe->axes[MOE_SHAPE].stride;
    struct lattice_bracket at = lattice_around(moe, base, MOE_TOKENS, tokens);
    const int64_t *measured = moe->axes[MOE_TOKENS].values;
    const double *time_us = moe->time_us + base;
    if (at.exact) {
        bool is_raised = profile->raised[PROFILE_MOE] != NULL &&
                         profile->raised[PROFILE_MOE][base + (size_t)at.lo];
        *match = is_raised ? PROFILE_EXTRAPOLATED : PROFILE_EXACT;
        return time_us[at.lo];
    }
    if (at.lo >= 0 && at.hi >= 0) {
        *match = PROFILE_INTERPOLATED;
        return on_line(tokens, (double)measured[at.lo], time_us[at.lo], (double)measured[at.hi],
                       time_us[at.hi]);
    }
    *match = PROFILE_EXTRAPOLATED;
    ptrdiff_t end = at.lo >= 0 ? at.lo : at.hi;
    if (end < 0) {
        return NAN;
    }
    double launch_us = fmin(profile->moe_launch_us, time_us[end]);
    return launch_us + (time_us[end] - launch_us) * row_roofline_us(profile, i_shape, has, tokens) /
                           row_roofline_us(profile, i_shape, has, (double)measured[end]);
}

/* The measured shape that answers, and at how many tokens: where its experts have as many each. */
struct stand_in {
    size_t i_shape;
    struct moe_shape has;
    bool is_same;
    double tokens;
};

static struct stand_in stand_in(const struct profile *profile, struct moe_shape shape,
                                double tokens) {
    const struct lattice *moe = &profile->ops[PROFILE_MOE];
    struct stand_in it = {.i_shape = nearest_shape(moe, shape), .tokens = tokens};
    it.has = moe_shape_unpack(moe->axes[MOE_SHAPE].values[it.i_shape]);
    it.is_same = moe_shape_pack(it.has) == moe_shape_pack(shape);
    if (!it.is_same) {
        it.tokens = fmax(1, tokens * (double)(shape.top_k * it.has.experts) /
                                (double)(it.has.top_k * shape.experts));
    }
    return it;
}

double moe_hits(const struct profile *profile, struct moe_shape shape, double tokens) {
    const struct stand_in it = stand_in(profile, shape, tokens);
    double row_hits = hits_on_rows(profile, it.i_shape, it.has, it.tokens);
    if (it.is_same || profile->ops[PROFILE_MOE].hits == NULL) {
        return it.is_same ? row_hits : unsaid_hits(profile, shape, tokens);
    }
    double ratio = row_hits / unsaid_hits(profile, it.has, it.tokens);
    return fmin((double)shape.experts, ratio * unsaid_hits(profile, shape, tokens));
}

/* Another shape takes what the nearest one takes beyond a launch where its experts have as many
 * tokens each, by the ratio of their rooflines; other numbers of experts hit likewise. Left out,
 * whole mixtures are predicted within 3 to 5 % so (profile check). */
double moe_us(const struct profile *profile, struct moe_shape shape, double tokens, double hits,
              enum profile_match *match) {
    const struct stand_in it = stand_in(profile, shape, tokens);
    double row_us = on_rows(profile, it.i_shape, it.has, it.tokens, match);
    double own_hits = moe_hits(profile, shape, tokens);
    hits = hits > 0 ? hits : own_hits;
    if (isnan(row_us) || (it.is_same && fabs(hits - own_hits) < 0.005 * own_hits)) {
        return row_us;
    }
    double launch_us = fmin(profile->moe_launch_us, row_us);
    double ratio = moe_roofline_us(&profile->peaks, shape, tokens, hits) /
                   row_roofline_us(profile, it.i_shape, it.has, it.tokens);
    *match = it.is_same ? worse_match(*match, PROFILE_INTERPOLATED) : PROFILE_EXTRAPOLATED;
    return launch_us + (row_us - launch_us) * ratio;
}
