/* Attention times: causal passes, single-query decode, and from both the unmasked spans that
 * diffusion models run.
 *
 * Kernels work on tiles of 128 queries (tiles.h), and a causal pass executes every tile it touches:
 * q (q + 128) / 2 pairs, not q^2 / 2. The RTX 4090 and RTX PRO 6000 tables show both: 16 to
 * 128 queries take one time; and 2048 queries after a prefix of 1024, which see as many keys as a
 * full pass, take 566 us on the RTX 4090, where twice the causal pass is 672 us. */
#include <math.h>
#include <string.h>

#include "sim/price/profile/profile_table.h"
#include "sim/step/shape.h"

/* ---- our own kernels, and others' that take a prefill and single queries in one call ---- */

/* As kernels run: our own over bidirectional spans, over blocks with cached rows and
 * in causal prefills after a prefix, and others' that take a prefill and single queries in one
 * call. Between rows times, those of our own full passes over their tiles, are straight lines in
 * the work along each axis: pairs of query and key along the queries of a pass, the sizes
 * themselves along all others. */

/* A full pass works on tiles of queries (tiles.h). What rows take over full_tiles, and what causal
 * passes take, is a straight line in q (q + 128), which is the line through q for a few queries and
 * through q * q for many. */
_Static_assert((int)CAUSAL_BATCH == (int)FULL_BATCH && (int)CAUSAL_Q == (int)FULL_Q &&
                   (int)CAUSAL_PREFIX == (int)BLOCK_KV,
               "one lookup for all three");

double block_roofline_us(const struct profile_peaks *peaks, struct head_layout layout, double batch,
                         double q, double kv) {
    double channels = (double)(layout.heads * layout.head_dim);
    double kv_channels = (double)(layout.kv_heads * layout.head_dim);
    double flops = 4 * batch * channels * q * (kv + q);
    double bytes = batch * (peaks->moved_bytes * (2 * q * channels) +
                            peaks->stored_bytes * (2 * (kv + q) * kv_channels));
    return 1e6 * fmax(flops / peaks->flops, bytes / peaks->bandwidth);
}

/* Requests in a full pass, each with as many keys as queries: their number, the sum of their
 * queries and of the squares. */
struct full_batch {
    double n, sum, squares;
};

/* How often `most` at once; numbers come from square roots and ratios of GPUs. */
static double rounds_of(double number, double most) {
    static const double rounding = 1e-3;
    return fmax(1, ceil((number - rounding) / most));
}

/* Time of a full pass, in the time of 128 queries by 64 keys of a head (0.73 us of an H100 or
 * H200). A multiprocessor has one item at a time, 128 queries of a head with all the keys of their
 * request, full or not; those of the longest requests come first. An item costs three such tiles
 * more and the launch three, by least squares over the rows of LLaDA-8B, LLaDA-MoE and Dream-7B on
 * both cards (2.7 to 4.1, 2.0 to 3.4; 6 to 10 % off by itself). Two requests are told from the
 * sums, and requests that are all as long; others leave half a tile empty on average. Lines between
 * the rows of whole tiles alone had full passes of the Azure trace's prompts 10 to 20 % too quick,
 * one of 514 tokens half (H100, experiments/gpu/results/2026-11-27-tiles). */
static double full_tiles(const struct profile *profile, const struct full_batch *batch,
                         double heads) {
    static const double even = 1e-6;
    const struct tiles *tile = &profile->tiles;
    const double sms = (double)profile->peaks.sms;
    const double mean = batch->sum / batch->n,
                 variance = fmax(batch->squares / batch->n - mean * mean, 0), sd = sqrt(variance);
    double waves, tiles;
    if (batch->n <= 1 || variance <= even * mean * mean) {
        waves = rounds_of(heads * batch->n * rounds_of(mean, tile->query_rows), sms);
        tiles = waves * rounds_of(mean, tile->key_rows);
    } else if (batch->n <= 2) {
        const double first = heads * rounds_of(mean + sd, tile->query_rows),
                     items = first + heads * rounds_of(mean - sd, tile->query_rows),
                     begun = rounds_of(first, sms);
        waves = rounds_of(items, sms);
        tiles = begun * rounds_of(mean + sd, tile->key_rows) +
                (waves - begun) * rounds_of(mean - sd, tile->key_rows);
    } else {
        const double items = heads * (batch->sum / tile->query_rows + batch->n / 2),
                     keys = batch->squares / batch->sum + tile->key_rows / 2;
        waves = rounds_of(items, sms);
        tiles = (items / sms * keys + (waves - items / sms) * fmax(mean - sd, tile->key_rows)) /
                tile->key_rows;
    }
    return tile->launch_tiles + tile->item_tiles * waves + tiles;
}

/* One lookup: the lattice, and where in it. at[] counts as the lattice's axes do. */
struct place {
    const struct profile *profile;
    enum profile_op op;
    struct head_layout layout;
    double at[LATTICE_MAX_AXES];
};

/* A causal pass after a prefix has half of its own pairs. */
static double place_roofline_us(const struct place *l) {
    if (l->op == PROFILE_ATTENTION_MIXED) {
        double q = l->at[MIXED_Q];
        return block_roofline_us(&l->profile->peaks, l->layout, l->at[MIXED_BATCH], 1,
                                 l->at[MIXED_KV]) +
               block_roofline_us(&l->profile->peaks, l->layout, 1, q, 0) / 2;
    }
    double kv = l->op == PROFILE_ATTENTION_BLOCK     ? l->at[BLOCK_KV]
                : l->op == PROFILE_ATTENTION_CAUSAL  ? l->at[CAUSAL_PREFIX] - l->at[CAUSAL_Q] / 2
                : l->op == PROFILE_ATTENTION_PATTERN ? l->at[BLOCK_KV] - l->at[FULL_Q]
                                                     : 0;
    return block_roofline_us(&l->profile->peaks, l->layout, l->at[FULL_BATCH], l->at[FULL_Q], kv);
}

static double work_along(const struct place *l, size_t axis, double x) {
    double before = l->op == PROFILE_ATTENTION_CAUSAL ? 2 * l->at[CAUSAL_PREFIX] : 0;
    bool is_pass = l->op == PROFILE_ATTENTION_FULL || l->op == PROFILE_ATTENTION_CAUSAL ||
                   l->op == PROFILE_PATTERN;
    return axis == FULL_Q && is_pass ? x * (before + x + l->profile->tiles.query_rows) : x;
}

/* Unit that times are divided by: a full pass's tiles; 1 for others. */
static double unit_of(const struct place *l) {
    const double n = l->at[FULL_BATCH], q = l->at[FULL_Q];
    const struct full_batch batch = {n, n * q, n * q * q};
    return l->op == PROFILE_ATTENTION_FULL ? full_tiles(l->profile, &batch, (double)l->layout.heads)
                                           : 1;
}

/* The time at `end`, a measured value of an axis, with its utilisation held at `x` beyond it; tiles
 * have theirs. */
static double hold(struct place *l, size_t axis, double end, double end_us, double x) {
    if (l->op == PROFILE_ATTENTION_FULL) {
        return end_us;
    }
    l->at[axis] = end;
    double had = place_roofline_us(l);
    l->at[axis] = x;
    return fmax(l->profile->floor_us[l->op], end_us * place_roofline_us(l) / had);
}

/* The time over its unit at l->at, of which the axes before `axis` stand on the cell `base`; NAN
 * where no row is on that line. */
static double from_axis(struct place *l, size_t axis, size_t base, enum profile_match *match) {
    const struct lattice *lattice = &l->profile->ops[l->op];
    if (axis == LATTICE_MAX_AXES || axis == lattice->n_axes) {
        *match = PROFILE_EXACT;
        return lattice->time_us[base] / unit_of(l);
    }
    const struct lattice_axis *line = &lattice->axes[axis];
    double x = l->at[axis], t_lo = NAN, t_hi = NAN;
    enum profile_match at_lo = PROFILE_EXTRAPOLATED, at_hi = PROFILE_EXTRAPOLATED;
    ptrdiff_t lo = lattice_floor(lattice, axis, x), hi = lo + 1;
    for (; lo >= 0; lo--) {
        l->at[axis] = (double)line->values[lo];
        t_lo = from_axis(l, axis + 1, base + (size_t)lo * line->stride, &at_lo);
        if (!isnan(t_lo)) {
            break;
        }
    }
    if (lo >= 0 && (double)line->values[lo] == x) {
        *match = at_lo;
        return t_lo;
    }
    for (; hi < (ptrdiff_t)line->n; hi++) {
        l->at[axis] = (double)line->values[hi];
        t_hi = from_axis(l, axis + 1, base + (size_t)hi * line->stride, &at_hi);
        if (!isnan(t_hi)) {
            break;
        }
    }
    l->at[axis] = x;
    if (!isnan(t_lo) && !isnan(t_hi)) {
        *match = worse_match(PROFILE_INTERPOLATED, worse_match(at_lo, at_hi));
        return on_line(work_along(l, axis, x), work_along(l, axis, (double)line->values[lo]), t_lo,
                       work_along(l, axis, (double)line->values[hi]), t_hi);
    }
    *match = PROFILE_EXTRAPOLATED;
    if (!isnan(t_lo)) {
        return hold(l, axis, (double)line->values[lo], t_lo, x);
    }
    return isnan(t_hi) ? NAN : hold(l, axis, (double)line->values[hi], t_hi, x);
}

static struct place lookup_of(const struct profile *profile, enum profile_op op, size_t i_layout,
                              double batch, double q, double kv) {
    const struct lattice_axis *layouts = &profile->ops[op].axes[FULL_LAYOUT];
    return (struct place){.profile = profile,
                          .op = op,
                          .layout = head_layout_unpack(layouts->values[i_layout]),
                          .at = {[FULL_BATCH] = batch, [FULL_Q] = q, [BLOCK_KV] = kv}};
}

/* The time over its unit. */
static double relative_us(struct place l, size_t i_layout, enum profile_match *match) {
    const struct lattice *lattice = &l.profile->ops[l.op];
    return from_axis(&l, FULL_BATCH, i_layout * lattice->axes[FULL_LAYOUT].stride, match);
}

double spans_us(const struct profile *profile, enum profile_op op, size_t i_layout, double batch,
                double q, double kv, enum profile_match *match) {
    const struct place l = lookup_of(profile, op, i_layout, batch, q, kv);
    return relative_us(l, i_layout, match) * unit_of(&l);
}

bool causal_is_grid(const struct profile *profile) {
    const struct lattice_axis *axes = profile->ops[PROFILE_ATTENTION_CAUSAL].axes;
    return axes[CAUSAL_BATCH].n > 1 && axes[CAUSAL_PREFIX].n > 1;
}

/* The measured layout whose sequences of this kind take the nearest roofline time, but for layout
 * `without`, and how many of them are as much work as one of the `wanted` layout. */
static size_t nearest_by_work(const struct profile *profile, enum profile_op op,
                              struct head_layout wanted, ptrdiff_t without, double q, double kv,
                              double *share) {
    const struct lattice *lattice = &profile->ops[op];
    double work_us = block_roofline_us(&profile->peaks, wanted, 1, q, kv), nearest = INFINITY;
    size_t best = 0;
    *share = 1;
    for (size_t i = 0; i < lattice->axes[FULL_LAYOUT].n; i++) {
        struct head_layout has = head_layout_unpack(lattice->axes[FULL_LAYOUT].values[i]);
        double ratio = work_us / block_roofline_us(&profile->peaks, has, 1, q, kv);
        if ((ptrdiff_t)i != without && fabs(log(ratio)) < nearest) {
            nearest = fabs(log(ratio));
            best = i;
            *share = ratio;
        }
    }
    return best;
}

size_t spans_nearest_layout(const struct profile *profile, enum profile_op op,
                            struct head_layout wanted, double q, double kv, double *share) {
    ptrdiff_t exact = lattice_index(&profile->ops[op], FULL_LAYOUT, head_layout_pack(wanted));
    *share = 1;
    return exact >= 0 ? (size_t)exact : nearest_by_work(profile, op, wanted, -1, q, kv, share);
}

size_t spans_other_layout(const struct profile *profile, enum profile_op op, size_t own, double q,
                          double kv, double *share) {
    struct head_layout wanted = head_layout_unpack(profile->ops[op].axes[FULL_LAYOUT].values[own]);
    return nearest_by_work(profile, op, wanted, (ptrdiff_t)own, q, kv, share);
}

/* The time over its unit. */
static double spans_ns(const struct profile *profile, enum profile_op op,
                       const struct profile_spans *spans, double n, double q, double kv,
                       enum profile_match *match) {
    struct head_layout wanted = {spans->heads, spans->kv_heads, spans->head_dim};
    double share;
    size_t i_layout = spans_nearest_layout(profile, op, wanted, q, kv, &share);
    double time_us =
        relative_us(lookup_of(profile, op, i_layout, n * share, q, kv), i_layout, match);
    ptrdiff_t exact = lattice_index(&profile->ops[op], FULL_LAYOUT, head_layout_pack(wanted));
    *match = exact >= 0 ? *match : PROFILE_EXTRAPOLATED;
    return 1e3 * time_us;
}

double profile_attention_full(const struct profile *profile, const struct profile_spans *spans,
                              enum profile_match *match) {
    ASSERT(profile->ops[PROFILE_ATTENTION_FULL].n_cells > 0);
    ASSERT(spans->n_seqs > 0 && spans->sum_q > 0 && spans->sum_q_kv > 0);
    /* How a tile compares is read at the uniform batch with as many queries and as many pairs. */
    const struct full_batch batch = {(double)spans->n_seqs, spans->sum_q, spans->sum_q_kv};
    double q = spans->sum_q_kv / spans->sum_q;
    return full_tiles(profile, &batch, (double)spans->heads) *
           spans_ns(profile, PROFILE_ATTENTION_FULL, spans, spans->sum_q / q, q, 0, match);
}

/* The queries whose time such blocks take. The kernel works on tiles of query rows, which the heads
 * of a KV head share: of 32 or 64 rows where no block has more, else of 128, full or not. Blocks of
 * several requests whose mean fills no tile differ, and leave half a tile empty on average. A
 * kernel whose tiles are single rows, as the CPU's, pads nothing. */
static double padded_queries(double tile_rows, double n, double q, double group) {
    if (tile_rows <= 1) {
        return q;
    }
    const double rows = q * group, tiles = ceil(rows / tile_rows);
    const bool is_uniform = n <= 1 || rows == tiles * tile_rows;
    const double padded = rows <= 16   ? rows
                          : rows <= 32 ? 32
                          : rows <= 64 ? 64
                          : is_uniform ? tiles * tile_rows
                                       : fmax(tile_rows, rows + tile_rows / 2);
    return padded / group;
}

double profile_attention_block(const struct profile *profile, const struct profile_spans *spans,
                               enum profile_match *match) {
    ASSERT(profile->ops[PROFILE_ATTENTION_BLOCK].n_cells > 0);
    ASSERT(spans->n_seqs > 0 && spans->sum_q > 0 && spans->sum_q_kv > 0);
    double n = (double)spans->n_seqs, q = spans->sum_q / n;
    double kv = fmax(1, spans->sum_q_kv / spans->sum_q - q);
    q = padded_queries(profile->tiles.query_rows, n, q,
                       (double)spans->heads / (double)spans->kv_heads);
    return spans_ns(profile, PROFILE_ATTENTION_BLOCK, spans, n, q, kv, match);
}

double profile_attention_pattern(const struct profile *profile, const struct profile_spans *spans,
                                 enum profile_match *match) {
    ASSERT(profile->ops[PROFILE_ATTENTION_PATTERN].n_cells > 0);
    ASSERT(spans->n_seqs > 0 && spans->sum_q > 0 && spans->sum_q_kv > 0);
    const double n = (double)spans->n_seqs;
    return spans_ns(profile, PROFILE_ATTENTION_PATTERN, spans, n, spans->sum_q / n,
                    spans->sum_q_kv / spans->sum_q, match);
}

double profile_pattern(const struct profile *profile, const struct profile_spans *spans,
                       enum profile_match *match) {
    ASSERT(profile->ops[PROFILE_PATTERN].n_cells > 0);
    ASSERT(spans->n_seqs > 0 && spans->sum_q > 0);
    const double n = (double)spans->n_seqs;
    return spans_ns(profile, PROFILE_PATTERN, spans, n, spans->sum_q / n, 0, match);
}

/* Nanoseconds a key of one sequence alone where its keys are not split: from the rows of one
 * single query with the smallest pass. */
static double lone_key_ns(const struct profile *profile, size_t i_layout) {
    enum { SHORT_KEYS = 1024, LONG_KEYS = 8192 };
    const struct lattice *mixed = &profile->ops[PROFILE_ATTENTION_MIXED];
    double q = (double)mixed->axes[MIXED_Q].values[0];
    enum profile_match match;
    return 1e3 *
           (spans_us(profile, PROFILE_ATTENTION_MIXED, i_layout, 1, q, LONG_KEYS, &match) -
            spans_us(profile, PROFILE_ATTENTION_MIXED, i_layout, 1, q, SHORT_KEYS, &match)) /
           (LONG_KEYS - SHORT_KEYS);
}

/* While n sequences are left, each step of one key takes as long as n of the batch's keys do on
 * average, or as long as a sequence alone takes if that is more: the difference, summed along the
 * lengths. */
double profile_stragglers(const struct profile *profile, const struct profile_spans *spans,
                          double uniform_ns, const uint32_t keys[PROFILE_STRAGGLERS]) {
    if (profile->ops[PROFILE_ATTENTION_MIXED].n_cells == 0) {
        return 0;
    }
    struct head_layout wanted = {spans->heads, spans->kv_heads, spans->head_dim};
    double share, shared_key_ns = uniform_ns / spans->sum_kv, sum_ns = 0;
    size_t i_layout =
        spans_nearest_layout(profile, PROFILE_ATTENTION_MIXED, wanted, 1, keys[0], &share);
    double alone_ns = lone_key_ns(profile, i_layout);
    for (int i = 0; i + 1 < PROFILE_STRAGGLERS && keys[i + 1] > 0; i++) {
        double missing_ns = alone_ns - (i + 1) * shared_key_ns;
        if (missing_ns <= 0) {
            break;
        }
        sum_ns += missing_ns * (keys[i] - keys[i + 1]);
    }
    return sum_ns;
}

/* ---- causal passes and decoding ---- */

/* The time on one line of a lattice. Beyond its end the work (`work_per_x` as x grows) is held at
 * the end's utilisation above the floor. NAN when the line is empty. */
static double on_lattice_line(const struct lattice *lattice, size_t base, size_t axis, double x,
                              double floor_us, enum profile_match *match) {
    struct lattice_bracket at = lattice_around(lattice, base, axis, x);
    const struct lattice_axis *line = &lattice->axes[axis];
    if (at.exact) {
        *match = PROFILE_EXACT;
        return lattice->time_us[base + (size_t)at.lo * line->stride];
    }
    if (at.lo >= 0 && at.hi >= 0) {
        *match = PROFILE_INTERPOLATED;
        return on_line(
            x, (double)line->values[at.lo], lattice->time_us[base + (size_t)at.lo * line->stride],
            (double)line->values[at.hi], lattice->time_us[base + (size_t)at.hi * line->stride]);
    }
    *match = PROFILE_EXTRAPOLATED;
    ptrdiff_t end = at.lo >= 0 ? at.lo : at.hi;
    if (end < 0) {
        return NAN;
    }
    double time_us = lattice->time_us[base + (size_t)end * line->stride];
    double x0 = (double)line->values[end];
    return floor_us + (time_us - floor_us) * (x0 > 0 ? x / x0 : 1);
}

static double causal_pairs(const struct profile *profile, double q, double prefix) {
    return q * (prefix + (q + profile->tiles.query_rows) / 2);
}

/* At a measured q: along the prefix where the table has prefixes, else along the batch. */
static double causal_at_q(const struct profile *profile, size_t i_layout, double batch, size_t i_q,
                          double prefix, enum profile_match *match) {
    const struct lattice *causal = &profile->ops[PROFILE_ATTENTION_CAUSAL];
    const struct lattice_axis *axes = causal->axes;
    double floor_us = profile->floor_us[PROFILE_ATTENTION_CAUSAL];
    size_t base = i_layout * axes[CAUSAL_LAYOUT].stride + i_q * axes[CAUSAL_Q].stride;
    if (axes[CAUSAL_PREFIX].n == 1) {
        return on_lattice_line(causal, base, CAUSAL_BATCH, batch, floor_us, match);
    }
    /* Tables with prefixes hold one batch size: other batches hold its utilisation. */
    double q = (double)axes[CAUSAL_Q].values[i_q];
    struct lattice_bracket at = lattice_around(causal, base, CAUSAL_PREFIX, prefix);
    double time_us = on_lattice_line(causal, base, CAUSAL_PREFIX, prefix, floor_us, match);
    if (!at.exact && (at.lo < 0 || at.hi < 0)) {
        ptrdiff_t end = at.lo >= 0 ? at.lo : at.hi;
        if (end < 0) {
            return NAN;
        }
        double measured = (double)axes[CAUSAL_PREFIX].values[end];
        time_us = floor_us + (causal->time_us[base + (size_t)end] - floor_us) *
                                 causal_pairs(profile, q, prefix) /
                                 causal_pairs(profile, q, measured);
    }
    double batch0 = (double)axes[CAUSAL_BATCH].values[0];
    if (batch != batch0) {
        *match = PROFILE_EXTRAPOLATED;
        time_us = floor_us + (time_us - floor_us) * batch / batch0;
    }
    return time_us;
}

double causal_us(const struct profile *profile, size_t i_layout, double batch, double q,
                 double prefix, enum profile_match *match) {
    const struct lattice *causal = &profile->ops[PROFILE_ATTENTION_CAUSAL];
    const struct lattice_axis *qs = &causal->axes[CAUSAL_Q];
    double floor_us = profile->floor_us[PROFILE_ATTENTION_CAUSAL];
    if (causal_is_grid(profile)) {
        return spans_us(profile, PROFILE_ATTENTION_CAUSAL, i_layout, batch, q, prefix, match);
    }
    ptrdiff_t lo = lattice_floor(causal, CAUSAL_Q, q), hi = lo + 1;
    enum profile_match here = PROFILE_EXTRAPOLATED;
    double direct = NAN;
    if (lo >= 0 && (double)qs->values[lo] == q) {
        direct = causal_at_q(profile, i_layout, batch, (size_t)lo, prefix, &here);
        if (here != PROFILE_EXTRAPOLATED) {
            *match = here;
            return direct;
        }
        lo--;
    }
    /* Measured lengths around q, at which the batch (or prefix) is enclosed. */
    enum profile_match at_lo = PROFILE_EXTRAPOLATED, at_hi = PROFILE_EXTRAPOLATED;
    double t_lo = NAN, t_hi = NAN;
    for (; lo >= 0 && isnan(t_lo); lo--) {
        t_lo = causal_at_q(profile, i_layout, batch, (size_t)lo, prefix, &at_lo);
    }
    for (; hi < (ptrdiff_t)qs->n && isnan(t_hi); hi++) {
        t_hi = causal_at_q(profile, i_layout, batch, (size_t)hi, prefix, &at_hi);
    }
    bool enclosed = !isnan(t_lo) && !isnan(t_hi);
    if (enclosed && (isnan(direct) || worse_match(at_lo, at_hi) != PROFILE_EXTRAPOLATED)) {
        *match = worse_match(PROFILE_INTERPOLATED, worse_match(at_lo, at_hi));
        return on_line(causal_pairs(profile, q, prefix),
                       causal_pairs(profile, (double)qs->values[lo + 1], prefix), t_lo,
                       causal_pairs(profile, (double)qs->values[hi - 1], prefix), t_hi);
    }
    *match = PROFILE_EXTRAPOLATED;
    if (!isnan(direct)) {
        return direct;
    }
    bool below = !isnan(t_lo);
    double q0 = (double)qs->values[below ? lo + 1 : hi - 1], t0 = below ? t_lo : t_hi;
    return floor_us +
           (t0 - floor_us) * causal_pairs(profile, q, prefix) / causal_pairs(profile, q0, prefix);
}

/* At a measured batch, along the keys. */
static double decode_at_batch(const struct profile *profile, size_t i_layout, size_t i_batch,
                              double kv, enum profile_match *match) {
    const struct lattice *decode = &profile->ops[PROFILE_ATTENTION_DECODE];
    size_t base =
        i_layout * decode->axes[DECODE_LAYOUT].stride + i_batch * decode->axes[DECODE_BATCH].stride;
    return on_lattice_line(decode, base, DECODE_KV, kv, profile->floor_us[PROFILE_ATTENTION_DECODE],
                           match);
}

double decode_us(const struct profile *profile, size_t i_layout, double batch, double kv,
                 enum profile_match *match) {
    const struct lattice *decode = &profile->ops[PROFILE_ATTENTION_DECODE];
    const struct lattice_axis *batches = &decode->axes[DECODE_BATCH];
    double floor_us = profile->floor_us[PROFILE_ATTENTION_DECODE];
    ptrdiff_t lo = lattice_floor(decode, DECODE_BATCH, batch), hi = lo + 1;
    double direct = NAN;
    if (lo >= 0 && (double)batches->values[lo] == batch) {
        direct = decode_at_batch(profile, i_layout, (size_t)lo, kv, match);
        if (!isnan(direct) && *match != PROFILE_EXTRAPOLATED) {
            return direct;
        }
        lo--;
    }
    enum profile_match at_lo = PROFILE_EXTRAPOLATED, at_hi = PROFILE_EXTRAPOLATED;
    double t_lo = NAN, t_hi = NAN;
    for (; lo >= 0 && isnan(t_lo); lo--) {
        t_lo = decode_at_batch(profile, i_layout, (size_t)lo, kv, &at_lo);
    }
    for (; hi < (ptrdiff_t)batches->n && isnan(t_hi); hi++) {
        t_hi = decode_at_batch(profile, i_layout, (size_t)hi, kv, &at_hi);
    }
    bool enclosed = !isnan(t_lo) && !isnan(t_hi);
    if (enclosed && (isnan(direct) || worse_match(at_lo, at_hi) != PROFILE_EXTRAPOLATED)) {
        *match = worse_match(PROFILE_INTERPOLATED, worse_match(at_lo, at_hi));
        return on_line(batch, (double)batches->values[lo + 1], t_lo,
                       (double)batches->values[hi - 1], t_hi);
    }
    *match = PROFILE_EXTRAPOLATED;
    if (!isnan(direct)) {
        return direct;
    }
    bool below = !isnan(t_lo);
    double b0 = (double)batches->values[below ? lo + 1 : hi - 1], t0 = below ? t_lo : t_hi;
    return floor_us + (t0 - floor_us) * batch / b0;
}

static double apart(double a, double b) {
    return a > b ? a / b : b / a;
}

enum { NO_LAYOUT = -1 };

/* The measured head layout with the nearest group size, then the nearest number of heads, but for
 * layout `without`. */
static size_t nearest_other(const struct lattice *lattice, struct head_layout wanted,
                            ptrdiff_t without) {
    size_t best = 0;
    double best_group = INFINITY, best_heads = INFINITY;
    double group = (double)wanted.heads / (double)wanted.kv_heads;
    for (size_t i = 0; i < lattice->axes[0].n; i++) {
        if ((ptrdiff_t)i == without) {
            continue;
        }
        struct head_layout has = head_layout_unpack(lattice->axes[0].values[i]);
        double by_group = apart((double)has.heads / (double)has.kv_heads, group);
        double by_heads = apart((double)has.heads, (double)wanted.heads);
        if (by_group < best_group || (by_group == best_group && by_heads < best_heads)) {
            best = i;
            best_group = by_group;
            best_heads = by_heads;
        }
    }
    return best;
}

size_t attention_other_layout(const struct lattice *lattice, size_t own) {
    struct head_layout wanted = head_layout_unpack(lattice->axes[0].values[own]);
    return nearest_other(lattice, wanted, (ptrdiff_t)own);
}

static size_t nearest_layout(const struct lattice *lattice, struct head_layout wanted) {
    ptrdiff_t exact = lattice_index(lattice, 0, head_layout_pack(wanted));
    return exact >= 0 ? (size_t)exact : nearest_other(lattice, wanted, NO_LAYOUT);
}

struct profile_layouts profile_layouts_of(const struct profile *profile, int64_t heads,
                                          int64_t kv_heads, int64_t head_dim) {
    struct head_layout wanted = {heads, kv_heads, head_dim};
    return (struct profile_layouts){
        .causal = nearest_layout(&profile->ops[PROFILE_ATTENTION_CAUSAL], wanted),
        .decode = nearest_layout(&profile->ops[PROFILE_ATTENTION_DECODE], wanted),
    };
}

static struct profile_layouts layouts_of(const struct profile *profile,
                                         const struct profile_spans *spans) {
    return spans->layouts != NULL
               ? *spans->layouts
               : profile_layouts_of(profile, spans->heads, spans->kv_heads, spans->head_dim);
}

static double padded_rows(const struct profile *profile, double q) {
    return ceil(q / profile->tiles.query_rows) * profile->tiles.query_rows;
}

/* The layout with half the heads and half the KV heads of another, or that one where none is
 * measured: its batch 1 stands for half a sequence. */
static size_t half_layout(const struct lattice *causal, size_t i_layout) {
    struct head_layout layout = head_layout_unpack(causal->axes[CAUSAL_LAYOUT].values[i_layout]);
    if (layout.heads % 2 != 0 || layout.kv_heads % 2 != 0) {
        return i_layout;
    }
    struct head_layout half = {layout.heads / 2, layout.kv_heads / 2, layout.head_dim};
    ptrdiff_t found = lattice_index(causal, CAUSAL_LAYOUT, head_layout_pack(half));
    return found >= 0 ? (size_t)found : i_layout;
}

/* The tensor-core side of `n` spans of q x kv from tables of whole causal passes.
 *
 * n spans of L x L have the FLOPs, the query tiles and the tensor bytes of n / 2 causal sequences
 * of length 2 L: that row is the time of a bidirectional pass, but for the half tile of masked keys
 * a causal tile executes, which is taken off at the peak rate. Up to one tile a causal pass
 * executes all pairs and is the bidirectional one. Blocks share a tile among the query heads of
 * their KV head. */
static double compute_from_passes_us(const struct profile *profile, size_t i_layout, double n,
                                     double q, double kv, double group, enum profile_match *match) {
    const struct lattice *causal = &profile->ops[PROFILE_ATTENTION_CAUSAL];
    double rows = q >= kv ? q : fmin(kv, padded_rows(profile, q * group) / group);
    if (kv <= profile->tiles.query_rows) {
        return causal_us(profile, i_layout, n * rows / kv, kv, 0, match);
    }
    struct head_layout layout = head_layout_unpack(causal->axes[CAUSAL_LAYOUT].values[i_layout]);
    double masked_flops =
        n * rows * profile->tiles.query_rows / 2 * 4 * (double)(layout.heads * layout.head_dim);
    double batch = n * rows / (2 * kv);
    size_t i_half = batch < 1 ? half_layout(causal, i_layout) : i_layout;
    double time_us =
        causal_us(profile, i_half, i_half == i_layout ? batch : 2 * batch, 2 * kv, 0, match);
    return fmax(profile->floor_us[PROFILE_ATTENTION_CAUSAL],
                time_us - 1e6 * masked_flops / profile->peaks.flops);
}

/* The same from tables of one sequence's chunks after a prefix: the chunk that has as many query
 * tiles, after the prefix that lets its queries see kv keys on average. */
static double compute_from_chunks_us(const struct profile *profile, size_t i_layout, double n,
                                     double q, double kv, enum profile_match *match) {
    const struct lattice_axis *qs = &profile->ops[PROFILE_ATTENTION_CAUSAL].axes[CAUSAL_Q];
    double floor_us = profile->floor_us[PROFILE_ATTENTION_CAUSAL];
    if (n <= 1 && q < profile->tiles.query_rows && kv >= q) {
        return causal_us(profile, i_layout, 1, q, kv - q, match);
    }
    double rows = n * padded_rows(profile, q), max_rows = (double)qs->values[qs->n - 1];
    double chunk = fmin(rows, max_rows),
           prefix = fmax(0, kv - (chunk + profile->tiles.query_rows) / 2);
    double time_us = causal_us(profile, i_layout, 1, chunk, prefix, match);
    *match = worse_match(*match, chunk < rows ? PROFILE_EXTRAPOLATED : PROFILE_INTERPOLATED);
    return floor_us + (time_us - floor_us) * rows * kv / causal_pairs(profile, chunk, prefix);
}

double profile_attention(const struct profile *profile, const struct profile_spans *spans,
                         enum profile_match *match) {
    const struct lattice *causal = &profile->ops[PROFILE_ATTENTION_CAUSAL];
    const struct lattice *decode = &profile->ops[PROFILE_ATTENTION_DECODE];
    ASSERT(causal->n_cells > 0 && decode->n_cells > 0);
    ASSERT(spans->n_seqs > 0 && spans->sum_q > 0 && spans->sum_q_kv > 0 && spans->kv_heads > 0);
    struct head_layout wanted = {spans->heads, spans->kv_heads, spans->head_dim};
    double q = spans->sum_q / (double)spans->n_seqs, kv = spans->sum_q_kv / spans->sum_q;
    double group = (double)wanted.heads / (double)wanted.kv_heads;

    /* Another head layout is answered by the batch that has as many heads and channels. */
    struct profile_layouts layouts = layouts_of(profile, spans);
    size_t i_causal = layouts.causal;
    struct head_layout has = head_layout_unpack(causal->axes[CAUSAL_LAYOUT].values[i_causal]);
    double n = (double)spans->n_seqs * (double)(wanted.heads * wanted.head_dim) /
               (double)(has.heads * has.head_dim);
    enum profile_match by_compute, by_memory;
    /* Single queries are what the decode rows measure, products and all. */
    by_compute = PROFILE_EXACT;
    double compute = q <= 1 ? 0
                     : causal->axes[CAUSAL_PREFIX].n == 1
                         ? compute_from_passes_us(profile, i_causal, n, q, kv, group, &by_compute)
                         : compute_from_chunks_us(profile, i_causal, n, q, kv, &by_compute);

    size_t i_decode = layouts.decode;
    has = head_layout_unpack(decode->axes[DECODE_LAYOUT].values[i_decode]);
    double sequences = (double)spans->n_seqs * (double)(wanted.kv_heads * wanted.head_dim) /
                       (double)(has.kv_heads * has.head_dim);
    double keys = fmax(spans->sum_kv / (double)spans->n_seqs, 1);
    /* The measuring loops read the same keys again and again and find them in the L2 cache; between
     * two visits of a layer a serving step reads all other layers, so its keys come from memory. */
    double stream_bytes = 2 * profile->peaks.stored_bytes * spans->sum_kv *
                          (double)(wanted.kv_heads * wanted.head_dim);
    double memory = fmax(decode_us(profile, i_decode, sequences, keys, &by_memory),
                         1e6 * stream_bytes / profile->peaks.bandwidth);
    *match = worse_match(PROFILE_INTERPOLATED, compute >= memory ? by_compute : by_memory);
    return 1e3 * fmax(compute, memory);
}

double profile_attention_prefill(const struct profile *profile, const struct profile_spans *spans,
                                 enum profile_match *match) {
    const struct lattice *causal = &profile->ops[PROFILE_ATTENTION_CAUSAL];
    ASSERT(causal->n_cells > 0 && spans->n_seqs > 0 && spans->sum_q > 0);
    struct head_layout wanted = {spans->heads, spans->kv_heads, spans->head_dim};
    double q = spans->sum_q / (double)spans->n_seqs, kv = spans->sum_q_kv / spans->sum_q;
    double prefix = fmax(0, kv - (q + 1) / 2);
    size_t i_layout = layouts_of(profile, spans).causal;
    struct head_layout has = head_layout_unpack(causal->axes[CAUSAL_LAYOUT].values[i_layout]);
    double n = (double)spans->n_seqs * (double)(wanted.heads * wanted.head_dim) /
               (double)(has.heads * has.head_dim);
    bool has_prefixes = causal->axes[CAUSAL_PREFIX].n > 1;
    double time_us =
        has_prefixes || prefix == 0
            ? causal_us(profile, i_layout, n, q, prefix, match)
            : compute_from_passes_us(profile, i_layout, n, q, prefix + q / 2,
                                     (double)wanted.heads / (double)wanted.kv_heads, match);
    /* Our own rows found their keys in memory, as a step does. */
    double stream_bytes = 2 * profile->peaks.stored_bytes * spans->sum_kv *
                          (double)(wanted.kv_heads * wanted.head_dim);
    double stream_us = causal_is_grid(profile) ? 0 : 1e6 * stream_bytes / profile->peaks.bandwidth;
    return 1e3 * fmax(time_us, stream_us);
}

/* Bytes of keys and values that single queries read, at the memory's rate. */
static double stream_us(const struct profile *profile, const struct profile_spans *spans) {
    double bytes = 2 * profile->peaks.stored_bytes * spans->sum_kv *
                   (double)(spans->kv_heads * spans->head_dim);
    return 1e6 * bytes / profile->peaks.bandwidth;
}

double profile_attention_mixed(const struct profile *profile, const struct profile_spans *spans,
                               double prefill_tokens, enum profile_match *match) {
    const struct lattice *mixed = &profile->ops[PROFILE_ATTENTION_MIXED];
    const struct lattice *causal = &profile->ops[PROFILE_ATTENTION_CAUSAL];
    ASSERT(mixed->n_cells > 0 && spans->n_seqs > 0 && prefill_tokens >= 1);
    struct head_layout wanted = {spans->heads, spans->kv_heads, spans->head_dim};
    double n = (double)spans->n_seqs, kv = fmax(1, spans->sum_kv / n), share;
    size_t i_mixed = spans_nearest_layout(profile, PROFILE_ATTENTION_MIXED, wanted, 1, kv, &share);
    int64_t layout = mixed->axes[MIXED_LAYOUT].values[i_mixed];
    ptrdiff_t i_causal = lattice_index(causal, CAUSAL_LAYOUT, layout);
    enum profile_match pass_match = PROFILE_EXACT;
    double both_us =
        spans_us(profile, PROFILE_ATTENTION_MIXED, i_mixed, n * share, prefill_tokens, kv, match);
    double pass_us =
        i_causal < 0 ? 0 : causal_us(profile, (size_t)i_causal, 1, prefill_tokens, 0, &pass_match);
    *match =
        worse_match(layout == head_layout_pack(wanted) ? *match : PROFILE_EXTRAPOLATED, pass_match);
    return 1e3 * fmax(both_us - pass_us, stream_us(profile, spans));
}

/* The longest single queries' keys, falling. */
static void find_longest(const struct step_shape *shape, uint32_t keys[PROFILE_STRAGGLERS]) {
    memset(keys, 0, PROFILE_STRAGGLERS * sizeof *keys);
    for (uint32_t i = 0; i < shape->n_spans; i++) {
        const struct span *span = shape->spans[i];
        uint32_t found = span->phase == PHASE_PREFILL ? 0 : span->context + span->queries;
        for (int at = 0; found > 0 && at < PROFILE_STRAGGLERS; at++) {
            if (found > keys[at]) {
                uint32_t shorter = keys[at];
                keys[at] = found;
                found = shorter;
            }
        }
    }
}

static bool leaves_unsplit(const struct profile *profile, const struct profile_spans *spans) {
    const struct tiles *tiles = &profile->tiles;
    double fill = tiles->split_fill * tiles->split_blocks * (double)profile->peaks.sms;
    return (double)(spans->n_seqs * spans->kv_heads) >= fill;
}

double profile_varlen_single_ns(const struct profile *profile, const struct step_shape *shape,
                                const struct profile_spans *spans, double uniform_ns,
                                enum profile_match *match) {
    double prefill_tokens = (double)shape->sym[SYM_PREFILL_Q];
    bool is_mixed = prefill_tokens > 0 && profile->ops[PROFILE_ATTENTION_MIXED].n_cells > 0;
    double ns =
        is_mixed ? profile_attention_mixed(profile, spans, prefill_tokens, match) : uniform_ns;
    if (shape->spans != NULL && (is_mixed || leaves_unsplit(profile, spans))) {
        uint32_t keys[PROFILE_STRAGGLERS];
        find_longest(shape, keys);
        ns += profile_stragglers(profile, spans, ns, keys);
    }
    return ns;
}
