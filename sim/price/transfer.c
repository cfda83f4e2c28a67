#include "sim/price/transfer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/price/profile/profile_table.h"

/* Products of fewer rows stream weights and have no waves of row tiles to match. */
enum { WAVE_ROWS = 128 };

static double attention_roofline_us(const struct profile_peaks *peaks, struct head_layout layout,
                                    double batch, double q, double prefix) {
    double channels = (double)(layout.heads * layout.head_dim);
    double kv_channels = (double)(layout.kv_heads * layout.head_dim);
    double flops = 4 * batch * channels * q * (prefix + q / 2);
    double bytes = batch * (peaks->moved_bytes * (2 * q * channels) +
                            peaks->stored_bytes * (2 * (prefix + q) * kv_channels));
    return 1e6 * fmax(flops / peaks->flops, bytes / peaks->bandwidth);
}

/* The rates both GPUs reach; the donor's link over the target's. */
struct sides {
    struct profile_peaks from, to;
    double link_ratio;
};

/* A cell's roofline time at those rates; 0 where it goes by no such time. */
static double cell_roofline_us(const struct profile *donor, const struct profile_peaks *peaks,
                               enum profile_op op, size_t cell, const double at[LATTICE_MAX_AXES]) {
    int64_t first = lattice_value(&donor->ops[op], cell, 0);
    struct moe_shape shape = moe_shape_unpack(first);
    switch (op) {
    case PROFILE_GEMM:
        return gemm_roofline_us(peaks, at[GEMM_M], at[GEMM_N], at[GEMM_K]);
    case PROFILE_HEAD:
    case PROFILE_GATE_UP:
        return gemm_roofline_us(peaks, at[FUSED_ROWS], at[FUSED_OUTPUTS], at[FUSED_INPUTS]);
    case PROFILE_ATTENTION_CAUSAL:
        return attention_roofline_us(peaks, head_layout_unpack(first), at[CAUSAL_BATCH],
                                     at[CAUSAL_Q], at[CAUSAL_PREFIX]);
    case PROFILE_ATTENTION_FULL:
    case PROFILE_ATTENTION_BLOCK:
        return block_roofline_us(peaks, head_layout_unpack(first), at[BLOCK_BATCH], at[BLOCK_Q],
                                 at[BLOCK_KV]);
    case PROFILE_ATTENTION_PATTERN:
        return block_roofline_us(peaks, head_layout_unpack(first), at[BLOCK_BATCH], at[BLOCK_Q],
                                 at[BLOCK_KV] - at[BLOCK_Q]);
    case PROFILE_PATTERN:
        return block_roofline_us(peaks, head_layout_unpack(first), at[FULL_BATCH], at[FULL_Q], 0);
    case PROFILE_MOE:
        return moe_roofline_us(peaks, shape, at[MOE_TOKENS], moe_row_hits(donor, cell));
    default: /* one query a sequence is bound by the KV stream, and so are calls that have some */
        return 0;
    }
}

/* The size at which the donor has as many waves as the target has at the cell: rows of a product,
 * sequences of a pass. */
static void match_waves(const struct profile *donor, const struct sides *sides, enum profile_op op,
                        double at[LATTICE_MAX_AXES]) {
    const struct lattice *lattice = &donor->ops[op];
    if (op == PROFILE_GEMM && at[GEMM_M] >= WAVE_ROWS) {
        at[GEMM_M] = (double)llround(at[GEMM_M] * (double)sides->from.sms / (double)sides->to.sms);
    }
    bool is_pass = op == PROFILE_ATTENTION_CAUSAL || op == PROFILE_ATTENTION_FULL;
    double scaled = at[FULL_BATCH] * (double)sides->from.sms / (double)sides->to.sms;
    if (is_pass && lattice->axes[FULL_BATCH].n > 1 && scaled >= 1) {
        at[FULL_BATCH] = scaled;
    }
}

/* The donor's time at as many waves, and the ratio of the target's roofline time at the cell to the
 * donor's at that place. */
static double match_cell(const struct profile *donor, const struct sides *sides, enum profile_op op,
                         size_t cell, double *ratio) {
    const struct lattice *lattice = &donor->ops[op];
    double at[LATTICE_MAX_AXES], same[LATTICE_MAX_AXES];
    enum profile_match match;
    profile_cell_at(lattice, cell, at);
    memcpy(same, at, sizeof same);
    match_waves(donor, sides, op, same);
    double had_us = cell_roofline_us(donor, &sides->from, op, cell, same);
    bool by_links = op == PROFILE_ALL_REDUCE || op == PROFILE_ALL_GATHER;
    *ratio = had_us > 0 ? cell_roofline_us(donor, &sides->to, op, cell, at) / had_us
             : by_links ? sides->link_ratio
                        : sides->from.bandwidth / sides->to.bandwidth;
    return memcmp(same, at, sizeof same) == 0 ? lattice->time_us[cell]
                                              : profile_predict(donor, op, cell, same, &match);
}

struct transfer_side transfer_side_of(const struct gpu *gpu) {
    return (struct transfer_side){
        .gpu = gpu->name,
        .peaks = profile_peaks_of(gpu),
        .reached = {.flops = gpu->best_bf16_flops,
                    .fp8_flops = gpu_best_fp8_flops(gpu),
                    .bandwidth = gpu->best_bandwidth,
                    .sms = gpu->sms,
                    .l2_bytes = gpu->l2_bytes},
        .link_bandwidth = gpu->link_bandwidth,
    };
}

/* Time that no rate shortens, launches above all: the table's shortest row. Among products that may
 * be one that streams megabytes: theirs is the least that any row takes beyond its roofline time.
 * Of a pass it is the shortest of some rows of as many channels. */
static double least_us_of(const struct profile *donor, const struct sides *sides,
                          enum profile_op op) {
    const struct lattice *lattice = &donor->ops[op];
    const bool multiplies =
        op == PROFILE_GEMM || op == PROFILE_HEAD || op == PROFILE_GATE_UP || op == PROFILE_MOE;
    double least_us = donor->floor_us[op];
    for (size_t cell = 0; multiplies && cell < lattice->n_cells; cell++) {
        if (!isnan(lattice->time_us[cell])) {
            double at[LATTICE_MAX_AXES];
            profile_cell_at(lattice, cell, at);
            double beyond_us =
                lattice->time_us[cell] - cell_roofline_us(donor, &sides->from, op, cell, at);
            least_us = fmin(least_us, fmax(0, beyond_us));
        }
    }
    return least_us;
}

static double least_of_line_us(const struct lattice *lattice, size_t cell, double otherwise_us) {
    const size_t n = lattice->axes[lattice->n_axes - 1].n, first = cell / n * n;
    double least_us = INFINITY;
    size_t n_rows = 0;
    for (size_t i = first; i < first + n; i++) {
        n_rows += !isnan(lattice->time_us[i]);
        least_us = fmin(least_us, lattice->time_us[i]); /* of a number and a NaN the number */
    }
    return n_rows > 1 ? least_us : otherwise_us;
}

static void scale_rows(const struct profile *donor, const struct sides *sides, enum profile_op op,
                       struct lattice *lattice) {
    const double least_us = least_us_of(donor, sides, op);
    for (size_t cell = 0; cell < lattice->n_cells; cell++) {
        if (!isnan(lattice->time_us[cell])) {
            double ratio, time_us = match_cell(donor, sides, op, cell, &ratio);
            const double launch_us =
                op == PROFILE_PASS ? least_of_line_us(&donor->ops[op], cell, least_us) : least_us;
            const double had_us = lattice->time_us[cell];
            lattice->time_us[cell] = launch_us + fmax(0, time_us - launch_us) * ratio;
            if (row_is_raised(lattice, cell)) {
                lattice->warm_us[cell] *= lattice->time_us[cell] / had_us;
            }
        }
    }
}

/* For which GPU, from which profile and by which rule, for a file of it. */
static void note_origin(const struct profile *donor, const struct transfer_side *from,
                        const struct transfer_side *to, struct profile *target) {
    static const char rule[] =
        "time above the operator's shortest row (products: the least beyond a row's "
        "roofline time) x ratio of roofline times at the rates both GPUs reach; products and full "
        "attention at equal waves of tiles; collectives by the "
        "links' data sheets; host terms as measured with the donor";
    const struct {
        const char *key, *value;
    } notes[] = {{"for", to->gpu},
                 {"donor", from->gpu},
                 {"donor_kind", provenance_words[donor->kind]},
                 {"donor_file", donor->path},
                 {"rule", rule}};
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        profile_add_note(target, notes[i].key, notes[i].value);
    }
    /* Rows are of the donor's kernels, those of experts as they were routed. */
    static const char *const kept[] = {"software", "expert_routing", "experts_hit"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (profile_note(donor, kept[i]) != NULL) {
            profile_add_note(target, kept[i], profile_note(donor, kept[i]));
        }
    }
}

static void scale_all(const struct profile *donor, const struct transfer_side *from,
                      const struct transfer_side *to, struct profile *target) {
    const struct sides sides = {.from = profile_peaks_in(&from->reached, donor->type),
                                .to = profile_peaks_in(&to->reached, donor->type),
                                .link_ratio = from->link_bandwidth / to->link_bandwidth};
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        if (to->passes_alone && op != PROFILE_ELEMENTWISE) {
            profile_drop_rows(target, (enum profile_op)op);
        } else {
            scale_rows(donor, &sides, (enum profile_op)op, &target->ops[op]);
        }
    }
    profile_refresh(target);
}

/* Rows of another type, but for those of products that the target has no rate of. */
static void transfer_others(const struct profile *donor, const struct transfer_side *from,
                            const struct transfer_side *to, struct profile *target) {
    for (size_t type = 0; type < PROFILE_TYPES; type++) {
        const struct profile *other = donor->others[type];
        if (other != NULL &&
            (!profile_type_is_fp8((enum profile_type)type) || to->peaks.fp8_flops > 0)) {
            target->others[type] = profile_copy(other, target->source, &to->peaks);
            scale_all(other, from, to, target->others[type]);
        }
    }
}

struct profile *profile_transfer(const struct profile *donor, const struct transfer_side *from,
                                 const struct transfer_side *to) {
    const struct profile_peaks *peaks = &to->peaks;
    ASSERT(peaks->flops > 0 && peaks->bandwidth > 0 && peaks->sms > 0);
    ASSERT(from->link_bandwidth > 0 && to->link_bandwidth > 0);
    char source[512];
    snprintf(source, sizeof source, "%s, scaled from %s by the rates both reach: %s", to->gpu,
             from->gpu, donor->source);
    struct profile *target = profile_copy(donor, source, peaks);
    note_origin(donor, from, to, target);
    scale_all(donor, from, to, target);
    transfer_others(donor, from, to, target);
    return target;
}
