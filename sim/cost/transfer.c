#include "sim/cost/transfer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/cost/profile_table.h"

/* Products of fewer rows stream weights and have no waves of row tiles to match. */
enum { WAVE_ROWS = 128 };

static double attention_roofline_us(const struct profile_peaks *peaks, struct head_layout layout,
                                    double batch, double q, double prefix) {
    double channels = (double)(layout.heads * layout.head_dim);
    double kv_channels = (double)(layout.kv_heads * layout.head_dim);
    double flops = 4 * batch * channels * q * (prefix + q / 2);
    double bytes = 2 * batch * (2 * q * channels + 2 * (prefix + q) * kv_channels);
    return 1e6 * fmax(flops / peaks->flops, bytes / peaks->bandwidth);
}

/* The rates both GPUs reach; the donor's link over the target's. */
struct sides {
    struct profile_peaks from, to;
    double link_ratio;
};

/* The donor's time where it has as many waves as the target has at the cell, and the ratio of the
 * target's roofline time at the cell to the donor's at that place. */
struct match_point {
    double time_us, ratio;
};

static struct match_point match_gemm(const struct profile *donor, const struct sides *sides,
                                     size_t cell) {
    const struct lattice *gemm = &donor->ops[PROFILE_GEMM];
    int64_t m = lattice_value(gemm, cell, GEMM_M), n = lattice_value(gemm, cell, GEMM_N);
    int64_t k = lattice_value(gemm, cell, GEMM_K), rows = m;
    if (m >= WAVE_ROWS) {
        rows = llround((double)m * (double)sides->from.sms / (double)sides->to.sms);
    }
    enum profile_match match;
    double time_us = gemm_us(donor, rows, n, k, &match);
    return (struct match_point){
        time_us, gemm_roofline_us(&sides->to, (double)m, (double)n, (double)k) /
                     gemm_roofline_us(&sides->from, (double)rows, (double)n, (double)k)};
}

static struct match_point match_causal(const struct profile *donor, const struct sides *sides,
                                       size_t cell) {
    const struct lattice *causal = &donor->ops[PROFILE_ATTENTION_CAUSAL];
    size_t i_layout = cell / causal->axes[CAUSAL_LAYOUT].stride;
    struct head_layout layout = head_layout_unpack(causal->axes[CAUSAL_LAYOUT].values[i_layout]);
    double batch = (double)lattice_value(causal, cell, CAUSAL_BATCH), same = batch;
    double q = (double)lattice_value(causal, cell, CAUSAL_Q);
    double prefix = (double)lattice_value(causal, cell, CAUSAL_PREFIX);
    double scaled = batch * (double)sides->from.sms / (double)sides->to.sms;
    if (causal->axes[CAUSAL_BATCH].n > 1 && scaled >= 1) {
        same = scaled;
    }
    enum profile_match match;
    double time_us = causal_us(donor, i_layout, same, q, prefix, &match);
    return (struct match_point){time_us,
                                attention_roofline_us(&sides->to, layout, batch, q, prefix) /
                                    attention_roofline_us(&sides->from, layout, same, q, prefix)};
}

static struct match_point match_full(const struct profile *donor, const struct sides *sides,
                                     size_t cell) {
    const struct lattice *full = &donor->ops[PROFILE_ATTENTION_FULL];
    size_t i_layout = cell / full->axes[FULL_LAYOUT].stride;
    struct head_layout layout = head_layout_unpack(full->axes[FULL_LAYOUT].values[i_layout]);
    double batch = (double)lattice_value(full, cell, FULL_BATCH), same = batch;
    double q = (double)lattice_value(full, cell, FULL_Q);
    double scaled = batch * (double)sides->from.sms / (double)sides->to.sms;
    if (full->axes[FULL_BATCH].n > 1 && scaled >= 1) {
        same = scaled;
    }
    enum profile_match match;
    double time_us = full_us(donor, i_layout, same, q, &match);
    return (struct match_point){time_us, full_roofline_us(&sides->to, layout, batch, q) /
                                             full_roofline_us(&sides->from, layout, same, q)};
}

/* A block streams its cached rows: no waves to match. */
static struct match_point match_block(const struct profile *donor, const struct sides *sides,
                                      size_t cell) {
    const struct lattice *block = &donor->ops[PROFILE_ATTENTION_BLOCK];
    struct head_layout layout = head_layout_unpack(lattice_value(block, cell, BLOCK_LAYOUT));
    double batch = (double)lattice_value(block, cell, BLOCK_BATCH);
    double q = (double)lattice_value(block, cell, BLOCK_Q);
    double kv = (double)lattice_value(block, cell, BLOCK_KV);
    return (struct match_point){block->time_us[cell],
                                block_roofline_us(&sides->to, layout, batch, q, kv) /
                                    block_roofline_us(&sides->from, layout, batch, q, kv)};
}

static struct match_point match_fused(const struct lattice *fused, const struct sides *sides,
                                      size_t cell) {
    double rows = (double)lattice_value(fused, cell, FUSED_ROWS);
    double n = (double)lattice_value(fused, cell, FUSED_OUTPUTS);
    double k = (double)lattice_value(fused, cell, FUSED_INPUTS);
    return (struct match_point){fused->time_us[cell],
                                gemm_roofline_us(&sides->to, rows, n, k) /
                                    gemm_roofline_us(&sides->from, rows, n, k)};
}

static struct match_point match_cell(const struct profile *donor, const struct sides *sides,
                                     enum profile_op op, size_t cell) {
    const struct lattice *lattice = &donor->ops[op];
    double time_us = lattice->time_us[cell];
    switch (op) {
    case PROFILE_GEMM:
        return match_gemm(donor, sides, cell);
    case PROFILE_ATTENTION_CAUSAL:
        return match_causal(donor, sides, cell);
    case PROFILE_MOE: {
        struct moe_shape shape = moe_shape_unpack(lattice_value(lattice, cell, MOE_SHAPE));
        double tokens = (double)lattice_value(lattice, cell, MOE_TOKENS);
        double hits = moe_row_hits(donor, shape, tokens);
        return (struct match_point){time_us,
                                    moe_roofline_us(&sides->to, shape, tokens, hits) /
                                        moe_roofline_us(&sides->from, shape, tokens, hits)};
    }
    case PROFILE_ATTENTION_FULL:
        return match_full(donor, sides, cell);
    case PROFILE_ATTENTION_BLOCK:
        return match_block(donor, sides, cell);
    case PROFILE_HEAD:
    case PROFILE_GATE_UP:
        return match_fused(lattice, sides, cell);
    case PROFILE_ATTENTION_DECODE: /* One query a sequence: bound by the KV stream. */
    case PROFILE_ATTENTION_MIXED:  /* Mostly that, too. */
    case PROFILE_ELEMENTWISE:
    case PROFILE_PASS:
        return (struct match_point){time_us, sides->from.bandwidth / sides->to.bandwidth};
    case PROFILE_ALL_REDUCE:
    case PROFILE_ALL_GATHER:
        return (struct match_point){time_us, sides->link_ratio};
    case PROFILE_OPS:
        break;
    }
    return (struct match_point){time_us, 1};
}

struct transfer_side transfer_side_of(const struct gpu *gpu) {
    return (struct transfer_side){
        .gpu = gpu->name,
        .peaks = profile_peaks_of(gpu),
        .reached = {gpu->best_bf16_flops, gpu->best_bandwidth, gpu->sms, gpu->l2_bytes},
        .link_bandwidth = gpu->link_bandwidth,
    };
}

static void scale_rows(const struct profile *donor, const struct sides *sides, enum profile_op op,
                       struct lattice *lattice) {
    double floor_us = donor->floor_us[op];
    for (size_t cell = 0; cell < lattice->n_cells; cell++) {
        if (!isnan(lattice->time_us[cell])) {
            struct match_point from = match_cell(donor, sides, op, cell);
            lattice->time_us[cell] = floor_us + fmax(0, from.time_us - floor_us) * from.ratio;
        }
    }
}

/* From which profile and by which rule, for a file of it. */
static bool note_origin(const struct profile *donor, const struct transfer_side *from,
                        struct profile *target) {
    static const char rule[] =
        "time above the operator's shortest row x ratio of roofline times at the rates both GPUs "
        "reach; products and full attention at equal waves of tiles; collectives by the "
        "links' data sheets; host terms as measured beside the donor";
    const struct {
        const char *key, *value;
    } notes[] = {{"donor", from->gpu},
                 {"donor_kind", donor->kind},
                 {"donor_file", donor->path},
                 {"rule", rule}};
    bool fine = true;
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        fine = fine && profile_add_note(target, notes[i].key, strlen(notes[i].key), notes[i].value);
    }
    /* Rows of experts are as they were routed. */
    for (size_t i = 0; i < donor->n_notes; i++) {
        static const char routing[] = "expert_routing";
        fine =
            fine && (strcmp(donor->notes[i].key, routing) != 0 ||
                     profile_add_note(target, routing, sizeof routing - 1, donor->notes[i].value));
    }
    return fine;
}

int profile_transfer(const struct profile *donor, const struct transfer_side *from,
                     const struct transfer_side *to, struct profile **out, struct err *err) {
    const struct profile_peaks *peaks = &to->peaks;
    ASSERT(peaks->flops > 0 && peaks->bandwidth > 0 && peaks->sms > 0);
    ASSERT(from->link_bandwidth > 0 && to->link_bandwidth > 0);
    struct sides sides = {.from = from->reached,
                          .to = to->reached,
                          .link_ratio = from->link_bandwidth / to->link_bandwidth};
    char source[512];
    snprintf(source, sizeof source, "%s, scaled from %s by the rates both reach: %s", to->gpu,
             from->gpu, donor->source);
    struct profile *target = profile_copy(donor, source, peaks);
    *out = NULL;
    if (target == NULL || !note_origin(donor, from, target)) {
        goto no_memory;
    }
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        scale_rows(donor, &sides, (enum profile_op)op, &target->ops[op]);
    }
    if (!profile_refresh(target)) {
        goto no_memory;
    }
    *out = target;
    return 0;
no_memory:
    profile_close(target);
    return err_world(err, "transfer from %s to %s: out of memory", from->gpu, to->gpu);
}
