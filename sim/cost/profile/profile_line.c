/* The operators whose time is one line: elementwise passes and collectives over bytes, named passes
 * and the output head over rows. Straight between measured rows; utilisation is held beyond them.
 */
#include <math.h>

#include "sim/cost/profile/profile_table.h"

static double apart(double a, double b) {
    return fabs(log(a / b));
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

/* `rows` in whole tiles where the measured ones around them stand far apart, or beyond the last. */
static double tiled_rows(const struct profile *profile, const struct lattice *fused, size_t base,
                         double rows) {
    struct lattice_bracket at = lattice_around(fused, base, FUSED_ROWS, rows);
    const int64_t *measured = fused->axes[FUSED_ROWS].values;
    return at.exact || at.lo < 0 ? rows
                                 : whole_tiles(profile, rows, (double)measured[at.lo],
                                               at.hi < 0 ? INFINITY : (double)measured[at.hi]);
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
            double tiled = tiled_rows(profile, fused, base, (double)rows);
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
