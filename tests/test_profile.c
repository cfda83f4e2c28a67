/* Measured profiles: parsing, lookups, leave-one-out errors of the shipped files, transfer. Run
 * from the repository root. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/cost/profile.h"
#include "sim/cost/profile_check.h"
#include "sim/cost/profile_lattice.h"
#include "sim/cost/transfer.h"
#include "sim/model/gpu.h"
#include "tests/suite.h"

#define HEAD "# kind: measured\n# source: a test\n"

static const struct profile_peaks peaks = {.flops = 100e12, .bandwidth = 1e12, .sms = 100};

static struct profile *parse(const char *text) {
    struct profile *profile = NULL;
    struct err err = {0};
    int status = profile_parse("t.csv", text, strlen(text), &peaks, &profile, &err);
    ck_assert_msg(status == 0, "%s", err.text);
    return profile;
}

static struct profile_peaks peaks_of(const char *name) {
    struct err err = {0};
    const struct gpu *gpu = gpu_find(name, &err);
    ck_assert_ptr_nonnull(gpu);
    return (struct profile_peaks){gpu->peak_bf16_flops, gpu->peak_bandwidth, gpu->sms};
}

static struct profile *open_shipped(const char *name) {
    struct err err = {0};
    char path[64];
    snprintf(path, sizeof path, "kernels/profiles/%s.csv", name);
    struct profile_peaks of_gpu = peaks_of(name);
    struct profile *profile = NULL;
    int status = profile_open(path, &of_gpu, &profile, &err);
    ck_assert_msg(status == 0, "%s", err.text);
    return profile;
}

static double gemm_ns(const struct profile *profile, int64_t m, int64_t n, int64_t k,
                      enum profile_match expected) {
    enum profile_match match;
    double ns = profile_gemm(profile, m, n, k, &match);
    ck_assert_msg(match == expected, "%lld x %lld x %lld: match %d", (long long)m, (long long)n,
                  (long long)k, (int)match);
    return ns;
}

START_TEST(an_exact_hit_returns_the_row) {
    struct profile *l40s = open_shipped("l40s");
    ck_assert_double_eq_tol(gemm_ns(l40s, 1024, 12288, 4096, PROFILE_EXACT), 404.6e3, 0.1e3);
    ck_assert_str_eq(profile_kind(l40s), "imported");
    ck_assert_ptr_nonnull(strstr(profile_source(l40s), "aiconfigurator@095f58a"));
    enum profile_match match;
    ck_assert_double_eq_tol(profile_collective(l40s, PROFILE_ALL_GATHER, 2, 512, &match), 5300,
                            1e-6);
    ck_assert_int_eq(match, PROFILE_EXACT);
    profile_close(l40s);
    struct profile *rtx4090 = open_shipped("rtx4090");
    ck_assert_double_eq_tol(gemm_ns(rtx4090, 1, 128256, 4096, PROFILE_EXACT), 1096.93e3, 1e-6);
    profile_close(rtx4090);
}
END_TEST

START_TEST(a_time_between_two_rows_lies_between_them) {
    struct profile *profile = parse(HEAD "gemm,512,4096,4096,100\ngemm,1024,4096,4096,200\n"
                                         "gemm,512,4096,8192,190\ngemm,1024,4096,8192,390\n");
    double in_m = gemm_ns(profile, 700, 4096, 4096, PROFILE_INTERPOLATED);
    ck_assert(in_m > 100e3 && in_m < 200e3);
    ck_assert_double_eq_tol(gemm_ns(profile, 512, 4096, 6144, PROFILE_INTERPOLATED), 145e3, 1e-6);
    double in_both = gemm_ns(profile, 700, 4096, 6144, PROFILE_INTERPOLATED);
    ck_assert(in_both > in_m && in_both < 390e3);
    profile_close(profile);
}
END_TEST

START_TEST(rows_of_one_tile_row_cost_the_same) {
    struct profile *profile = parse(HEAD "gemm,512,4096,4096,100\ngemm,1024,4096,4096,200\n");
    double first = gemm_ns(profile, 513, 4096, 4096, PROFILE_INTERPOLATED);
    ck_assert_double_eq(first, gemm_ns(profile, 640, 4096, 4096, PROFILE_INTERPOLATED));
    ck_assert_double_eq_tol(first, 125e3, 1e-6);
    ck_assert(first < gemm_ns(profile, 641, 4096, 4096, PROFILE_INTERPOLATED));
    profile_close(profile);
}
END_TEST

START_TEST(the_frontier_holds_the_utilisation) {
    struct profile *profile = parse(HEAD "gemm,512,4096,4096,200\ngemm,1024,4096,4096,400\n"
                                         "elementwise,1000000,2\nelementwise,2000000,3\n");
    double edge = gemm_ns(profile, 1024, 4096, 4096, PROFILE_EXACT);
    ck_assert_double_eq_tol(gemm_ns(profile, 8192, 4096, 4096, PROFILE_EXTRAPOLATED), 8 * edge, 1);
    ck_assert_double_eq_tol(gemm_ns(profile, 1024, 126464, 4096, PROFILE_EXTRAPOLATED),
                            126464.0 / 4096 * edge, 1);
    enum profile_match match;
    ck_assert_double_eq_tol(profile_elementwise(profile, 4000000, &match), 6e3, 1e-6);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    ck_assert_double_eq_tol(profile_elementwise(profile, 10, &match), 2e3, 1e-6);
    profile_close(profile);
}
END_TEST

START_TEST(cached_bytes_never_beat_memory_beyond_the_table) {
    /* 2 MB in 1 us is 2 TB/s from the L2 of a GPU whose memory has 1 TB/s. */
    struct profile *profile = parse(HEAD "elementwise,2000000,1\n");
    enum profile_match match;
    ck_assert_double_eq_tol(profile_elementwise(profile, 200000000, &match), 200e3, 1e-6);
    profile_close(profile);
}
END_TEST

static double attention_ns(const struct profile *profile, int64_t n, double q, double kv) {
    struct profile_spans spans = {.n_seqs = n,
                                  .sum_q = (double)n * q,
                                  .sum_kv = (double)n * kv,
                                  .sum_q_kv = (double)n * q * kv,
                                  .heads = 32,
                                  .kv_heads = 32,
                                  .head_dim = 128};
    enum profile_match match;
    double ns = profile_attention(profile, &spans, &match);
    ck_assert(isfinite(ns) && ns > 0);
    ck_assert_int_ne(match, PROFILE_EXACT); /* no table holds unmasked spans */
    return ns;
}

START_TEST(a_bidirectional_pass_is_the_causal_pass_of_half_as_many_twice_as_long) {
    struct profile *h100 = open_shipped("h100");
    /* The row of 8 causal sequences of 4096 is 16 x 2048 x 2048 plus the masked halves of the
     * diagonal tiles, 1/32 of the work. */
    struct lattice *causal = profile_lattice(h100, PROFILE_ATTENTION_CAUSAL);
    ptrdiff_t layout = lattice_index(causal, 0, INT64_C(32) << 32 | 32 << 16 | 128);
    ptrdiff_t batch = lattice_index(causal, 1, 8), length = lattice_index(causal, 2, 4096);
    ck_assert(layout >= 0 && batch >= 0 && length >= 0);
    double row_us = causal->time_us[(size_t)layout * causal->axes[0].stride +
                                    (size_t)batch * causal->axes[1].stride +
                                    (size_t)length * causal->axes[2].stride];
    double ns = attention_ns(h100, 16, 2048, 2048);
    ck_assert(ns < 1e3 * row_us && ns > 1e3 * row_us * (1 - 1.0 / 32));
    profile_close(h100);
}
END_TEST

START_TEST(attention_grows_with_every_size_and_never_beats_the_roofline) {
    static const char *const names[] = {"l40s", "a100-80g", "h100", "rtx4090", "rtx-pro-6000"};
    for (size_t g = 0; g < sizeof names / sizeof names[0]; g++) {
        struct profile *profile = open_shipped(names[g]);
        struct profile_peaks of_gpu = peaks_of(names[g]);
        for (double kv = 256; kv <= 8192; kv *= 2) {
            double full = attention_ns(profile, 8, kv, kv),
                   block = attention_ns(profile, 8, 32, kv);
            ck_assert_msg(full <= 1.02 * attention_ns(profile, 16, kv, kv), "%s kv %g", names[g],
                          kv);
            ck_assert_msg(full < attention_ns(profile, 8, 2 * kv, 2 * kv), "%s kv %g", names[g],
                          kv);
            ck_assert_msg(block < attention_ns(profile, 8, 32, 2 * kv), "%s kv %g", names[g], kv);
            ck_assert(block < full);
            ck_assert(full > 1e9 * 8 * 4 * kv * kv * 4096 / (1.2 * of_gpu.flops));
            ck_assert(block >= 0.999e9 * 8 * kv * 4096 * 4 / of_gpu.bandwidth);
        }
        profile_close(profile);
    }
}
END_TEST

START_TEST(four_times_the_rows_never_cost_less) {
    static const char *const names[] = {"a100-80g", "h100", "rtx4090", "rtx-pro-6000"};
    for (size_t g = 0; g < sizeof names / sizeof names[0]; g++) {
        struct profile *profile = open_shipped(names[g]);
        enum profile_match match;
        double last = 0;
        for (int64_t m = 64; m <= 16384; m *= 4) {
            double ns = profile_gemm(profile, m, 24576, 4096, &match);
            ck_assert_msg(ns > last, "%s m %lld", names[g], (long long)m);
            last = ns;
        }
        profile_close(profile);
    }
}
END_TEST

START_TEST(mixtures_and_collectives_answer_for_sizes_nobody_measured) {
    struct profile *h100 = open_shipped("h100");
    enum profile_match match;
    double between = profile_moe(h100, 700, 2048, 768, 8, 128, &match);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    ck_assert(between > profile_moe(h100, 512, 2048, 768, 8, 128, &match));
    ck_assert_int_eq(match, PROFILE_EXACT);
    ck_assert(between < profile_moe(h100, 768, 2048, 768, 8, 128, &match));
    ck_assert(profile_moe(h100, 700, 2048, 1024, 8, 64, &match) > 0);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    double two = profile_collective(h100, PROFILE_ALL_REDUCE, 2, 3000000, &match);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    ck_assert(two > 0 && profile_collective(h100, PROFILE_ALL_REDUCE, 3, 3000000, &match) > two);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    profile_close(h100);
}
END_TEST

static void expect_bad(const char *text, const char *sentence) {
    struct err err = {0};
    struct profile *profile = NULL;
    ck_assert_int_eq(profile_parse("t.csv", text, strlen(text), &peaks, &profile, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, sentence);
    ck_assert_ptr_null(profile);
}

START_TEST(a_bad_row_is_named_with_its_place) {
    expect_bad(HEAD "gemm,1,512,3.5\n",
               "t.csv:3: gemm has 3 columns after its name, expected 4: m,n,k,time_us");
    expect_bad(HEAD "gemm,1,512,512,nan\n",
               "t.csv:3: time_us is 'nan', expected a positive number");
    expect_bad(HEAD "gemm,1,512,512,-2\n", "t.csv:3: time_us is '-2', expected a positive number");
    expect_bad(HEAD "gemm,0,512,512,2\n",
               "t.csv:3: '0' is not a size from 1 to 2^40 (m,n,k,time_us)");
    expect_bad(HEAD "gemm,1,512,512,2\ngemm,2,512,512,2\ngemm,1,512,512,3\n",
               "t.csv:5: the same gemm row stands in line 3 already");
    expect_bad(HEAD "gmm,1,512,512,2\n", "t.csv:3: unknown operator 'gmm'; did you mean 'gemm'?");
    expect_bad(HEAD "attention_decode,1,2,8,4,4,128,9\n",
               "t.csv:3: attention_decode with 2 queries over 8 keys");
    expect_bad("# kind: guessed\n", "t.csv:1: kind is 'guessed', expected measured or imported");
    expect_bad("# kind: measured\ngemm,1,512,512,2\n",
               "t.csv: no '# source: ' line says where the numbers come from");
}
END_TEST

START_TEST(a_missing_operator_is_named_when_it_is_needed) {
    struct profile *profile = parse(HEAD "gemm,1,512,512,2\n");
    struct err err = {0};
    ck_assert_int_eq(profile_require(profile, PROFILE_GEMM, &err), 0);
    ck_assert_int_eq(profile_require(profile, PROFILE_ELEMENTWISE, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "t.csv: has no 'elementwise' rows (elementwise,bytes,time_us)");
    ck_assert_ptr_null(profile_lattice(profile, PROFILE_MOE));
    profile_close(profile);
    struct err unread = {0};
    ck_assert_int_eq(profile_open("no/such.csv", &peaks, &profile, &unread), ERR_WORLD);
    ck_assert_str_eq(unread.text, "cannot read the profile no/such.csv: No such file or directory");
}
END_TEST

/* Largest interior medians allowed, in percent: reached 2026-11, rounded up. The L40S table is
 * noisy (its clocks move under the power cap): products with one row more or less differ as much.
 */
static const struct {
    const char *gpu;
    double gemm, new_m, new_n, causal, decode;
} reached[] = {
    {"l40s", 4.5, 5.5, 6.8, 3.2, 1.9},         {"a100-80g", 1.7, 4.5, 4.3, 1.7, 1.5},
    {"h100", 2.4, 5.3, 4.1, 2.3, 1.8},         {"rtx4090", 0.2, 0.2, 2.4, 0.6, 0.9},
    {"rtx-pro-6000", 0.3, 0.3, 7.6, 0.7, 0.8},
};

START_TEST(leaving_one_row_out_predicts_it) {
    for (size_t g = 0; g < sizeof reached / sizeof reached[0]; g++) {
        struct profile *profile = open_shipped(reached[g].gpu);
        struct profile_check check;
        struct err err = {0};
        enum profile_match match;
        double before = profile_gemm(profile, 64, 4096, 4096, &match);
        ck_assert_int_eq(profile_check(profile, &check, &err), 0);
        ck_assert_double_eq(before, profile_gemm(profile, 64, 4096, 4096, &match));
        const struct {
            enum profile_check_row row;
            double percent;
        } limits[] = {
            {CHECK_GEMM, reached[g].gemm},        {CHECK_GEMM_NEW_M, reached[g].new_m},
            {CHECK_GEMM_NEW_N, reached[g].new_n}, {CHECK_CAUSAL, reached[g].causal},
            {CHECK_DECODE, reached[g].decode},
        };
        for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
            const struct profile_errors *errors = &check.rows[limits[i].row].interior;
            ck_assert_uint_gt(errors->n, 50);
            ck_assert_double_gt(errors->median_abs, 0); /* the row really was away */
            ck_assert_msg(100 * errors->median_abs <= limits[i].percent, "%s %s: %.2f %%",
                          reached[g].gpu, check.rows[limits[i].row].name, 100 * errors->median_abs);
            ck_assert(fabs(errors->median) < 0.02 && errors->p90_abs >= errors->median_abs);
        }
        profile_close(profile);
    }
}
END_TEST

START_TEST(the_l40s_table_is_noisier_than_its_leave_one_out_error) {
    struct profile *l40s = open_shipped("l40s");
    struct profile_check check;
    struct err err = {0};
    ck_assert_int_eq(profile_check(l40s, &check, &err), 0);
    ck_assert_uint_gt(check.noise.n, 300);
    ck_assert_double_gt(check.noise.median_abs, check.rows[CHECK_GEMM].interior.median_abs);
    profile_close(l40s);
}
END_TEST

START_TEST(a_transfer_says_so_and_scales_by_the_bound) {
    struct profile *donor = parse(HEAD "gemm,1,512,512,2\ngemm,1,8192,8192,152\n"
                                       "gemm,4096,8192,8192,6002\nall_reduce,2,1024,7\n");
    struct profile_peaks target = {.flops = 200e12, .bandwidth = 4e12, .sms = 100};
    struct profile *out = NULL;
    struct err err = {0};
    ck_assert_int_eq(profile_transfer(donor, "old", &target, "new", &out, &err), 0);
    ck_assert_str_eq(profile_kind(out), "transferred");
    ck_assert_str_eq(profile_source(out), "new, scaled from old by data-sheet peaks: a test");
    /* The floor of 2 us stays; the rest goes by bandwidth (4) or by rate (2). */
    ck_assert_double_eq_tol(gemm_ns(out, 1, 512, 512, PROFILE_EXACT), 2e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(out, 1, 8192, 8192, PROFILE_EXACT), 39.5e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(out, 4096, 8192, 8192, PROFILE_EXACT), 3002e3, 1e-6);
    enum profile_match match;
    ck_assert_double_eq_tol(profile_collective(out, PROFILE_ALL_REDUCE, 2, 1024, &match), 7e3,
                            1e-6);
    profile_close(out);
    profile_close(donor);
}
END_TEST

START_TEST(a_transfer_from_h100_comes_within_a_quarter_of_the_a100) {
    struct profile *h100 = open_shipped("h100"), *a100 = open_shipped("a100-80g"), *guess = NULL;
    struct profile_peaks of_a100 = peaks_of("a100-80g");
    struct err err = {0};
    ck_assert_int_eq(profile_transfer(h100, "h100", &of_a100, "a100-80g", &guess, &err), 0);
    double sum = 0;
    int n = 0;
    for (int64_t m = 16; m <= 8192; m *= 2) {
        for (int64_t size = 2048; size <= 16384; size *= 2) {
            enum profile_match match;
            sum += fabs(log(profile_gemm(guess, m, size, 4096, &match) /
                            profile_gemm(a100, m, size, 4096, &match)));
            n++;
        }
    }
    ck_assert_double_lt(sum / n, 0.25);
    profile_close(h100);
    profile_close(a100);
    profile_close(guess);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        an_exact_hit_returns_the_row,
        a_time_between_two_rows_lies_between_them,
        rows_of_one_tile_row_cost_the_same,
        the_frontier_holds_the_utilisation,
        cached_bytes_never_beat_memory_beyond_the_table,
        a_bidirectional_pass_is_the_causal_pass_of_half_as_many_twice_as_long,
        attention_grows_with_every_size_and_never_beats_the_roofline,
        four_times_the_rows_never_cost_less,
        mixtures_and_collectives_answer_for_sizes_nobody_measured,
        a_bad_row_is_named_with_its_place,
        a_missing_operator_is_named_when_it_is_needed,
        leaving_one_row_out_predicts_it,
        the_l40s_table_is_noisier_than_its_leave_one_out_error,
        a_transfer_says_so_and_scales_by_the_bound,
        a_transfer_from_h100_comes_within_a_quarter_of_the_a100,
    };
    return SUITE_RUN("profile", tests);
}
