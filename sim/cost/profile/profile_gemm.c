/* GEMM times between and beyond measured shapes.
 *
 * Along k the tiles of a product stay the same, so its time is a straight line. Along m it is a
 * staircase of tile rows. Along n, waves of tiles over the multiprocessors make the steps: there
 * the efficiency against the wave-quantised roofline is interpolated, for the tile shape that
 * explains the neighbourhood best. Leave-one-out errors of each choice: profile_check. */
#include <math.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/cost/profile/profile_table.h"

/* cuBLAS and CUTLASS output tiles; the first entry stands for "no wave steps". */
static const struct {
    int64_t rows, columns;
} tiles[] = {{0, 0},    {128, 128}, {256, 128}, {128, 256}, {64, 128},
             {128, 64}, {64, 64},   {256, 64},  {64, 256}};
enum { N_TILES = sizeof tiles / sizeof tiles[0] };

/* A tile is judged by lines up to two measured k away and by n up to four times off; one wild row
 * counts at most 30 %. */
enum { WINDOW_K = 2, WINDOW_N = 4 };
static const double max_judged_error = 0.3;

/* Wave steps must explain a fifth of the error away to be believed: of the margins 0.5 to 1 this
 * one gave the least "new n" errors over the A100, H100 and L40S tables together. */
static const double tile_margin = 0.8;

double gemm_roofline_us(const struct profile_peaks *peaks, double m, double n, double k) {
    double compute = 2 * m * n * k / peaks->flops;
    double memory = 2 * (m * n + n * k + m * k) / peaks->bandwidth;
    return 1e6 * fmax(compute, memory);
}

static double wave_roofline_us(const struct profile_peaks *peaks, size_t tile, int64_t m, int64_t n,
                               int64_t k) {
    if (tile == 0) {
        return gemm_roofline_us(peaks, (double)m, (double)n, (double)k);
    }
    int64_t n_tiles = ceil_div(m, tiles[tile].rows) * ceil_div(n, tiles[tile].columns);
    double outputs = (double)(ceil_div(n_tiles, peaks->sms) * peaks->sms * tiles[tile].rows *
                              tiles[tile].columns);
    double compute = 2 * outputs * (double)k / peaks->flops;
    double memory = 2 * (double)(m * n + n * k + m * k) / peaks->bandwidth;
    return 1e6 * fmax(compute, memory);
}

/* In whole output tiles above the small products. */
static double step_of(const struct profile *profile, double m) {
    const double step_rows = profile->tiles.step_rows;
    return m < step_rows ? m : ceil(m / step_rows) * step_rows;
}

static double between_rows(const struct profile *profile, double m, double m_lo, double t_lo,
                           double m_hi, double t_hi) {
    double lo = step_of(profile, m_lo), hi = step_of(profile, m_hi);
    return !profile->measured_edges && lo < hi ? on_line(step_of(profile, m), lo, t_lo, hi, t_hi)
                                               : on_line(m, m_lo, t_lo, m_hi, t_hi);
}

static double between_columns(const struct profile *profile, size_t tile, int64_t m, int64_t n,
                              int64_t k, int64_t n_lo, double t_lo, int64_t n_hi, double t_hi) {
    const struct profile_peaks *peaks = &profile->peaks;
    double efficiency =
        on_line(log((double)n), log((double)n_lo), wave_roofline_us(peaks, tile, m, n_lo, k) / t_lo,
                log((double)n_hi), wave_roofline_us(peaks, tile, m, n_hi, k) / t_hi);
    return wave_roofline_us(peaks, tile, m, n, k) / efficiency;
}

/* The measured neighbours of a measured cell on a line, as cells; -1 where there is none. */
static void neighbours(const struct lattice *lattice, size_t cell, size_t axis, ptrdiff_t *lo,
                       ptrdiff_t *hi) {
    const struct lattice_axis *line = &lattice->axes[axis];
    ptrdiff_t i = (ptrdiff_t)(cell / line->stride % line->n), stride = (ptrdiff_t)line->stride;
    *lo = *hi = -1;
    for (ptrdiff_t j = i - 1; j >= 0 && *lo < 0; j--) {
        ptrdiff_t at = (ptrdiff_t)cell + (j - i) * stride;
        *lo = isnan(lattice->time_us[at]) ? -1 : at;
    }
    for (ptrdiff_t j = i + 1; j < (ptrdiff_t)line->n && *hi < 0; j++) {
        ptrdiff_t at = (ptrdiff_t)cell + (j - i) * stride;
        *hi = isnan(lattice->time_us[at]) ? -1 : at;
    }
}

struct profile_rates profile_rates(const struct profile *profile, double element_bytes) {
    static const struct {
        enum profile_op op;
        size_t rows; /* the axis */
    } products[] = {
        {PROFILE_GEMM, GEMM_M}, {PROFILE_HEAD, FUSED_ROWS}, {PROFILE_GATE_UP, FUSED_ROWS}};
    const double cached_bytes = profile->peaks.is_assumed ? 0 : (double)profile->peaks.l2_bytes;
    struct profile_rates most = {0, 0};
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const struct lattice *lattice = &profile->ops[products[i].op];
        for (size_t cell = 0; cell < lattice->n_cells; cell++) {
            const double s = lattice->time_us[cell] * 1e-6;
            double all = 1;
            for (size_t axis = 0; axis < 3; axis++) {
                all *= (double)lattice_value(lattice, cell, axis);
            }
            const double bytes =
                element_bytes * all / (double)lattice_value(lattice, cell, products[i].rows);
            if (s > 0 && products[i].op == PROFILE_GEMM) { /* NAN: no row */
                most.flops = fmax(most.flops, 2 * all / s);
            }
            if (s > 0 && bytes > cached_bytes) {
                most.bandwidth = fmax(most.bandwidth, bytes / s);
            }
        }
    }
    return most;
}

static double from_columns(const struct profile *profile, size_t tile, size_t cell, ptrdiff_t lo,
                           ptrdiff_t hi) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    return between_columns(profile, tile, lattice_value(gemm, cell, GEMM_M),
                           lattice_value(gemm, cell, GEMM_N), lattice_value(gemm, cell, GEMM_K),
                           lattice_value(gemm, (size_t)lo, GEMM_N), gemm->time_us[lo],
                           lattice_value(gemm, (size_t)hi, GEMM_N), gemm->time_us[hi]);
}

/* How badly each tile predicts each row from its neighbours in n; NAN at line ends. */
static void judge_tiles(const struct profile *profile, float *errors) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    for (size_t cell = 0; cell < gemm->n_cells; cell++) {
        ptrdiff_t lo = -1, hi = -1;
        if (!isnan(gemm->time_us[cell])) {
            neighbours(gemm, cell, GEMM_N, &lo, &hi);
        }
        for (size_t tile = 0; tile < N_TILES; tile++) {
            double error = NAN;
            if (lo >= 0 && hi >= 0) {
                double guess = from_columns(profile, tile, cell, lo, hi);
                error = fmin(max_judged_error, fabs(log(guess / gemm->time_us[cell])));
            }
            errors[cell * N_TILES + tile] = (float)error;
        }
    }
}

/* The tile with the least error around a gap in n on the line of a cell. `without` the cell's n, no
 * error counts that saw a row of that n: those there and those next to it. */
static size_t best_tile(const struct profile *profile, size_t near, int64_t n_lo, int64_t n_hi,
                        bool without) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    const struct lattice_axis *ns = &gemm->axes[GEMM_N], *ks = &gemm->axes[GEMM_K];
    size_t i_m = near / gemm->axes[GEMM_M].stride, i_k = near % ks->n;
    ptrdiff_t i_n = (ptrdiff_t)(near / ns->stride % ns->n);
    double sums[N_TILES] = {0};
    size_t k_first = i_k > WINDOW_K ? i_k - WINDOW_K : 0;
    for (size_t l = k_first; l <= i_k + WINDOW_K && l < ks->n; l++) {
        for (size_t j = 0; j < ns->n; j++) {
            ptrdiff_t apart = (ptrdiff_t)j - i_n;
            if (ns->values[j] * WINDOW_N < n_lo || ns->values[j] > n_hi * WINDOW_N ||
                (without && apart >= -1 && apart <= 1)) {
                continue;
            }
            size_t cell = i_m * gemm->axes[GEMM_M].stride + j * ns->stride + l;
            for (size_t tile = 0; tile < N_TILES; tile++) {
                double error = (double)profile->gemm_tile_errors[cell * N_TILES + tile];
                sums[tile] += isnan(error) ? 0 : error;
            }
        }
    }
    size_t best = 0;
    for (size_t tile = 1; tile < N_TILES; tile++) {
        double allowed = best == 0 ? tile_margin * sums[0] : sums[best];
        best = sums[tile] < allowed ? tile : best;
    }
    return best;
}

void gemm_choose_tiles(struct profile *profile) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    if (profile->gemm_tile == NULL) {
        profile->gemm_tile = mem_unwritten(gemm->n_cells, 1);
        profile->gemm_tile_errors =
            mem_unwritten(gemm->n_cells * N_TILES, sizeof *profile->gemm_tile_errors);
    }
    judge_tiles(profile, profile->gemm_tile_errors);
    for (size_t cell = 0; cell < gemm->n_cells; cell++) {
        ptrdiff_t lo = -1, hi = -1;
        if (!isnan(gemm->time_us[cell])) {
            neighbours(gemm, cell, GEMM_N, &lo, &hi);
        }
        profile->gemm_tile[cell] =
            hi >= 0 ? (uint8_t)best_tile(profile, cell, lattice_value(gemm, cell, GEMM_N),
                                         lattice_value(gemm, (size_t)hi, GEMM_N), false)
                    : 0;
    }
}

double gemm_without_slice(const struct profile *profile, size_t cell, size_t axis) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    ptrdiff_t lo, hi;
    neighbours(gemm, cell, axis, &lo, &hi);
    if (lo < 0 || hi < 0) {
        return NAN;
    }
    double x = (double)lattice_value(gemm, cell, axis);
    double x_lo = (double)lattice_value(gemm, (size_t)lo, axis);
    double x_hi = (double)lattice_value(gemm, (size_t)hi, axis);
    double t_lo = gemm->time_us[lo], t_hi = gemm->time_us[hi];
    if (axis == GEMM_M) {
        return between_rows(profile, x, x_lo, t_lo, x_hi, t_hi);
    }
    if (axis == GEMM_K) {
        return on_line(x, x_lo, t_lo, x_hi, t_hi);
    }
    size_t tile = best_tile(profile, cell, (int64_t)x_lo, (int64_t)x_hi, true);
    return from_columns(profile, tile, cell, lo, hi);
}

/* At a measured m and k; NAN when n has no measured neighbours on both sides. */
static double along_n(const struct profile *profile, size_t i_m, int64_t n, size_t i_k) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    size_t base = i_m * gemm->axes[GEMM_M].stride + i_k;
    size_t stride = gemm->axes[GEMM_N].stride;
    struct lattice_bracket at = lattice_around(gemm, base, GEMM_N, (double)n);
    if (at.lo < 0 || at.hi < 0) {
        return NAN;
    }
    size_t lo = base + (size_t)at.lo * stride, hi = base + (size_t)at.hi * stride;
    if (at.exact) {
        return gemm->time_us[lo];
    }
    const int64_t *ns = gemm->axes[GEMM_N].values;
    return between_columns(profile, profile->gemm_tile[lo], gemm->axes[GEMM_M].values[i_m], n,
                           gemm->axes[GEMM_K].values[i_k], ns[at.lo], gemm->time_us[lo], ns[at.hi],
                           gemm->time_us[hi]);
}

/* At a measured m; NAN when (n, k) is not enclosed by measured shapes. */
static double at_measured_rows(const struct profile *profile, size_t i_m, int64_t n, int64_t k) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    const int64_t *ks = gemm->axes[GEMM_K].values;
    ptrdiff_t lo = lattice_floor(gemm, GEMM_K, (double)k);
    if (lo >= 0 && ks[lo] == k) {
        return along_n(profile, i_m, n, (size_t)lo);
    }
    if (lo < 0 || lo + 1 >= (ptrdiff_t)gemm->axes[GEMM_K].n) {
        return NAN;
    }
    return on_line((double)k, (double)ks[lo], along_n(profile, i_m, n, (size_t)lo),
                   (double)ks[lo + 1], along_n(profile, i_m, n, (size_t)lo + 1));
}

/* Between measured rows, or NAN. The neighbour on the most regular axis is asked first. */
static double enclosed_us(const struct profile *profile, int64_t m, int64_t n, int64_t k) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    const struct lattice_axis *axes = gemm->axes;
    ptrdiff_t i_m = lattice_index(gemm, GEMM_M, m), i_n = lattice_index(gemm, GEMM_N, n);
    ptrdiff_t i_k = lattice_index(gemm, GEMM_K, k);
    if (i_m >= 0 && i_n >= 0) {
        size_t base = (size_t)i_m * axes[GEMM_M].stride + (size_t)i_n * axes[GEMM_N].stride;
        struct lattice_bracket at = lattice_around(gemm, base, GEMM_K, (double)k);
        if (at.lo >= 0 && at.hi >= 0) {
            return on_line((double)k, (double)axes[GEMM_K].values[at.lo],
                           gemm->time_us[base + (size_t)at.lo], (double)axes[GEMM_K].values[at.hi],
                           gemm->time_us[base + (size_t)at.hi]);
        }
    }
    if (i_n >= 0 && i_k >= 0) {
        size_t base = (size_t)i_n * axes[GEMM_N].stride + (size_t)i_k;
        struct lattice_bracket at = lattice_around(gemm, base, GEMM_M, (double)m);
        if (at.lo >= 0 && at.hi >= 0) {
            return between_rows(profile, (double)m, (double)axes[GEMM_M].values[at.lo],
                                gemm->time_us[base + (size_t)at.lo * axes[GEMM_M].stride],
                                (double)axes[GEMM_M].values[at.hi],
                                gemm->time_us[base + (size_t)at.hi * axes[GEMM_M].stride]);
        }
    }
    if (i_m >= 0) {
        return at_measured_rows(profile, (size_t)i_m, n, k);
    }
    ptrdiff_t lo = lattice_floor(gemm, GEMM_M, (double)m);
    if (lo < 0 || lo + 1 >= (ptrdiff_t)axes[GEMM_M].n) {
        return NAN;
    }
    return between_rows(profile, (double)m, (double)axes[GEMM_M].values[lo],
                        at_measured_rows(profile, (size_t)lo, n, k),
                        (double)axes[GEMM_M].values[lo + 1],
                        at_measured_rows(profile, (size_t)lo + 1, n, k));
}

static double distance(double a, double b) {
    return fabs(log(a / b));
}

/* The measured row nearest in (n, k), then in m: its utilisation is held. */
static double from_nearest_us(const struct profile *profile, int64_t m, int64_t n, int64_t k) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    const struct lattice_axis *axes = gemm->axes;
    double best = INFINITY, guess = NAN;
    for (size_t j = 0; j < axes[GEMM_N].n; j++) {
        for (size_t l = 0; l < axes[GEMM_K].n; l++) {
            size_t base = j * axes[GEMM_N].stride + l;
            struct lattice_bracket at = lattice_around(gemm, base, GEMM_M, (double)m);
            ptrdiff_t i_m = at.lo >= 0 ? at.lo : at.hi;
            if (i_m < 0) {
                continue;
            }
            double m0 = (double)axes[GEMM_M].values[i_m];
            double n0 = (double)axes[GEMM_N].values[j], k0 = (double)axes[GEMM_K].values[l];
            double apart =
                distance((double)n, n0) + distance((double)k, k0) + 0.5 * distance((double)m, m0);
            if (apart < best) {
                best = apart;
                guess = gemm->time_us[base + (size_t)i_m * axes[GEMM_M].stride] *
                        gemm_roofline_us(&profile->peaks, (double)m, (double)n, (double)k) /
                        gemm_roofline_us(&profile->peaks, m0, n0, k0);
            }
        }
    }
    return guess;
}

/* A product measured over many m: straight lines between them, in whole tiles where they stand far
 * apart; the utilisation of the last beyond, in whole tiles, too. The first one's below: it streams
 * the same weights. NAN for any other product. */
static double along_m(const struct profile *profile, int64_t m, int64_t n, int64_t k,
                      enum profile_match *match) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    const struct lattice_axis *ms = &gemm->axes[GEMM_M];
    ptrdiff_t i_n = lattice_index(gemm, GEMM_N, n), i_k = lattice_index(gemm, GEMM_K, k);
    if (!profile->measured_edges || i_n < 0 || i_k < 0) {
        return NAN;
    }
    size_t base = (size_t)i_n * gemm->axes[GEMM_N].stride + (size_t)i_k;
    struct lattice_bracket at = lattice_around(gemm, base, GEMM_M, (double)m);
    *match = PROFILE_EXTRAPOLATED;
    if (at.lo < 0) {
        return at.hi < 0 ? NAN : gemm->time_us[base + (size_t)at.hi * ms->stride];
    }
    double m_lo = (double)ms->values[at.lo];
    double t_lo = gemm->time_us[base + (size_t)at.lo * ms->stride];
    if (at.hi < 0) {
        return t_lo *
               gemm_roofline_us(&profile->peaks, whole_tiles(profile, (double)m, m_lo, INFINITY),
                                (double)n, (double)k) /
               gemm_roofline_us(&profile->peaks, m_lo, (double)n, (double)k);
    }
    double m_hi = (double)ms->values[at.hi];
    *match = PROFILE_INTERPOLATED;
    return on_line(whole_tiles(profile, (double)m, m_lo, m_hi), m_lo, t_lo, m_hi,
                   gemm->time_us[base + (size_t)at.hi * ms->stride]);
}

static int64_t clamp(int64_t x, const struct lattice_axis *axis) {
    int64_t lo = axis->values[0], hi = axis->values[axis->n - 1];
    return x < lo ? lo : x > hi ? hi : x;
}

double gemm_us(const struct profile *profile, int64_t m, int64_t n, int64_t k,
               enum profile_match *match) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    const struct lattice_axis *axes = gemm->axes;
    ptrdiff_t i_m = lattice_index(gemm, GEMM_M, m), i_n = lattice_index(gemm, GEMM_N, n);
    ptrdiff_t i_k = lattice_index(gemm, GEMM_K, k);
    if (i_m >= 0 && i_n >= 0 && i_k >= 0) {
        size_t cell =
            (size_t)i_m * axes[GEMM_M].stride + (size_t)i_n * axes[GEMM_N].stride + (size_t)i_k;
        double time_us = gemm->time_us[cell];
        if (!isnan(time_us)) {
            const uint8_t *raised = profile->raised[PROFILE_GEMM];
            *match = raised != NULL && raised[cell] ? PROFILE_EXTRAPOLATED : PROFILE_EXACT;
            return time_us;
        }
    }
    double time_us = along_m(profile, m, n, k, match);
    if (!isnan(time_us)) {
        return time_us;
    }
    time_us = enclosed_us(profile, m, n, k);
    if (!isnan(time_us)) {
        *match = PROFILE_INTERPOLATED;
        return time_us;
    }
    *match = PROFILE_EXTRAPOLATED;
    int64_t m0 = clamp(m, &axes[GEMM_M]), n0 = clamp(n, &axes[GEMM_N]);
    int64_t k0 = clamp(k, &axes[GEMM_K]);
    if (m0 != m || n0 != n || k0 != k) {
        enum profile_match inner;
        return gemm_us(profile, m0, n0, k0, &inner) *
               gemm_roofline_us(&profile->peaks, (double)m, (double)n, (double)k) /
               gemm_roofline_us(&profile->peaks, (double)m0, (double)n0, (double)k0);
    }
    return from_nearest_us(profile, m, n, k);
}
