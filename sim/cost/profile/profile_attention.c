/* Attention times: causal passes, single-query decode, and from both the unmasked spans that
 * diffusion models run.
 *
 * Kernels work on tiles of 128 queries (tiles.h), and a causal pass executes every tile it touches:
 * q (q + 128) / 2 pairs, not q^2 / 2. The RTX 4090 and RTX PRO 6000 tables show both: 16 to
 * 128 queries take one time; and 2048 queries after a prefix of 1024, which see as many keys as a
 * full pass, take 566 us on the RTX 4090, where twice the causal pass is 672 us. */
#include <math.h>

#include "sim/cost/profile/profile_table.h"

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
    double stream_bytes = 2 * 2 * spans->sum_kv * (double)(wanted.kv_heads * wanted.head_dim);
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
    double stream_bytes = 2 * 2 * spans->sum_kv * (double)(wanted.kv_heads * wanted.head_dim);
    double stream_us = causal_is_grid(profile) ? 0 : 1e6 * stream_bytes / profile->peaks.bandwidth;
    return 1e3 * fmax(time_us, stream_us);
}

/* Bytes of keys and values that single queries read, at the memory's rate. */
static double stream_us(const struct profile *profile, const struct profile_spans *spans) {
    double bytes = 2 * 2 * spans->sum_kv * (double)(spans->kv_heads * spans->head_dim);
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
