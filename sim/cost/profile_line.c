/* The operators whose time is one line: mixtures over tokens, elementwise passes and collectives
 * over bytes, named passes and the output head over rows. Straight between measured rows;
 * utilisation is held beyond them. */
#include <math.h>

#include "sim/cost/profile_table.h"

/* Gate, up and down products of the experts that T tokens touch under uniform routing,
 * E (1 - (1 - k/E)^T) of them, each read once, bf16. */
double moe_roofline_us(const struct profile_peaks *peaks, struct moe_shape shape, double tokens) {
    double weights = 3 * (double)shape.hidden * (double)shape.expert_ffn;
    double share = (double)shape.top_k / (double)shape.experts;
    double touched = (double)shape.experts * (1 - pow(1 - share, tokens));
    double flops = 2 * weights * tokens * (double)shape.top_k;
    double bytes = 2 * (weights * touched + 2 * tokens * (double)shape.hidden);
    return 1e6 * fmax(flops / peaks->flops, bytes / peaks->bandwidth);
}

static double apart(double a, double b) {
    return fabs(log(a / b));
}

static size_t nearest_shape(const struct lattice *moe, struct moe_shape wanted) {
    ptrdiff_t exact = lattice_index(moe, MOE_SHAPE, moe_shape_pack(wanted));
    if (exact >= 0) {
        return (size_t)exact;
    }
    size_t best = 0;
    double best_apart = INFINITY;
    for (size_t i = 0; i < moe->axes[MOE_SHAPE].n; i++) {
        struct moe_shape has = moe_shape_unpack(moe->axes[MOE_SHAPE].values[i]);
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

double moe_us(const struct profile *profile, struct moe_shape shape, int64_t tokens,
              enum profile_match *match) {
    const struct lattice *moe = &profile->ops[PROFILE_MOE];
    size_t i_shape = nearest_shape(moe, shape), base = i_shape * moe->axes[MOE_SHAPE].stride;
    struct moe_shape has = moe_shape_unpack(moe->axes[MOE_SHAPE].values[i_shape]);
    struct lattice_bracket at = lattice_around(moe, base, MOE_TOKENS, (double)tokens);
    const int64_t *measured = moe->axes[MOE_TOKENS].values;
    const double *time_us = moe->time_us + base;
    double guess;
    if (at.exact) {
        *match = PROFILE_EXACT;
        guess = time_us[at.lo];
    } else if (at.lo >= 0 && at.hi >= 0) {
        *match = PROFILE_INTERPOLATED;
        guess = on_line((double)tokens, (double)measured[at.lo], time_us[at.lo],
                        (double)measured[at.hi], time_us[at.hi]);
    } else {
        *match = PROFILE_EXTRAPOLATED;
        ptrdiff_t end = at.lo >= 0 ? at.lo : at.hi;
        if (end < 0) {
            return NAN;
        }
        guess = time_us[end] * moe_roofline_us(&profile->peaks, has, (double)tokens) /
                moe_roofline_us(&profile->peaks, has, (double)measured[end]);
    }
    if (moe_shape_pack(has) != moe_shape_pack(shape)) {
        *match = PROFILE_EXTRAPOLATED;
        guess *= moe_roofline_us(&profile->peaks, shape, (double)tokens) /
                 moe_roofline_us(&profile->peaks, has, (double)tokens);
    }
    return guess;
}

/* One line over bytes: below the first row its time (latency), beyond the last its bytes/s, but
 * never more than `max_bandwidth`. */
static double over_bytes(const struct lattice *lattice, size_t base, size_t axis, double bytes,
                         double max_bandwidth, enum profile_match *match) {
    struct lattice_bracket at = lattice_around(lattice, base, axis, bytes);
    const int64_t *measured = lattice->axes[axis].values;
    const double *time_us = lattice->time_us + base;
    if (at.exact) {
        *match = PROFILE_EXACT;
        return time_us[at.lo];
    }
    if (at.lo >= 0 && at.hi >= 0) {
        *match = PROFILE_INTERPOLATED;
        return on_line(bytes, (double)measured[at.lo], time_us[at.lo], (double)measured[at.hi],
                       time_us[at.hi]);
    }
    *match = PROFILE_EXTRAPOLATED;
    if (at.lo < 0) {
        return at.hi < 0 ? NAN : time_us[at.hi];
    }
    return fmax(time_us[at.lo] * bytes / (double)measured[at.lo], 1e6 * bytes / max_bandwidth);
}

double elementwise_us(const struct profile *profile, int64_t bytes, enum profile_match *match) {
    return over_bytes(&profile->ops[PROFILE_ELEMENTWISE], 0, 0, (double)bytes,
                      profile->peaks.bandwidth, match);
}

/* Other group sizes take the nearest one's time by the bytes a ring moves per GPU: (n - 1) / n. */
double collective_us(const struct profile *profile, enum profile_op op, int64_t n_gpus,
                     int64_t bytes, enum profile_match *match) {
    const struct lattice *lattice = &profile->ops[op];
    const struct lattice_axis *groups = &lattice->axes[0];
    size_t best = 0;
    for (size_t i = 1; i < groups->n; i++) {
        if (apart((double)groups->values[i], (double)n_gpus) <
            apart((double)groups->values[best], (double)n_gpus)) {
            best = i;
        }
    }
    double has = (double)groups->values[best], wanted = (double)n_gpus;
    double time_us = over_bytes(lattice, best * groups->stride, 1, (double)bytes, INFINITY, match);
    if (groups->values[best] != n_gpus) {
        *match = PROFILE_EXTRAPOLATED;
        time_us *= (wanted - 1) / wanted / ((has - 1) / has);
    }
    return time_us;
}

/* The measured channels of a named pass nearest to those wanted; -1 when the pass has no row. */
static ptrdiff_t nearest_channels(const struct lattice *pass, size_t base, int64_t channels) {
    const struct lattice_axis *axis = &pass->axes[PASS_CHANNELS];
    ptrdiff_t best = -1;
    double nearest = INFINITY;
    for (size_t i = 0; i < axis->n; i++) {
        struct lattice_bracket at = lattice_around(pass, base + i * axis->stride, PASS_ROWS, 0);
        double distance = apart((double)axis->values[i], (double)channels);
        if (at.hi >= 0 && distance < nearest) {
            best = (ptrdiff_t)i;
            nearest = distance;
        }
    }
    return best;
}

/* Other channels take the time of as many bytes of the nearest ones. */
double pass_us(const struct profile *profile, enum profile_pass pass, int64_t channels,
               int64_t rows, enum profile_match *match) {
    const struct lattice *lattice = &profile->ops[PROFILE_PASS];
    const struct lattice_axis *axis = &lattice->axes[PASS_CHANNELS];
    ptrdiff_t name = lattice_index(lattice, PASS_NAME, (int64_t)pass);
    ASSERT(name >= 0);
    size_t base = (size_t)name * lattice->axes[PASS_NAME].stride;
    ptrdiff_t i = nearest_channels(lattice, base, channels);
    *match = PROFILE_EXTRAPOLATED;
    if (i < 0) {
        return NAN;
    }
    base += (size_t)i * axis->stride;
    double same_bytes = (double)rows * (double)channels / (double)axis->values[i];
    double time_us = over_bytes(lattice, base, PASS_ROWS, same_bytes, INFINITY, match);
    *match = axis->values[i] == channels ? *match : PROFILE_EXTRAPOLATED;
    return time_us;
}

/* `rows` in whole tiles where the measured ones around them stand far apart. */
static double tiled_rows(const struct lattice *fused, size_t base, double rows) {
    struct lattice_bracket at = lattice_around(fused, base, FUSED_ROWS, rows);
    const int64_t *measured = fused->axes[FUSED_ROWS].values;
    return at.exact || at.lo < 0 || at.hi < 0
               ? rows
               : whole_tiles(rows, (double)measured[at.lo], (double)measured[at.hi]);
}

/* Other channels hold the utilisation of the nearest. */
double fused_us(const struct profile *profile, enum profile_op op, int64_t rows, int64_t n,
                int64_t k, enum profile_match *match) {
    const struct lattice *fused = &profile->ops[op];
    const struct lattice_axis *outputs = &fused->axes[FUSED_OUTPUTS];
    const struct lattice_axis *inputs = &fused->axes[FUSED_INPUTS];
    double nearest = INFINITY, guess = NAN;
    *match = PROFILE_EXTRAPOLATED;
    for (size_t i = 0; i < outputs->n; i++) {
        for (size_t j = 0; j < inputs->n; j++) {
            double v = (double)outputs->values[i], c = (double)inputs->values[j];
            double distance = apart(v, (double)n) + apart(c, (double)k);
            if (distance >= nearest) {
                continue;
            }
            enum profile_match here;
            size_t base = i * outputs->stride + j * inputs->stride;
            double tiled = tiled_rows(fused, base, (double)rows);
            double time_us = over_bytes(fused, base, FUSED_ROWS, tiled, INFINITY, &here);
            here = tiled != (double)rows ? worse_match(here, PROFILE_INTERPOLATED) : here;
            if (!isnan(time_us)) {
                nearest = distance;
                *match = distance == 0 ? here : PROFILE_EXTRAPOLATED;
                guess = time_us *
                        gemm_roofline_us(&profile->peaks, (double)rows, (double)n, (double)k) /
                        gemm_roofline_us(&profile->peaks, (double)rows, v, c);
            }
        }
    }
    return guess;
}
