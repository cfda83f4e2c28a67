/* Attention as its kernels run: our own over bidirectional spans, over blocks with cached rows and
 * in causal prefills after a prefix, and others' that take a prefill and single queries in one
 * call. Between rows times, those of our own full passes over their tiles, are straight lines in
 * the work along each axis: pairs of query and key along the queries of a pass, the sizes
 * themselves along all others. */
#include <math.h>

#include "sim/cost/profile/profile_table.h"

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
    double bytes = 2 * batch * (2 * q * channels + 2 * (kv + q) * kv_channels);
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

/* What a full pass takes, in the time of 128 queries by 64 keys of a head (0.73 us of an H100 or
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
struct lookup {
    const struct profile *profile;
    enum profile_op op;
    struct head_layout layout;
    double at[LATTICE_MAX_AXES];
};

/* A causal pass after a prefix has half of its own pairs. */
static double roofline_us(const struct lookup *l) {
    if (l->op == PROFILE_ATTENTION_MIXED) {
        double q = l->at[MIXED_Q];
        return block_roofline_us(&l->profile->peaks, l->layout, l->at[MIXED_BATCH], 1,
                                 l->at[MIXED_KV]) +
               block_roofline_us(&l->profile->peaks, l->layout, 1, q, 0) / 2;
    }
    double kv = l->op == PROFILE_ATTENTION_BLOCK    ? l->at[BLOCK_KV]
                : l->op == PROFILE_ATTENTION_CAUSAL ? l->at[CAUSAL_PREFIX] - l->at[CAUSAL_Q] / 2
                                                    : 0;
    return block_roofline_us(&l->profile->peaks, l->layout, l->at[FULL_BATCH], l->at[FULL_Q], kv);
}

static double work_along(const struct lookup *l, size_t axis, double x) {
    double before = l->op == PROFILE_ATTENTION_CAUSAL ? 2 * l->at[CAUSAL_PREFIX] : 0;
    bool is_pass = l->op == PROFILE_ATTENTION_FULL || l->op == PROFILE_ATTENTION_CAUSAL;
    return axis == FULL_Q && is_pass ? x * (before + x + l->profile->tiles.query_rows) : x;
}

/* What times are read over: a full pass's tiles, of others nothing. */
static double unit_of(const struct lookup *l) {
    const double n = l->at[FULL_BATCH], q = l->at[FULL_Q];
    const struct full_batch batch = {n, n * q, n * q * q};
    return l->op == PROFILE_ATTENTION_FULL ? full_tiles(l->profile, &batch, (double)l->layout.heads)
                                           : 1;
}

/* The time at `end`, a measured value of an axis, with its utilisation held at `x` beyond it; tiles
 * have theirs. */
static double hold(struct lookup *l, size_t axis, double end, double end_us, double x) {
    if (l->op == PROFILE_ATTENTION_FULL) {
        return end_us;
    }
    l->at[axis] = end;
    double had = roofline_us(l);
    l->at[axis] = x;
    return fmax(l->profile->floor_us[l->op], end_us * roofline_us(l) / had);
}

/* The time over its unit at l->at, of which the axes before `axis` stand on the cell `base`; NAN
 * where no row is on that line. */
static double from_axis(struct lookup *l, size_t axis, size_t base, enum profile_match *match) {
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

static struct lookup lookup_of(const struct profile *profile, enum profile_op op, size_t i_layout,
                               double batch, double q, double kv) {
    const struct lattice_axis *layouts = &profile->ops[op].axes[FULL_LAYOUT];
    return (struct lookup){.profile = profile,
                           .op = op,
                           .layout = head_layout_unpack(layouts->values[i_layout]),
                           .at = {[FULL_BATCH] = batch, [FULL_Q] = q, [BLOCK_KV] = kv}};
}

/* The time over its unit. */
static double relative_us(struct lookup l, size_t i_layout, enum profile_match *match) {
    const struct lattice *lattice = &l.profile->ops[l.op];
    return from_axis(&l, FULL_BATCH, i_layout * lattice->axes[FULL_LAYOUT].stride, match);
}

double spans_us(const struct profile *profile, enum profile_op op, size_t i_layout, double batch,
                double q, double kv, enum profile_match *match) {
    const struct lookup l = lookup_of(profile, op, i_layout, batch, q, kv);
    return relative_us(l, i_layout, match) * unit_of(&l);
}

bool causal_is_grid(const struct profile *profile) {
    const struct lattice_axis *axes = profile->ops[PROFILE_ATTENTION_CAUSAL].axes;
    return axes[CAUSAL_BATCH].n > 1 && axes[CAUSAL_PREFIX].n > 1;
}

/* The measured layout whose sequences of this kind take the nearest roofline time, but for layout
 * `without`, and how many of them are as much work as one of the `wanted` layout. */
static size_t nearest_other(const struct profile *profile, enum profile_op op,
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
    return exact >= 0 ? (size_t)exact : nearest_other(profile, op, wanted, -1, q, kv, share);
}

size_t spans_other_layout(const struct profile *profile, enum profile_op op, size_t own, double q,
                          double kv, double *share) {
    struct head_layout wanted = head_layout_unpack(profile->ops[op].axes[FULL_LAYOUT].values[own]);
    return nearest_other(profile, op, wanted, (ptrdiff_t)own, q, kv, share);
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
    ASSERT(profile_has(profile, PROFILE_ATTENTION_FULL));
    ASSERT(spans->n_seqs > 0 && spans->sum_q > 0 && spans->sum_q_kv > 0);
    /* How a tile compares is read at the uniform batch with as many queries and as many pairs. */
    const struct full_batch batch = {(double)spans->n_seqs, spans->sum_q, spans->sum_q_kv};
    double q = spans->sum_q_kv / spans->sum_q;
    return full_tiles(profile, &batch, (double)spans->heads) *
           spans_ns(profile, PROFILE_ATTENTION_FULL, spans, spans->sum_q / q, q, 0, match);
}

/* The queries whose time such blocks take. The kernel works on tiles of query rows, which the heads
 * of a KV head share: of 32 or 64 rows where no block has more, else of 128, full or not. Blocks of
 * several requests whose mean fills no tile differ, and leave half a tile empty on average. */
static double padded_queries(double tile_rows, double n, double q, double group) {
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
    ASSERT(profile_has(profile, PROFILE_ATTENTION_BLOCK));
    ASSERT(spans->n_seqs > 0 && spans->sum_q > 0 && spans->sum_q_kv > 0);
    double n = (double)spans->n_seqs, q = spans->sum_q / n;
    double kv = fmax(1, spans->sum_q_kv / spans->sum_q - q);
    q = padded_queries(profile->tiles.query_rows, n, q,
                       (double)spans->heads / (double)spans->kv_heads);
    return spans_ns(profile, PROFILE_ATTENTION_BLOCK, spans, n, q, kv, match);
}

/* Nanoseconds a key that one sequence takes alone where its keys are not split: from the rows of
 * one single query beside the smallest pass. */
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
    if (!profile_has(profile, PROFILE_ATTENTION_MIXED)) {
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
