#include "sim/price/profile/profile_check.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/price/profile/profile_table.h"

enum { MIN_ROWS = 16, LONG_KV = 512, DOUBLING_ROWS = 4096 };

static const char *const row_names[CHECK_ROWS] = {
    [CHECK_GEMM] = "gemm, m >= 16",
    [CHECK_GEMM_SMALL] = "gemm, m < 16",
    [CHECK_GEMM_NEW_M] = "gemm, new m",
    [CHECK_GEMM_NEW_N] = "gemm, new n",
    [CHECK_GEMM_NEW_K] = "gemm, new k",
    [CHECK_CAUSAL] = "attention_causal",
    [CHECK_CAUSAL_LONG] = "attention_causal, kv >= 512",
    [CHECK_DECODE] = "attention_decode",
    [CHECK_MOE] = "moe",
    [CHECK_ELEMENTWISE] = "elementwise",
    [CHECK_ALL_REDUCE] = "all_reduce",
    [CHECK_ALL_GATHER] = "all_gather",
    [CHECK_FULL] = "attention_full",
    [CHECK_BLOCK] = "attention_block",
    [CHECK_PASS] = "pass",
    [CHECK_HEAD] = "head",
    [CHECK_GATE_UP] = "gate_up",
    [CHECK_MIXED] = "attention_mixed",
    [CHECK_ATTENTION_PATTERN] = "attention_pattern",
    [CHECK_PATTERN] = "pattern",
    [CHECK_GEMM_SHAPE] = "gemm, new shape",
    [CHECK_MOE_SHAPE] = "moe, new shape",
    [CHECK_MOE_MIXTURE] = "moe, new mixture",
    [CHECK_CAUSAL_HEADS] = "attention_causal, new heads",
    [CHECK_DECODE_HEADS] = "attention_decode, new heads",
    [CHECK_FULL_HEADS] = "attention_full, new heads",
    [CHECK_BLOCK_HEADS] = "attention_block, new heads",
};

/* Signed errors of one table row; room for one a cell. */
struct sample {
    double *errors;
    size_t n;
};

struct samples {
    struct sample rows[CHECK_ROWS][2]; /* interior, frontier */
    struct sample noise;
};

void profile_cell_at(const struct lattice *lattice, size_t cell, double at[LATTICE_MAX_AXES]) {
    for (size_t a = 0; a < LATTICE_MAX_AXES; a++) {
        at[a] = a < lattice->n_axes ? (double)lattice_value(lattice, cell, a) : 0;
    }
}

double profile_predict(const struct profile *profile, enum profile_op op, size_t cell,
                       const double at[LATTICE_MAX_AXES], enum profile_match *match) {
    const struct lattice *lattice = &profile->ops[op];
    int64_t first = lattice_value(lattice, cell, 0), second = (int64_t)at[1],
            third = (int64_t)at[2];
    size_t i_first = cell / lattice->axes[0].stride;
    switch (op) {
    case PROFILE_GEMM:
        return gemm_us(profile, (int64_t)at[0], second, third, match);
    case PROFILE_ATTENTION_CAUSAL:
        return causal_us(profile, i_first, at[1], at[2], at[3], match);
    case PROFILE_ATTENTION_DECODE:
        return decode_us(profile, i_first, at[1], at[2], match);
    case PROFILE_MOE:
        return moe_us(profile, moe_shape_unpack(first), at[1], 0, match);
    case PROFILE_ELEMENTWISE:
        return elementwise_us(profile, first, match);
    case PROFILE_ALL_REDUCE:
    case PROFILE_ALL_GATHER:
        return collective_us(profile, op, first, second, match);
    case PROFILE_ATTENTION_FULL:
    case PROFILE_ATTENTION_BLOCK:
    case PROFILE_ATTENTION_MIXED:
    case PROFILE_ATTENTION_PATTERN:
    case PROFILE_PATTERN:
        return spans_us(profile, op, i_first, at[1], at[2], at[3], match);
    case PROFILE_PASS:
        return pass_us(profile, (enum profile_pass)first, second, third, match);
    case PROFILE_HEAD:
    case PROFILE_GATE_UP:
        return fused_us(profile, op, third, first, second, match);
    case PROFILE_OPS:
        break;
    }
    ASSERT(op < PROFILE_OPS);
    return NAN;
}

static int compare_doubles(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

struct profile_errors profile_errors_of(double *errors, size_t n) {
    struct profile_errors out = {.n = n};
    if (n == 0) {
        return out;
    }
    qsort(errors, n, sizeof *errors, compare_doubles);
    out.median = errors[n / 2];
    for (size_t i = 0; i < n; i++) {
        errors[i] = fabs(errors[i]);
    }
    qsort(errors, n, sizeof *errors, compare_doubles);
    out.median_abs = errors[n / 2];
    out.p90_abs = errors[n * 9 / 10];
    return out;
}

static struct profile_errors summarise(struct sample *sample) {
    return profile_errors_of(sample->errors, sample->n);
}

static void note(struct sample *sample, double predicted, double measured) {
    if (!isnan(predicted)) {
        sample->errors[sample->n++] = predicted / measured - 1;
    }
}

static enum profile_check_row row_of(const struct lattice *lattice, enum profile_op op,
                                     size_t cell) {
    static const enum profile_check_row others[PROFILE_OPS] = {
        [PROFILE_ATTENTION_CAUSAL] = CHECK_CAUSAL,
        [PROFILE_ATTENTION_DECODE] = CHECK_DECODE,
        [PROFILE_MOE] = CHECK_MOE,
        [PROFILE_ELEMENTWISE] = CHECK_ELEMENTWISE,
        [PROFILE_ALL_REDUCE] = CHECK_ALL_REDUCE,
        [PROFILE_ALL_GATHER] = CHECK_ALL_GATHER,
        [PROFILE_ATTENTION_FULL] = CHECK_FULL,
        [PROFILE_ATTENTION_BLOCK] = CHECK_BLOCK,
        [PROFILE_PASS] = CHECK_PASS,
        [PROFILE_HEAD] = CHECK_HEAD,
        [PROFILE_GATE_UP] = CHECK_GATE_UP,
        [PROFILE_ATTENTION_MIXED] = CHECK_MIXED,
        [PROFILE_ATTENTION_PATTERN] = CHECK_ATTENTION_PATTERN,
        [PROFILE_PATTERN] = CHECK_PATTERN,
    };
    if (op == PROFILE_GEMM) {
        return lattice_value(lattice, cell, GEMM_M) >= MIN_ROWS ? CHECK_GEMM : CHECK_GEMM_SMALL;
    }
    return others[op];
}

/* The table's own noise; see `noise` in the header. */
static void check_doubling(const struct lattice *gemm, size_t cell, struct sample *noise) {
    const struct lattice_axis *ms = &gemm->axes[GEMM_M];
    int64_t m = lattice_value(gemm, cell, GEMM_M);
    ptrdiff_t half = lattice_index(gemm, GEMM_M, m / 2), twice = lattice_index(gemm, GEMM_M, 2 * m);
    if (m >= DOUBLING_ROWS && m % 2 == 0 && half >= 0 && twice >= 0) {
        size_t base = cell % ms->stride;
        double below = gemm->time_us[base + (size_t)half * ms->stride];
        double above = gemm->time_us[base + (size_t)twice * ms->stride];
        note(noise, sqrt(below * above), gemm->time_us[cell]);
    }
}

static void check_slices(const struct profile *profile, size_t cell, struct samples *samples) {
    static const enum profile_check_row rows[] = {CHECK_GEMM_NEW_M, CHECK_GEMM_NEW_N,
                                                  CHECK_GEMM_NEW_K};
    const struct lattice *gemm = &profile->ops[PROFILE_GEMM];
    if (lattice_value(gemm, cell, GEMM_M) < MIN_ROWS) {
        return;
    }
    for (size_t axis = 0; axis < 3; axis++) {
        note(&samples->rows[rows[axis]][0], gemm_without_slice(profile, cell, axis),
             gemm->time_us[cell]);
    }
    check_doubling(gemm, cell, &samples->noise);
}

static void check_op(struct profile *profile, enum profile_op op, struct samples *samples) {
    struct lattice *lattice = &profile->ops[op];
    for (size_t cell = 0; cell < lattice->n_cells; cell++) {
        double measured = lattice->time_us[cell];
        if (isnan(measured)) {
            continue;
        }
        enum profile_match match = PROFILE_EXTRAPOLATED;
        double at[LATTICE_MAX_AXES];
        lattice->time_us[cell] = NAN;
        profile_cell_at(lattice, cell, at);
        double predicted = profile_predict(profile, op, cell, at, &match);
        lattice->time_us[cell] = measured;
        bool frontier = match == PROFILE_EXTRAPOLATED;
        note(&samples->rows[row_of(lattice, op, cell)][frontier], predicted, measured);
        if (op == PROFILE_ATTENTION_CAUSAL &&
            lattice_value(lattice, cell, CAUSAL_Q) + lattice_value(lattice, cell, CAUSAL_PREFIX) >=
                LONG_KV) {
            note(&samples->rows[CHECK_CAUSAL_LONG][frontier], predicted, measured);
        }
        if (op == PROFILE_GEMM) {
            check_slices(profile, cell, samples);
        }
    }
}

/* ---- whole shapes ---- */

/* Whether two cells belong to what is left out together. */
static bool same_shape(const struct lattice *lattice, enum profile_check_row row, size_t a,
                       size_t b) {
    if (row == CHECK_GEMM_SHAPE) {
        return a % lattice->axes[GEMM_M].stride == b % lattice->axes[GEMM_M].stride;
    }
    int64_t one = lattice_value(lattice, a, 0), other = lattice_value(lattice, b, 0);
    if (row != CHECK_MOE_MIXTURE) {
        return one == other;
    }
    struct moe_shape x = moe_shape_unpack(one), y = moe_shape_unpack(other);
    return x.hidden == y.hidden && x.top_k == y.top_k && x.experts == y.experts;
}

/* Predict the rows of what `first` belongs to without any of them; they are marked in `seen`. */
static void leave_out(struct profile *profile, enum profile_op op, enum profile_check_row row,
                      size_t first, bool *seen, double *kept, struct sample *samples) {
    struct lattice *lattice = &profile->ops[op];
    for (size_t cell = first; cell < lattice->n_cells; cell++) {
        kept[cell] = NAN;
        if (!isnan(lattice->time_us[cell]) && same_shape(lattice, row, first, cell)) {
            kept[cell] = lattice->time_us[cell];
            lattice->time_us[cell] = NAN;
            seen[cell] = true;
        }
    }
    for (size_t cell = first; cell < lattice->n_cells; cell++) {
        bool is_small = row == CHECK_GEMM_SHAPE && lattice_value(lattice, cell, GEMM_M) < MIN_ROWS;
        if (!isnan(kept[cell]) && !is_small) {
            enum profile_match match = PROFILE_EXTRAPOLATED;
            double at[LATTICE_MAX_AXES];
            profile_cell_at(lattice, cell, at);
            double predicted = profile_predict(profile, op, cell, at, &match);
            note(&samples[match == PROFILE_EXTRAPOLATED], predicted, kept[cell]);
        }
    }
    for (size_t cell = first; cell < lattice->n_cells; cell++) {
        lattice->time_us[cell] = isnan(kept[cell]) ? lattice->time_us[cell] : kept[cell];
    }
}

/* Another head layout answers as it would in a step: see profile_attention and spans_ns. */
static double predict_heads(const struct profile *profile, enum profile_op op, size_t cell) {
    const struct lattice *lattice = &profile->ops[op];
    enum profile_match match;
    struct head_layout wanted = head_layout_unpack(lattice_value(lattice, cell, 0));
    double at[LATTICE_MAX_AXES], share = 1;
    profile_cell_at(lattice, cell, at);
    size_t own = cell / lattice->axes[0].stride;
    if (op == PROFILE_ATTENTION_FULL || op == PROFILE_ATTENTION_BLOCK) {
        size_t other = spans_other_layout(profile, op, own, at[2], at[3], &share);
        return spans_us(profile, op, other, at[1] * share, at[2], at[3], &match);
    }
    size_t other = attention_other_layout(lattice, own);
    struct head_layout has = head_layout_unpack(lattice->axes[0].values[other]);
    if (op == PROFILE_ATTENTION_DECODE) {
        share = (double)(wanted.kv_heads * wanted.head_dim) / (double)(has.kv_heads * has.head_dim);
        return decode_us(profile, other, at[1] * share, at[2], &match);
    }
    share = (double)(wanted.heads * wanted.head_dim) / (double)(has.heads * has.head_dim);
    return causal_us(profile, other, at[1] * share, at[2], at[3], &match);
}

static void check_heads(const struct profile *profile, enum profile_op op,
                        enum profile_check_row row, struct samples *samples) {
    const struct lattice *lattice = &profile->ops[op];
    for (size_t cell = 0; lattice->n_cells > 0 && lattice->axes[0].n > 1 && cell < lattice->n_cells;
         cell++) {
        if (!isnan(lattice->time_us[cell])) {
            note(&samples->rows[row][1], predict_heads(profile, op, cell), lattice->time_us[cell]);
        }
    }
}

static void check_shapes(struct profile *profile, struct samples *samples) {
    static const struct {
        enum profile_op op;
        enum profile_check_row row;
    } shapes[] = {{PROFILE_GEMM, CHECK_GEMM_SHAPE},
                  {PROFILE_MOE, CHECK_MOE_SHAPE},
                  {PROFILE_MOE, CHECK_MOE_MIXTURE}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct lattice *lattice = &profile->ops[shapes[i].op];
        bool *seen = mem_zeroed(lattice->n_cells, sizeof *seen);
        double *kept = mem_unwritten(lattice->n_cells, sizeof *kept);
        for (size_t cell = 0; cell < lattice->n_cells; cell++) {
            if (!isnan(lattice->time_us[cell]) && !seen[cell]) {
                leave_out(profile, shapes[i].op, shapes[i].row, cell, seen, kept,
                          samples->rows[shapes[i].row]);
            }
        }
        free(seen);
        free(kept);
    }
    check_heads(profile, PROFILE_ATTENTION_CAUSAL, CHECK_CAUSAL_HEADS, samples);
    check_heads(profile, PROFILE_ATTENTION_DECODE, CHECK_DECODE_HEADS, samples);
    check_heads(profile, PROFILE_ATTENTION_FULL, CHECK_FULL_HEADS, samples);
    check_heads(profile, PROFILE_ATTENTION_BLOCK, CHECK_BLOCK_HEADS, samples);
}

void profile_check(struct profile *profile, struct profile_check *out) {
    size_t room = 0;
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        room = profile->ops[op].n_cells > room ? profile->ops[op].n_cells : room;
    }
    double *errors = mem_unwritten(room * (2 * (size_t)CHECK_ROWS + 1), sizeof *errors);
    struct samples samples;
    for (size_t i = 0; i < 2 * (size_t)CHECK_ROWS; i++) {
        samples.rows[i / 2][i % 2] = (struct sample){errors + i * room, 0};
    }
    samples.noise = (struct sample){errors + 2 * (size_t)CHECK_ROWS * room, 0};
    gemm_judge_tiles(profile); /* as long as all rows are there */
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        check_op(profile, (enum profile_op)op, &samples);
    }
    check_shapes(profile, &samples);
    for (size_t i = 0; i < CHECK_ROWS; i++) {
        out->rows[i].name = row_names[i];
        out->rows[i].interior = summarise(&samples.rows[i][0]);
        out->rows[i].frontier = summarise(&samples.rows[i][1]);
    }
    out->noise = summarise(&samples.noise);
    free(errors);
}
