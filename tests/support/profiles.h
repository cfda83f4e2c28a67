/* What test_profile.c and test_profile_errors.c and test_transfer.c share. */
#ifndef UNMASK_TESTS_SUPPORT_PROFILES_H
#define UNMASK_TESTS_SUPPORT_PROFILES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/model/gpu.h"
#include "sim/price/profile/profile.h"
#include "sim/price/profile/profile_check.h"
#include "sim/price/profile/profile_lattice.h"
#include "sim/price/profile/profile_table.h"
#include "sim/price/profile_share.h"
#include "sim/price/transfer.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define HEAD     "# kind: measured\n# source: a test\n"
#define IMPORTED "# kind: imported\n# source: a test\n"

static const struct profile_peaks peaks = {.flops = 100e12, .bandwidth = 1e12, .sms = 100};

static inline struct profile *parse(const char *text) {
    struct profile *profile = NULL;
    struct err err = {0};
    ck_assert_msg(profile_parse("t.csv", text, strlen(text), &peaks, &profile, &err) == 0, "%s",
                  err.text);
    return profile;
}

static inline struct profile_peaks peaks_of(const char *name) {
    struct err err = {0};
    const struct gpu *gpu = gpu_find(name, &err);
    ck_assert_ptr_nonnull(gpu);
    return profile_peaks_of(gpu);
}

static inline struct profile *open_shipped(const char *name) {
    struct err err = {0};
    char path[64];
    snprintf(path, sizeof path, "kernels/profiles/%s.csv", name);
    struct profile_peaks of_gpu = peaks_of(name);
    struct profile *profile = NULL;
    ck_assert_msg(profile_open(path, &of_gpu, &profile, &err) == 0, "%s", err.text);
    return profile;
}

static inline double gemm_ns(const struct profile *profile, int64_t m, int64_t n, int64_t k,
                             enum profile_match expected) {
    enum profile_match match;
    double ns = profile_gemm(profile, m, n, k, &match);
    ck_assert_msg(match == expected, "%lld x %lld x %lld: match %d", (long long)m, (long long)n,
                  (long long)k, (int)match);
    return ns;
}

/* One row of each kind, as `unmask calibrate` writes them. */
#define OWN                                                                                        \
    HEAD "# date: 2026-11-21\n# device: a test's\n"                                                \
         "gemm,64,4096,4096,10\ngemm,65,4096,4096,18\ngemm,128,4096,4096,20\n"                     \
         "gemm,100,1024,4096,7\n"                                                                  \
         "attention_full,1,512,8,8,128,40\nattention_full,1,1024,8,8,128,140\n"                    \
         "attention_full,4,512,8,8,128,100\nattention_full,4,1024,8,8,128,500\n"                   \
         "attention_block,1,32,256,8,8,128,10\nattention_block,1,32,512,8,8,128,14\n"              \
         "attention_block,8,32,256,8,8,128,31\nattention_block,8,32,512,8,8,128,63\n"              \
         "pass,norm,4096,128,2\npass,norm,4096,1024,9\npass,swiglu,12288,128,6\n"                  \
         "head,32,126464,4096,300\nhead,256,126464,4096,440\n"                                     \
         "host,refresh,40000,900\nhost,reuse,31000.5,700\n"

static inline struct profile_spans uniform(double n, double q, double cached, int64_t heads) {
    return (struct profile_spans){.n_seqs = (int64_t)n,
                                  .sum_q = n * q,
                                  .sum_kv = n * (q + cached),
                                  .sum_q_kv = n * q * (q + cached),
                                  .heads = heads,
                                  .kv_heads = heads,
                                  .head_dim = 128};
}

static inline double full_ns(const struct profile *profile, struct profile_spans spans,
                             enum profile_match expected) {
    enum profile_match match;
    double ns = profile_attention_full(profile, &spans, &match);
    ck_assert_int_eq(match, expected);
    return ns;
}

static inline double block_ns(const struct profile *profile, struct profile_spans spans,
                              enum profile_match expected) {
    enum profile_match match;
    double ns = profile_attention_block(profile, &spans, &match);
    ck_assert_int_eq(match, expected);
    return ns;
}

/* Along q in the pairs that tiles of 128 execute. */
static inline double between(double q, double at_512, double at_1024) {
    return at_512 + (at_1024 - at_512) * (q * (q + 128) - 512 * 640) / (1024.0 * 1152 - 512 * 640);
}

static inline void same_rows(struct profile *a, struct profile *b) {
    for (int op = 0; op < PROFILE_OPS; op++) {
        struct lattice *x = profile_lattice(a, (enum profile_op)op);
        struct lattice *y = profile_lattice(b, (enum profile_op)op);
        ck_assert_msg((x == NULL) == (y == NULL), "%s", profile_op_name((enum profile_op)op));
        for (size_t cell = 0; x != NULL && cell < x->n_cells; cell++) {
            ck_assert(isnan(x->time_us[cell]) ? isnan(y->time_us[cell])
                                              : x->time_us[cell] == y->time_us[cell]);
            ck_assert(row_is_raised(x, cell) == row_is_raised(y, cell));
        }
    }
}

static inline char *written(const struct profile *profile) {
    char *text = NULL;
    size_t size = 0;
    struct err err = {0};
    FILE *file = open_memstream(&text, &size);
    ck_assert_int_eq(profile_write(profile, file, &err), 0);
    fclose(file);
    return text;
}

/* Largest interior medians allowed, in percent: reached 2026-11, rounded up. The L40S table is
 * noisy (its clocks move under the power cap): products with one row more or less differ as much.
 */
static const struct {
    const char *gpu;
    double gemm, new_m, new_n, causal, decode;
} reached[] = {
    {"l40s", 4.5, 5.5, 6.8, 3.2, 2.0},         {"a100-80g", 1.7, 4.5, 4.3, 1.7, 1.5},
    {"h100", 2.4, 5.3, 4.1, 2.3, 1.8},         {"rtx4090", 0.2, 0.2, 2.4, 0.6, 0.9},
    {"rtx-pro-6000", 0.3, 0.3, 7.6, 0.7, 0.8},
};

static inline struct transfer_side side(const char *name, double flops, double bandwidth,
                                        int64_t sms) {
    struct profile_peaks rates = {.flops = flops, .bandwidth = bandwidth, .sms = sms};
    return (struct transfer_side){
        .gpu = name, .peaks = rates, .reached = rates, .link_bandwidth = 450e9};
}

static inline struct profile *transferred(const struct profile *donor, struct transfer_side to) {
    struct transfer_side from = side("old", peaks.flops, peaks.bandwidth, peaks.sms);
    return profile_transfer(donor, &from, &to);
}

#endif
