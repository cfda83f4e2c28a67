/* Times between and beyond the measured rows of products, mixtures, passes and exchanges; attention
 * is in profile_attention.c. */
#include <math.h>
#include <pthread.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/price/profile/profile_table.h"

/* ---- where a size lies among the measured ones ---- */

ptrdiff_t lattice_floor(const struct lattice *lattice, size_t axis, double x) {
    const struct lattice_axis *line = &lattice->axes[axis];
    size_t lo = 0, hi = line->n; /* values below lo are <= x, from hi on they are above */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((double)line->values[mid] <= x) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return (ptrdiff_t)lo - 1;
}

ptrdiff_t lattice_index(const struct lattice *lattice, size_t axis, int64_t value) {
    const struct lattice_axis *line = &lattice->axes[axis];
    size_t lo = 0, hi = line->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (line->values[mid] < value) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < line->n && line->values[lo] == value ? (ptrdiff_t)lo : -1;
}

struct lattice_bracket lattice_around(const struct lattice *lattice, size_t base, size_t axis,
                                      double x) {
    const struct lattice_axis *line = &lattice->axes[axis];
    struct lattice_bracket found = {.lo = lattice_floor(lattice, axis, x), .hi = -1};
    ptrdiff_t next = found.lo + 1;
    const double *time_us = lattice->time_us + base;
    while (found.lo >= 0 && isnan(time_us[(size_t)found.lo * line->stride])) {
        found.lo--;
    }
    if (found.lo >= 0 && (double)line->values[found.lo] == x) {
        found.exact = true;
        found.hi = found.lo;
        return found;
    }
    for (; next < (ptrdiff_t)line->n; next++) {
        if (!isnan(time_us[(size_t)next * line->stride])) {
            found.hi = next;
            break;
        }
    }
    return found;
}

static double apart(double a, double b) {
    return fabs(log(a / b));
}

/* ---- products ---- */

/* GEMM times between and beyond measured shapes.
 *
 * Along k the tiles of a product stay the same, so its time is a straight line. Along m it is a
 * staircase of tile rows. Along n, waves of tiles over the multiprocessors make the steps: there
 * the efficiency against the wave-quantised roofline is interpolated, for the tile shape that
 * explains the neighbourhood best. Leave-one-out errors of each choice: profile_check. */

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

static pthread_mutex_t judging = PTHREAD_MUTEX_INITIALIZER; /* of the profiles' tile errors */

double gemm_roofline_us(const struct profile_peaks *peaks, double m, double n, double k) {
    double compute = 2 * m * n * k / peaks->flops;
    double memory = (peaks->moved_bytes * (m * n) + peaks->stored_bytes * (n * k) +
                     peaks->moved_bytes * (m * k)) /
                    peaks->bandwidth;
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
    double memory =
        (peaks->moved_bytes * (double)(m * n + m * k) + peaks->stored_bytes * (double)(n * k)) /
        peaks->bandwidth;
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

struct profile_rates profile_rates(const struct profile *profile) {
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
            const double bytes = profile->peaks.stored_bytes * all /
                                 (double)lattice_value(lattice, cell, products[i].rows);
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

/* How badly each tile predicts a row from its neighbours in n; NAN at line ends and without a row.
 */
static void judge_tiles(const struct profile *profile, size_t cell, float errors[N_TILES]) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
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
        errors[tile] = (float)error;
    }
}

/* The same, worked out when it is first asked for; the caller has `judging`. */
static const float *tile_errors(const struct profile *profile, size_t cell) {
    float *errors = profile->gemm_tile_errors + cell * N_TILES;
    if (errors[0] == 0) {
        judge_tiles(profile, cell, errors);
    }
    return errors;
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
            const float *errors = tile_errors(profile, cell);
            for (size_t tile = 0; tile < N_TILES; tile++) {
                sums[tile] += isnan(errors[tile]) ? 0 : (double)errors[tile];
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

void gemm_forget_tiles(struct profile *profile) {
    const size_t n_cells = profile->ops[PROFILE_GEMM].n_cells;
    mem_released(profile->gemm_tile);
    mem_released(profile->gemm_tile_errors);
    profile->gemm_tile = mem_reserved(n_cells, sizeof *profile->gemm_tile);
    profile->gemm_tile_errors = mem_reserved(n_cells * N_TILES, sizeof(float));
}

/* The tile that explains the gap between a measured cell and the next one in n. Threads share a
 * profile: one at a time judges, and what it found is read without waiting. */
static size_t tile_above(const struct profile *profile, size_t cell, int64_t n_lo, int64_t n_hi) {
    uint8_t known = atomic_load_explicit(&profile->gemm_tile[cell], memory_order_relaxed);
    if (known == 0) {
        pthread_mutex_lock(&judging);
        known = (uint8_t)(1 + best_tile(profile, cell, n_lo, n_hi, false));
        pthread_mutex_unlock(&judging);
        atomic_store_explicit(&profile->gemm_tile[cell], known, memory_order_relaxed);
    }
    return known - 1U;
}

void gemm_judge_tiles(const struct profile *profile) {
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    for (size_t cell = 0; cell < gemm->n_cells; cell++) {
        ptrdiff_t lo, hi;
        neighbours(gemm, cell, GEMM_N, &lo, &hi);
        if (!isnan(gemm->time_us[cell]) && hi >= 0) {
            (void)tile_above(profile, cell, lattice_value(gemm, cell, GEMM_N),
                             lattice_value(gemm, (size_t)hi, GEMM_N));
        }
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
    pthread_mutex_lock(&judging);
    size_t tile = best_tile(profile, cell, (int64_t)x_lo, (int64_t)x_hi, true);
    pthread_mutex_unlock(&judging);
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
    return between_columns(profile, tile_above(profile, lo, ns[at.lo], ns[at.hi]),
                           gemm->axes[GEMM_M].values[i_m], n, gemm->axes[GEMM_K].values[i_k],
                           ns[at.lo], gemm->time_us[lo], ns[at.hi], gemm->time_us[hi]);
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
            double total = apart((double)n, n0) + apart((double)k, k0) + 0.5 * apart((double)m, m0);
            if (total < best) {
                best = total;
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
            *match = row_is_raised(gemm, cell) ? PROFILE_EXTRAPOLATED : PROFILE_EXACT;
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

/* ---- mixtures ---- */

/* Products of a mixture's experts.
 *
 * Their time is that of the weights they read, those of the experts that are hit, or of the FLOPs,
 * and a launch. Rows say how many were hit (their `hit` column), and a price is for the number that
 * is asked for. Imported rows were routed by a sampler of their own, which hits other numbers of
 * experts than chance does: at 32 tokens and 8 of 256 it hits 129 where chance hits 163. With its
 * number each table streams at one share of the memory's peak, whatever the shape; the same
 * source's rows of balanced routing, which are not among ours, come out within 1 to 5 % of these
 * scaled by the numbers of experts, against 5 to 13 % by chance (64 tokens, H100 and L40S). */

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

/* Experts hit, for rows that do not say it. */
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

/* At `tokens` tokens of a measured shape. Times between rows are interpolated linearly, and so are
 * the weights read in them; beyond the rows the last one's ratio to unsaid_hits holds. */
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
    double bytes = peaks->stored_bytes * (weights * hits) +
                   peaks->moved_bytes * (2 * tokens * (double)shape.hidden);
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

/* The rows' time at `tokens` tokens of a measured shape. */
static double on_rows(const struct profile *profile, size_t i_shape, struct moe_shape has,
                      double tokens, enum profile_match *match) {
    const struct lattice *moe = &profile->ops[PROFILE_MOE];
    size_t base = i_shape * moe->axes[MOE_SHAPE].stride;
    struct lattice_bracket at = lattice_around(moe, base, MOE_TOKENS, tokens);
    const int64_t *measured = moe->axes[MOE_TOKENS].values;
    const double *time_us = moe->time_us + base;
    if (at.exact) {
        *match = row_is_raised(moe, base + (size_t)at.lo) ? PROFILE_EXTRAPOLATED : PROFILE_EXACT;
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

/* ---- lines ---- */

/* The operators whose time is one line: elementwise passes and collectives over bytes, named passes
 * and the output head over rows. Straight between measured rows; utilisation is held beyond them.
 */

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

/* ---- what others ask for ---- */

static bool has_rows(const struct profile *profile, enum profile_op op) {
    return profile->ops[op].n_cells > 0;
}

double profile_gemm(const struct profile *profile, int64_t m, int64_t n, int64_t k,
                    enum profile_match *match) {
    ASSERT(has_rows(profile, PROFILE_GEMM) && m > 0 && n > 0 && k > 0);
    return 1e3 * gemm_us(profile, m, n, k, match);
}

double profile_moe(const struct profile *profile, struct moe_shape shape, int64_t tokens,
                   double hits, enum profile_match *match) {
    ASSERT(has_rows(profile, PROFILE_MOE) && tokens > 0 && shape.top_k <= shape.experts);
    return 1e3 * moe_us(profile, shape, (double)tokens, hits, match);
}

double profile_moe_hits(const struct profile *profile, struct moe_shape shape, double tokens) {
    ASSERT(has_rows(profile, PROFILE_MOE) && tokens > 0 && shape.top_k <= shape.experts);
    return moe_hits(profile, shape, tokens);
}

double profile_elementwise(const struct profile *profile, int64_t bytes,
                           enum profile_match *match) {
    ASSERT(has_rows(profile, PROFILE_ELEMENTWISE) && bytes > 0);
    return 1e3 * elementwise_us(profile, bytes, match);
}

bool profile_has_pass(const struct profile *profile, enum profile_pass pass) {
    return has_rows(profile, PROFILE_PASS) &&
           lattice_index(&profile->ops[PROFILE_PASS], PASS_NAME, (int64_t)pass) >= 0;
}

double profile_pass(const struct profile *profile, enum profile_pass pass, int64_t channels,
                    int64_t rows, enum profile_match *match) {
    ASSERT(profile_has_pass(profile, pass) && channels > 0 && rows > 0);
    return 1e3 * pass_us(profile, pass, channels, rows, match);
}

double profile_fused(const struct profile *profile, enum profile_op op, int64_t rows, int64_t n,
                     int64_t k, enum profile_match *match) {
    ASSERT(op == PROFILE_HEAD || op == PROFILE_GATE_UP);
    ASSERT(has_rows(profile, op) && rows > 0 && n > 0 && k > 0);
    return 1e3 * fused_us(profile, op, rows, n, k, match);
}

double profile_collective(const struct profile *profile, enum profile_op op, int64_t n_gpus,
                          int64_t bytes, enum profile_match *match) {
    ASSERT(op == PROFILE_ALL_REDUCE || op == PROFILE_ALL_GATHER);
    ASSERT(has_rows(profile, op) && n_gpus >= 2 && bytes > 0);
    return 1e3 * collective_us(profile, op, n_gpus, bytes, match);
}
