/* Rows that a benchmark's loop timed on a warm cache.
 *
 * aiconfigurator's collector times a product over 6 weights in turn (its collect_gemm.py), experts
 * on one set of weights and decoding on one set of keys; a step meets each weight once, between all
 * others. Rows whose loop fits into the L2 cache are warm: on the L40S, with 96 MiB, products jump
 * from 1.4 to 0.8 of the memory's peak where six weights cease to fit, and decoding from 1.9 to 0.7
 * where its keys do. An H100 was timed both ways (experiments/gpu/results/2026-11-22-h100,
 * cold-products.csv): where six weights do not fit, its imported rows are what products take cold
 * (0.9 to 1.1 of it), at half of the cache they take 0.8 of it.
 *
 * A warm row, or one that is faster than memory all the same, is given no less than the straight
 * line in bytes through the same operator's rows that do read from memory: 3.7 us and 2.93 TB/s for
 * products on the H100, which on weights of 4 and 13 MB is within 3 % of those timed cold. A start
 * is never longer than the warm row itself, and that of experts and of decoding grows with their
 * sizes: they are given the rate alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/price/profile/profile_table.h"

/* Rows of more tokens than this are not bound by the memory alone. */
enum { STREAMING_TOKENS = 16 };

/* Bytes that one execution of a row reads: weights or keys. 0: not of this kind. */
static double stream_bytes(const struct profile *profile, enum profile_op op, size_t cell) {
    const struct lattice *lattice = &profile->ops[op];
    const double stored_bytes = profile->peaks.stored_bytes;
    if (op == PROFILE_GEMM) {
        return stored_bytes * (double)lattice_value(lattice, cell, GEMM_N) *
               (double)lattice_value(lattice, cell, GEMM_K);
    }
    if (op == PROFILE_MOE) {
        struct moe_shape shape = moe_shape_unpack(lattice_value(lattice, cell, MOE_SHAPE));
        return 3 * stored_bytes * (double)(shape.hidden * shape.expert_ffn) *
               moe_row_hits(profile, cell);
    }
    struct head_layout layout = head_layout_unpack(lattice_value(lattice, cell, DECODE_LAYOUT));
    return 2 * stored_bytes *
           (double)(lattice_value(lattice, cell, DECODE_BATCH) *
                    lattice_value(lattice, cell, DECODE_KV)) *
           (double)(layout.kv_heads * layout.head_dim);
}

/* No more than that, and quick to say: every pair of a token and an expert may be another expert.
 */
static double most_bytes(const struct profile *profile, enum profile_op op, size_t cell) {
    const struct lattice *lattice = &profile->ops[op];
    if (op != PROFILE_MOE) {
        return stream_bytes(profile, op, cell);
    }
    struct moe_shape shape = moe_shape_unpack(lattice_value(lattice, cell, MOE_SHAPE));
    int64_t pairs = shape.top_k * lattice_value(lattice, cell, MOE_TOKENS);
    return 3 * profile->peaks.stored_bytes * (double)(shape.hidden * shape.expert_ffn) *
           (double)(pairs < shape.experts ? pairs : shape.experts);
}

static bool streams(const struct profile *profile, enum profile_op op, size_t cell) {
    const struct lattice *lattice = &profile->ops[op];
    size_t tokens = op == PROFILE_GEMM ? GEMM_M : MOE_TOKENS;
    return op == PROFILE_ATTENTION_DECODE ||
           lattice_value(lattice, cell, tokens) <= STREAMING_TOKENS;
}

/* Time of rows that read from memory: a start and a rate; 0 bytes a us: there are no such rows. */
struct cold_line {
    double start_us, bytes_per_us;
};

/* By least squares of relative errors, through rows whose loop is twice as large as the cache but
 * each of which is not so large that nothing is seen of the start. */
static struct cold_line cold_line(const struct profile *profile, enum profile_op op,
                                  double in_turn) {
    enum { SEVERAL_CACHES = 16, FEWEST_ROWS = 8 };
    const struct lattice *lattice = &profile->ops[op];
    double l2 = (double)profile->peaks.l2_bytes, n = 0, w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (size_t cell = 0; cell < lattice->n_cells; cell++) {
        double y = lattice->time_us[cell], x = isnan(y) ? 0 : stream_bytes(profile, op, cell);
        if (isnan(y) || !streams(profile, op, cell) || in_turn * x < 2 * l2 ||
            x > SEVERAL_CACHES * l2) {
            continue;
        }
        n++;
        w += 1 / (y * y);
        wx += x / (y * y);
        wy += 1 / y;
        wxx += x * x / (y * y);
        wxy += x / y;
    }
    double spread = w * wxx - wx * wx;
    if (n < FEWEST_ROWS || spread <= 0) {
        return (struct cold_line){0};
    }
    double slope = (w * wxy - wx * wy) / spread, start_us = (wy - slope * wx) / w;
    if (start_us < 0 || slope <= 0) {
        return (struct cold_line){0, wxx / wxy};
    }
    return (struct cold_line){op == PROFILE_GEMM ? start_us : 0, 1 / slope};
}

static void cool_op(struct profile *profile, enum profile_op op, double in_turn) {
    struct lattice *lattice = &profile->ops[op];
    profile->raised[op] = mem_zeroed(lattice->n_cells, 1);
    struct cold_line cold = cold_line(profile, op, in_turn);
    for (size_t cell = 0; cold.bytes_per_us > 0 && cell < lattice->n_cells; cell++) {
        double row_us = lattice->time_us[cell];
        if (isnan(row_us) ||
            row_us >= cold.start_us + most_bytes(profile, op, cell) / cold.bytes_per_us) {
            continue;
        }
        double bytes = stream_bytes(profile, op, cell);
        bool is_warm = in_turn * bytes <= (double)profile->peaks.l2_bytes ||
                       bytes / row_us > 1e-6 * profile->peaks.bandwidth;
        double cold_us = fmin(cold.start_us, row_us) + bytes / cold.bytes_per_us;
        if (is_warm && row_us < cold_us) {
            lattice->time_us[cell] = cold_us;
            profile->raised[op][cell] = 1;
        }
    }
}

/* "gemm 6, moe 1, attention_decode 1" */
void profile_cool(struct profile *profile) {
    static const enum profile_op ops[] = {PROFILE_GEMM, PROFILE_MOE, PROFILE_ATTENTION_DECODE};
    const char *text = profile_note(profile, "weights_in_turn");
    const char *routing = profile_note(profile, "expert_routing");
    static const char power_law[] = "power_law ";
    if (routing != NULL && strncmp(routing, power_law, sizeof power_law - 1) == 0) {
        profile->routing_alpha = strtod(routing + sizeof power_law - 1, NULL);
    }
    for (size_t i = 0; text != NULL && i < sizeof ops / sizeof ops[0]; i++) {
        const char *name = profile_op_name(ops[i]), *at = strstr(text, name);
        double in_turn = at != NULL ? strtod(at + strlen(name), NULL) : 0;
        if (in_turn >= 1 && profile->ops[ops[i]].n_cells > 0 && profile->peaks.l2_bytes > 0) {
            cool_op(profile, ops[i], in_turn);
        }
    }
}

size_t profile_raised(const struct profile *profile, enum profile_op op, size_t *n_rows) {
    const struct lattice *lattice = &profile->ops[op];
    size_t n_raised = 0;
    *n_rows = 0;
    for (size_t cell = 0; cell < lattice->n_cells; cell++) {
        *n_rows += !isnan(lattice->time_us[cell]);
        n_raised += profile->raised[op] != NULL && profile->raised[op][cell];
    }
    return n_raised;
}
