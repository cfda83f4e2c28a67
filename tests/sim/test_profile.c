/* Measured profiles: parsing, lookups, leave-one-out errors of the shipped files, transfer. Run
 * from the repository root. */
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

static struct profile *parse(const char *text) {
    struct profile *profile = NULL;
    struct err err = {0};
    ck_assert_msg(profile_parse("t.csv", text, strlen(text), &peaks, &profile, &err) == 0, "%s",
                  err.text);
    return profile;
}

static struct profile_peaks peaks_of(const char *name) {
    struct err err = {0};
    const struct gpu *gpu = gpu_find(name, &err);
    ck_assert_ptr_nonnull(gpu);
    return profile_peaks_of(gpu);
}

static struct profile *open_shipped(const char *name) {
    struct err err = {0};
    char path[64];
    snprintf(path, sizeof path, "kernels/profiles/%s.csv", name);
    struct profile_peaks of_gpu = peaks_of(name);
    struct profile *profile = NULL;
    ck_assert_msg(profile_open(path, &of_gpu, &profile, &err) == 0, "%s", err.text);
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

TEST(an_exact_hit_returns_the_row) {
    struct profile *l40s = open_shipped("l40s");
    ck_assert_double_eq_tol(gemm_ns(l40s, 1024, 12288, 4096, PROFILE_EXACT), 404.6e3, 0.1e3);
    ck_assert_int_eq(profile_kind(l40s), PROVENANCE_IMPORTED);
    ck_assert_ptr_nonnull(strstr(profile_source(l40s), "aiconfigurator@095f58a"));
    enum profile_match match;
    ck_assert_double_eq_tol(profile_collective(l40s, PROFILE_ALL_GATHER, 2, 256, &match), 5300,
                            1e-6);
    ck_assert_int_eq(match, PROFILE_EXACT);
    profile_close(l40s);
    struct profile *rtx4090 = open_shipped("rtx4090");
    ck_assert_double_eq_tol(gemm_ns(rtx4090, 1, 128256, 4096, PROFILE_EXACT), 1096.93e3, 1e-6);
    profile_close(rtx4090);
}

/* A data sheet that says less than a card does would have its products bound by memory. */
TEST(a_card_that_does_more_than_its_sheet_has_its_own_peaks) {
    static const struct {
        const char *kind, *row;
        double flops, bandwidth;
        bool is_assumed;
    } cases[] = {
        /* 33.6 MB in 11 us: 3.05e12 bytes/s. 137 GFLOP in 500 us: 275e12 FLOP/s. */
        {"measured", "gemm,1,4096,4096,11\ngemm,4096,4096,4096,500\n", 274.9e12, 3.05e12, false},
        {"measured", "gemm,1,4096,4096,11\ngemm,4096,4096,4096,2000\n", 100e12, 3.05e12, false},
        {"measured", "gemm,1,4096,4096,33\ngemm,4096,4096,4096,1350\n", 100e12, 1e12, false},
        {"imported", "gemm,1,4096,4096,11\ngemm,4096,4096,4096,500\n", 100e12, 1e12, false},
        {"measured", "gemm,1,4096,4096,11\ngemm,4096,4096,4096,500\n", 100e12, 1e12, true},
        {"measured", "head,1,4096,4096,11\n", 100e12, 3.05e12, false},
        /* 16.8 MB, which the L2 cache of 20 MB may hold. */
        {"measured", "gemm,1,4096,2048,5.5\n", 100e12, 1e12, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct profile_peaks sheet = peaks;
        struct profile *profile = NULL;
        struct err err = {0};
        char text[256];
        snprintf(text, sizeof text, "# kind: %s\n# source: a test\n%s", cases[i].kind,
                 cases[i].row);
        sheet.is_assumed = cases[i].is_assumed;
        sheet.l2_bytes = 20000000;
        ck_assert_msg(profile_parse("t.csv", text, strlen(text), &sheet, &profile, &err) == 0, "%s",
                      err.text);
        ck_assert_double_eq_tol(profile_peaks(profile)->flops, cases[i].flops, 1e11);
        ck_assert_double_eq_tol(profile_peaks(profile)->bandwidth, cases[i].bandwidth, 1e9);
        profile_close(profile);
    }
}

TEST(a_time_between_two_rows_lies_between_them) {
    struct profile *profile = parse(HEAD "gemm,512,4096,4096,100\ngemm,1024,4096,4096,200\n"
                                         "gemm,512,4096,8192,190\ngemm,1024,4096,8192,390\n");
    double in_m = gemm_ns(profile, 700, 4096, 4096, PROFILE_INTERPOLATED);
    ck_assert(in_m > 100e3 && in_m < 200e3);
    ck_assert_double_eq_tol(gemm_ns(profile, 512, 4096, 6144, PROFILE_INTERPOLATED), 145e3, 1e-6);
    double in_both = gemm_ns(profile, 700, 4096, 6144, PROFILE_INTERPOLATED);
    ck_assert(in_both > in_m && in_both < 390e3);
    profile_close(profile);
}

TEST(rows_of_one_tile_row_cost_the_same_in_imported_tables) {
    struct profile *profile = parse(IMPORTED "gemm,512,4096,4096,100\ngemm,1024,4096,4096,200\n");
    double first = gemm_ns(profile, 513, 4096, 4096, PROFILE_INTERPOLATED);
    ck_assert_double_eq(first, gemm_ns(profile, 640, 4096, 4096, PROFILE_INTERPOLATED));
    ck_assert_double_eq_tol(first, 125e3, 1e-6);
    ck_assert(first < gemm_ns(profile, 641, 4096, 4096, PROFILE_INTERPOLATED));
    profile_close(profile);
}

TEST(the_frontier_holds_the_utilisation) {
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

TEST(cached_bytes_never_beat_memory_beyond_the_table) {
    /* 2 MB in 1 us is 2 TB/s from the L2 of a GPU whose memory has 1 TB/s. */
    struct profile *profile = parse(HEAD "elementwise,2000000,1\n");
    enum profile_match match;
    ck_assert_double_eq_tol(profile_elementwise(profile, 200000000, &match), 200e3, 1e-6);
    profile_close(profile);
}

static double attention_ns(const struct profile *profile, int64_t n, double q, double kv) {
    struct profile_spans spans =
        MAKE(struct profile_spans, .n_seqs = n, .sum_q = (double)n * q, .sum_kv = (double)n * kv,
             .sum_q_kv = (double)n * q * kv, .heads = 32, .kv_heads = 32, .head_dim = 128);
    enum profile_match match;
    double ns = profile_attention(profile, &spans, &match);
    ck_assert(isfinite(ns) && ns > 0);
    ck_assert_int_ne(match, PROFILE_EXACT); /* no table holds unmasked spans */
    /* Layouts found before are those that the lookup finds. */
    struct profile_layouts layouts = profile_layouts_of(profile, 32, 32, 128);
    spans.layouts = &layouts;
    ck_assert_double_eq(profile_attention(profile, &spans, &match), ns);
    return ns;
}

TEST(a_bidirectional_pass_is_the_causal_pass_of_half_as_many_twice_as_long) {
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

TEST(attention_grows_with_every_size_and_never_beats_the_roofline) {
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

/* The queries of a prefill after a prefix see the prefix and half of themselves: as long as without
 * a mask over a few keys less than all. */
TEST(a_prefill_behind_a_prefix_lies_between_its_prefix_and_all_keys) {
    static const char *const names[] = {"l40s", "a100-80g", "h100"};
    for (size_t g = 0; g < sizeof names / sizeof names[0]; g++) {
        struct profile *profile = open_shipped(names[g]);
        const double n = 8, q = 1024, prefix = 3072;
        struct profile_spans spans = MAKE(
            struct profile_spans, .n_seqs = 8, .sum_q = n * q, .sum_kv = n * (prefix + q),
            .sum_q_kv = n * q * (prefix + q / 2), .heads = 32, .kv_heads = 32, .head_dim = 128);
        enum profile_match match;
        double ns = profile_attention_prefill(profile, &spans, &match);
        ck_assert_msg(ns > attention_ns(profile, 8, q, prefix), "%s", names[g]);
        ck_assert_msg(ns < attention_ns(profile, 8, q, prefix + q), "%s", names[g]);
        profile_close(profile);
    }
}

TEST(four_times_the_rows_never_cost_less) {
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

TEST(mixtures_and_collectives_answer_for_sizes_nobody_measured) {
    struct profile *h100 = open_shipped("h100");
    enum profile_match match;
    double between = profile_moe(h100, (struct moe_shape){2048, 768, 8, 128}, 700, 0, &match);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    ck_assert(between > profile_moe(h100, (struct moe_shape){2048, 768, 8, 128}, 512, 0, &match));
    ck_assert_int_eq(match, PROFILE_EXACT);
    ck_assert(between < profile_moe(h100, (struct moe_shape){2048, 768, 8, 128}, 768, 0, &match));
    ck_assert(profile_moe(h100, (struct moe_shape){2048, 1024, 8, 64}, 700, 0, &match) > 0);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    double two = profile_collective(h100, PROFILE_ALL_REDUCE, 2, 3000000, &match);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    ck_assert(two > 0 && profile_collective(h100, PROFILE_ALL_REDUCE, 3, 3000000, &match) > two);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    profile_close(h100);
}

/* Bytes are one GPU's: tables that give those of all parts together would send beyond the link. */
TEST(no_collective_of_a_table_sends_faster_than_its_link) {
    static const char *const gpus[] = {"a100-80g", "h100", "h200", "l40s"};
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        struct profile *profile = open_shipped(gpus[i]);
        struct err err = {0};
        const struct gpu *gpu = gpu_find(gpus[i], &err);
        ck_assert_ptr_nonnull(gpu);
        for (int op = PROFILE_ALL_REDUCE; op <= PROFILE_ALL_GATHER; op++) {
            const struct lattice *rows = &profile->ops[op];
            ck_assert_uint_gt(rows->n_cells, 0);
            for (size_t cell = 0; cell < rows->n_cells; cell++) {
                const double n_gpus = (double)lattice_value(rows, cell, 0);
                const double bytes = (double)lattice_value(rows, cell, 1);
                const double sent =
                    bytes * (n_gpus - 1) * (op == PROFILE_ALL_REDUCE ? 2 / n_gpus : 1);
                const double us = rows->time_us[cell];
                ck_assert_msg(isnan(us) || sent / us <= 1e-6 * gpu->link_bandwidth,
                              "%s %d: %g bytes of %g GPUs in %g us", gpus[i], op, bytes, n_gpus,
                              us);
            }
        }
        profile_close(profile);
    }
}

static struct profile *parse_with_cache(const char *text, int64_t l2_bytes) {
    struct profile_peaks cached = peaks;
    struct profile *profile = NULL;
    struct err err = {0};
    cached.l2_bytes = l2_bytes;
    ck_assert_msg(profile_parse("t.csv", text, strlen(text), &cached, &profile, &err) == 0, "%s",
                  err.text);
    return profile;
}

/* Weights of 2, 32, 64, ... MiB; those of 8 rows and more from memory in 5 us and 1 TB/s. */
static const char warm_rows[] =
    IMPORTED "# weights_in_turn: gemm 6, attention_decode 1\n"
             "gemm,1,1024,1024,1.5\ngemm,8,1024,1024,6\ngemm,512,1024,1024,30\n"
             "gemm,1,4096,4096,38.554\ngemm,2,4096,4096,38.554\ngemm,4,4096,4096,38.554\n"
             "gemm,8,4096,4096,38.554\ngemm,1,8192,4096,72.109\ngemm,2,8192,4096,72.109\n"
             "gemm,4,8192,4096,72.109\ngemm,8,8192,4096,72.109\n";

TEST(a_row_timed_on_a_warm_cache_takes_what_its_weights_take_from_memory) {
    struct profile *profile = parse_with_cache(warm_rows, 16 << 20);
    size_t n_rows;
    ck_assert_uint_eq(profile_raised(profile, PROFILE_GEMM, &n_rows), 2);
    ck_assert_uint_eq(n_rows, 11);
    /* 2 MiB in 2.1 us, and a start of 5 us or what the warm row took in all. */
    ck_assert_double_eq_tol(gemm_ns(profile, 1, 1024, 1024, PROFILE_EXTRAPOLATED), 3597, 1);
    ck_assert_double_eq_tol(gemm_ns(profile, 8, 1024, 1024, PROFILE_EXTRAPOLATED), 7097, 1);
    ck_assert_double_eq(gemm_ns(profile, 512, 1024, 1024, PROFILE_EXACT), 30e3);
    ck_assert_double_eq(gemm_ns(profile, 8, 4096, 4096, PROFILE_EXACT), 38554);
    profile_close(profile);
    /* Nothing is known of the cache, or nothing of the loop. */
    profile = parse_with_cache(warm_rows, 0);
    ck_assert_double_eq(gemm_ns(profile, 8, 1024, 1024, PROFILE_EXACT), 6e3);
    profile_close(profile);
    profile = parse_with_cache(IMPORTED "gemm,8,1024,1024,1\n", 16 << 20);
    ck_assert_double_eq(gemm_ns(profile, 8, 1024, 1024, PROFILE_EXACT), 1e3);
    profile_close(profile);
}

TEST(no_shipped_row_reads_its_weights_faster_than_memory) {
    static const char *const names[] = {"l40s", "a100-80g", "h100", "rtx4090", "rtx-pro-6000"};
    for (size_t g = 0; g < sizeof names / sizeof names[0]; g++) {
        struct profile *profile = open_shipped(names[g]);
        const struct lattice *gemm = profile_lattice(profile, PROFILE_GEMM);
        double bandwidth = profile_peaks(profile)->bandwidth;
        for (size_t cell = 0; cell < gemm->n_cells; cell++) {
            double bytes =
                2.0 * (double)lattice_value(gemm, cell, 1) * (double)lattice_value(gemm, cell, 2);
            ck_assert_msg(!(bytes / gemm->time_us[cell] > 1e-6 * bandwidth), "%s, m %lld", names[g],
                          (long long)lattice_value(gemm, cell, 0));
        }
        profile_close(profile);
    }
}

/* An H100's products with more weights in turn than its cache holds, torch 2.11, 2026-11-22
 * (experiments/gpu/results/2026-11-22-h100/cold-products.csv): m, n, k, us. The imported rows of
 * the first three were timed with all of their weights in the cache, 0.78 to 0.88 of these. */
TEST(rows_of_an_h100_are_what_products_take_cold) {
    static const struct {
        int64_t m, n, k;
        double cold_us;
    } measured[] = {{1, 2048, 1024, 5.22},   {32, 2048, 1024, 5.34},  {128, 2048, 1024, 5.50},
                    {1, 3072, 2048, 8.06},   {32, 3072, 2048, 8.13},  {1, 6144, 2048, 11.96},
                    {32, 6144, 2048, 12.19}, {128, 6144, 2048, 11.65}};
    struct profile *h100 = open_shipped("h100");
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        enum profile_match match;
        double us = 1e-3 * profile_gemm(h100, measured[i].m, measured[i].n, measured[i].k, &match);
        ck_assert_msg(fabs(us / measured[i].cold_us - 1) < 0.08, "%zu: %.2f us", i, us);
    }
    profile_close(h100);
}

TEST(experts_are_priced_by_how_many_are_hit) {
    /* By chance two tokens hit 3.5 of 8 experts, 1.5 of 2; with 6 MB each the launch is 10 us. */
    struct profile *own = parse(HEAD "moe,1,1000,1000,1,8,16\nmoe,2,1000,1000,1,8,21.25\n"
                                     "moe,4,1000,1000,1,8,30\n");
    const struct moe_shape shape = {1000, 1000, 1, 8};
    enum profile_match match;
    ck_assert_double_eq(profile_moe(own, shape, 2, 0, &match), 21.25e3);
    ck_assert_int_eq(match, PROFILE_EXACT);
    double one = profile_moe(own, shape, 2, 1, &match);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    double two = profile_moe(own, shape, 2, 2, &match);
    ck_assert_double_eq_tol(two - one, 6e3, 20); /* one expert more is 6 us of memory */
    profile_close(own);
    /* The same source's routing hits other numbers: 129 of 256 where chance has 163. */
    static const char routed[] = IMPORTED "# expert_routing: power_law 1.01\n"
                                          "moe,1,2048,512,8,256,60\nmoe,32,2048,512,8,256,810\n";
    struct profile *imported = parse(routed);
    const struct moe_shape mini = {2048, 512, 8, 256};
    double as_routed = profile_moe(imported, mini, 32, 0, &match);
    ck_assert_double_eq(as_routed, 810e3);
    double launch = 60e3 - 6.0 * 2048 * 512 * 8 / 1e12 * 1e9;
    double by_chance = profile_moe(imported, mini, 32, 163.3, &match);
    ck_assert_double_eq_tol((by_chance - launch) / (as_routed - launch), 163.3 / 128.5, 0.02);
    profile_close(imported);
}

/* A price is for the experts that are asked for, whatever number the rows say that they hit; files
 * without that column are as they were. */
TEST(rows_say_how_many_experts_they_hit) {
    static const char rows[] = HEAD "# experts_hit: counted\nload,moe-down,2x3,32,1.25,6.5\n"
                                    "moe,1,1000,1000,1,8,1,16\nmoe,4,1000,1000,1,8,2.5,25\n"
                                    "moe,8,1000,1000,1,8,4.5,37\n";
    const struct moe_shape shape = {1000, 1000, 1, 8}, wider = {1000, 1000, 1, 16};
    struct profile *own = parse(rows);
    enum profile_match match;
    ck_assert_double_eq(profile_moe_hits(own, shape, 4), 2.5);
    ck_assert_double_eq(profile_moe_hits(own, shape, 6), 3.5);
    ck_assert_double_eq(profile_moe(own, shape, 4, 0, &match), 25e3);
    ck_assert_double_eq(profile_moe(own, shape, 4, 2.5, &match), 25e3);
    /* 10 us of launch and 6 an expert: the first row's. */
    ck_assert_double_eq_tol(profile_moe(own, shape, 8, 6.5, &match), 10e3 + 27e3 * 6.5 / 4.5, 30);
    ck_assert_double_le(profile_moe_hits(own, shape, 1e6), 8);
    ck_assert_double_gt(profile_moe_hits(own, wider, 8), 4.5);
    int curve = correction_find(profile_correction(own), OP_MOE_DOWN, "2x3");
    ck_assert_double_eq(correction_hits(profile_correction(own), curve, 32), 6.5);
    char *text = NULL;
    size_t size;
    struct err err = {0};
    FILE *file = open_memstream(&text, &size);
    ck_assert_int_eq(profile_write(own, file, &err), 0);
    fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "\nmoe,4,1000,1000,1,8,2.5,25\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nload,moe-down,2x3,32,1.25,6.5\n"));
    free(text);
    profile_close(own);
    struct profile *some = parse(HEAD "moe,1,1000,1000,1,8,16\nmoe,4,1000,1000,1,8,2.5,19\n");
    ck_assert_double_eq_tol(profile_moe_hits(some, shape, 1), 1, 1e-12);
    ck_assert_double_eq(profile_moe_hits(some, shape, 4), 2.5);
    profile_close(some);
    static const char *const bad[] = {"moe,1,1000,1000,1,8,9,16\n", "moe,1,1000,1000,1,8,0,16\n",
                                      "moe,1,1000,1000,1,8,many,16\n", "gemm,1,2,3,4,5\n",
                                      "load,moe-down,2x3,32,1.25,-1\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct profile *none = NULL;
        char with[256];
        snprintf(with, sizeof with, HEAD "%s", bad[i]);
        ck_assert_msg(profile_parse("test", with, strlen(with), &peaks, &none, &err) == ERR_WORLD,
                      "%s", bad[i]);
        err = (struct err){0};
    }
}

/* Every shipped row of experts says its number, and where that is from. */
TEST(shipped_rows_of_experts_say_what_they_hit_and_who_counted) {
    static const char *const files[] = {"h100", "a100-80g", "l40s"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct profile *profile = open_shipped(files[i]);
        const struct lattice *moe = profile_lattice(profile, PROFILE_MOE);
        ck_assert_ptr_nonnull(profile_note(profile, "experts_hit"));
        ck_assert_ptr_nonnull(moe->hits);
        for (size_t cell = 0; cell < moe->n_cells; cell++) {
            ck_assert(isnan(moe->time_us[cell]) == isnan(moe->hits[cell]));
        }
        profile_close(profile);
    }
}

/* Whole waves of tiles of 128 by 128 on 100 multiprocessors, whatever lies between two rows. */
TEST(products_between_two_widths_take_the_waves_of_the_tile_that_the_others_show) {
    const double wave_us = 1e6 * 2 * 100 * 128 * 128 * 4096 / peaks.flops;
    static const int widths[] = {1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 9216};
    char text[1024] = IMPORTED;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "gemm,1024,%d,4096,%.9f\n", widths[i],
                 wave_us * ceil(8 * widths[i] / 128 / 100.0));
    }
    struct profile *profile = parse(text);
    ck_assert_double_eq_tol(gemm_ns(profile, 1024, 2176, 4096, PROFILE_INTERPOLATED), 2e3 * wave_us,
                            1);
    ck_assert_double_eq_tol(gemm_ns(profile, 1024, 5632, 4096, PROFILE_INTERPOLATED), 4e3 * wave_us,
                            1);
    profile_close(profile);
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

static struct profile_spans uniform(double n, double q, double cached, int64_t heads) {
    return (struct profile_spans){.n_seqs = (int64_t)n,
                                  .sum_q = n * q,
                                  .sum_kv = n * (q + cached),
                                  .sum_q_kv = n * q * (q + cached),
                                  .heads = heads,
                                  .kv_heads = heads,
                                  .head_dim = 128};
}

static double full_ns(const struct profile *profile, struct profile_spans spans,
                      enum profile_match expected) {
    enum profile_match match;
    double ns = profile_attention_full(profile, &spans, &match);
    ck_assert_int_eq(match, expected);
    return ns;
}

static double block_ns(const struct profile *profile, struct profile_spans spans,
                       enum profile_match expected) {
    enum profile_match match;
    double ns = profile_attention_block(profile, &spans, &match);
    ck_assert_int_eq(match, expected);
    return ns;
}

TEST(measured_products_take_whole_tiles_between_neighbours_in_m) {
    struct profile *own = parse(OWN);
    ck_assert_double_eq_tol(gemm_ns(own, 65, 4096, 4096, PROFILE_EXACT), 18e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(own, 86, 4096, 4096, PROFILE_INTERPOLATED), 20e3, 1e-6);
    /* 100 rows stand on the axis through another product, whose time has no say here. */
    ck_assert_double_eq_tol(gemm_ns(own, 100, 4096, 4096, PROFILE_INTERPOLATED), 20e3, 1e-6);
    /* Beyond the last row its utilisation in whole tiles, below the first its time. */
    ck_assert_double_eq_tol(gemm_ns(own, 12800, 4096, 4096, PROFILE_EXTRAPOLATED), 2000e3, 1);
    ck_assert_double_eq_tol(gemm_ns(own, 12600, 4096, 4096, PROFILE_EXTRAPOLATED), 2000e3, 1);
    ck_assert_double_eq_tol(gemm_ns(own, 3, 4096, 4096, PROFILE_EXTRAPOLATED), 10e3, 1e-6);
    profile_close(own);
}

/* What the rows of OWN take over their tiles: a launch and 100 multiprocessors' waves of items at
 * three each, and the longest item's keys in each wave. */
static const double of_512 = 40e3 / (3 + 3 + 8), of_1024 = 140e3 / (3 + 3 + 16),
                    of_four_512 = 100e3 / (3 + 2 * 3 + 2 * 8),
                    of_four_1024 = 500e3 / (3 + 3 * 3 + 3 * 16);

/* Along q in the pairs that tiles of 128 execute. */
static double between(double q, double at_512, double at_1024) {
    return at_512 + (at_1024 - at_512) * (q * (q + 128) - 512 * 640) / (1024.0 * 1152 - 512 * 640);
}

static struct profile_spans together(struct profile_spans a, struct profile_spans b) {
    a.n_seqs += b.n_seqs;
    a.sum_q += b.sum_q;
    a.sum_kv += b.sum_kv;
    a.sum_q_kv += b.sum_q_kv;
    return a;
}

TEST(full_attention_is_read_over_its_tiles) {
    struct profile *own = parse(OWN);
    ck_assert_double_eq_tol(full_ns(own, uniform(4, 512, 0, 8), PROFILE_EXACT), 100e3, 1e-6);
    ck_assert_double_eq_tol(full_ns(own, uniform(2, 512, 0, 8), PROFILE_INTERPOLATED),
                            14 * (of_512 + (of_four_512 - of_512) / 3), 1e-6);
    ck_assert_double_eq_tol(full_ns(own, uniform(1, 768, 0, 8), PROFILE_INTERPOLATED),
                            (3 + 3 + 12) * between(768, of_512, of_1024), 1e-6);
    /* Beyond the rows a tile takes what it takes in the last. */
    ck_assert_double_eq_tol(full_ns(own, uniform(1, 8192, 0, 8), PROFILE_EXTRAPOLATED),
                            (3 + 6 * 3 + 6 * 128) * of_1024, 1e-6);
    /* Four heads of eight are half a sequence. */
    ck_assert_double_eq_tol(full_ns(own, uniform(8, 512, 0, 4), PROFILE_EXTRAPOLATED), 100e3, 1e-6);
    profile_close(own);
}

TEST(full_attention_rounds_requests_up_to_tiles_and_items_to_waves) {
    struct profile *own = parse(OWN);
    /* One token more than four tiles of queries and eight of keys. */
    ck_assert_double_eq_tol(full_ns(own, uniform(1, 513, 0, 8), PROFILE_INTERPOLATED),
                            (3 + 3 + 9) * between(513, of_512, of_1024), 1e-6);
    /* 7 tiles, 8 heads and 4 requests are 224 items: a third wave of 100. */
    ck_assert_double_eq_tol(full_ns(own, uniform(4, 769, 0, 8), PROFILE_INTERPOLATED),
                            (3 + 3 * 3 + 3 * 13) * between(769, of_four_512, of_four_1024), 1e-6);
    profile_close(own);
}

/* Of 1024 and 512 tokens, 1.8 spans of 853 are as many queries and as many pairs. */
TEST(the_longest_request_of_a_full_pass_comes_first) {
    struct profile *own = parse(OWN);
    const double q = 1536 / 1.8, alone = between(q, of_512, of_1024),
                 ratio = alone + (between(q, of_four_512, of_four_1024) - alone) * 0.8 / 3;
    const struct profile_spans two = together(uniform(1, 1024, 0, 8), uniform(1, 512, 0, 8));
    /* Both in one wave, which is as long as the longer one's items. */
    ck_assert_double_eq_tol(full_ns(own, two, PROFILE_INTERPOLATED), (3 + 3 + 16) * ratio, 1e-3);
    /* Of 2048 tokens the items fill a wave and more, the other's end the second. */
    const struct profile_spans longer = together(uniform(1, 2048, 0, 8), uniform(1, 512, 0, 8));
    enum profile_match match;
    const struct profile_spans same = uniform(1, 1024, 0, 8);
    ck_assert_double_gt(profile_attention_full(own, &longer, &match),
                        2 * profile_attention_full(own, &same, &match));
    /* Of three nobody knows how long each is: half a tile is left empty in each. */
    const struct profile_spans three = together(two, uniform(1, 768, 0, 8));
    ck_assert_double_gt(full_ns(own, three, PROFILE_INTERPOLATED),
                        full_ns(own, two, PROFILE_INTERPOLATED));
    profile_close(own);
}

TEST(block_attention_is_straight_in_cached_rows_and_requests) {
    struct profile *own = parse(OWN);
    ck_assert_double_eq_tol(block_ns(own, uniform(8, 32, 256, 8), PROFILE_EXACT), 31e3, 1e-6);
    ck_assert_double_eq_tol(block_ns(own, uniform(8, 32, 384, 8), PROFILE_INTERPOLATED), 47e3,
                            1e-6);
    ck_assert_double_eq_tol(block_ns(own, uniform(4, 32, 256, 8), PROFILE_INTERPOLATED), 19e3,
                            1e-6);
    double longer = block_ns(own, uniform(8, 32, 4096, 8), PROFILE_EXTRAPOLATED);
    ck_assert_double_gt(longer, 6.5 * 63e3);
    ck_assert_double_lt(longer, 8 * 63e3);
    profile_close(own);
}

/* Times that are no line in the queries, of one request and of three. */
static struct profile *parse_blocks(int group) {
    static const int queries[] = {2, 4, 8, 16, 32, 56, 64, 128, 134, 256, 264};
    char text[4096] = HEAD;
    for (int n = 1; n <= 3; n += 2) {
        for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
            const size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "attention_block,%d,%d,512,%d,8,128,%d\n", n,
                     queries[i], 8 * group, n * (10 + queries[i] * queries[i]));
        }
    }
    return parse(text);
}

/* What so many requests take is in the row of so many queries. */
static void takes_row(const struct profile *profile, int n, int group, double q, double row_q) {
    struct profile_spans spans = uniform(n, q, 512, 8 * group);
    spans.kv_heads = 8;
    ck_assert_double_eq_tol(block_ns(profile, spans, PROFILE_EXACT), 1e3 * n * (10 + row_q * row_q),
                            1e-6);
}

TEST(a_block_takes_the_time_of_the_tile_that_it_fills) {
    struct profile *own = parse_blocks(1);
    static const int takes[][2] = {{74, 128}, {65, 128}, {128, 128}, {42, 64},   {33, 64},
                                   {64, 64},  {20, 32},  {17, 32},   {32, 32},   {16, 16},
                                   {8, 8},    {2, 2},    {142, 256}, {129, 256}, {256, 256}};
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        takes_row(own, 1, 1, takes[i][0], takes[i][1]);
    }
    /* Up to 16 rows of queries it is on their line. */
    ck_assert_double_eq_tol(block_ns(own, uniform(1, 12, 512, 8), PROFILE_INTERPOLATED),
                            1e3 * (10 + (64 + 256) / 2.0), 1e-6);
    profile_close(own);
}

TEST(blocks_that_fill_no_tile_on_average_leave_half_of_one_empty) {
    struct profile *own = parse_blocks(1);
    static const int takes[][2] = {{200, 264}, {70, 134}, {128, 128}, {256, 256},
                                   {42, 64},   {20, 32},  {16, 16}};
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        takes_row(own, 3, 1, takes[i][0], takes[i][1]);
    }
    profile_close(own);
}

TEST(heads_that_share_a_kv_head_fill_a_tile_together) {
    struct profile *own = parse_blocks(4);
    static const int alone[][2] = {{20, 32}, {17, 32}, {32, 32}, {9, 16},
                                   {5, 8},   {4, 4},   {2, 2},   {33, 64}};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        takes_row(own, 1, 4, alone[i][0], alone[i][1]);
    }
    takes_row(own, 3, 4, 40, 56); /* 160 rows and half a tile */
    takes_row(own, 3, 4, 64, 64);
    profile_close(own);
}

TEST(passes_and_heads_are_straight_in_rows_and_scaled_by_bytes) {
    struct profile *own = parse(OWN);
    enum profile_match match;
    ck_assert(profile_has_pass(own, PASS_NORM) && !profile_has_pass(own, PASS_ADD));
    ck_assert_double_eq_tol(profile_pass(own, PASS_NORM, 4096, 1024, &match), 9e3, 1e-6);
    ck_assert_int_eq(match, PROFILE_EXACT);
    ck_assert_double_eq_tol(profile_pass(own, PASS_NORM, 4096, 576, &match), 5500, 1e-6);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    ck_assert_double_eq_tol(profile_pass(own, PASS_NORM, 2048, 1152, &match), 5500, 1e-6);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    ck_assert_double_eq_tol(profile_pass(own, PASS_NORM, 4096, 2048, &match), 18e3, 1e-6);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    /* Whole tiles above the rows that merely stream the weights. */
    ck_assert_double_eq_tol(profile_fused(own, PROFILE_HEAD, 48, 126464, 4096, &match), 310e3,
                            1e-6);
    ck_assert_double_eq_tol(profile_fused(own, PROFILE_HEAD, 144, 126464, 4096, &match), 440e3,
                            1e-6);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    /* A head of a few rows streams its weights: as many bytes per row of weights. */
    double half = profile_fused(own, PROFILE_HEAD, 32, 63232, 4096, &match);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    ck_assert_double_eq_tol(half / 150e3, 1, 1e-3);
    profile_close(own);
}

TEST(host_terms_and_provenance_are_read) {
    struct profile *own = parse(OWN);
    const char *key, *value;
    ck_assert(profile_host(own, 0)->given && profile_host(own, 1)->given);
    ck_assert(!profile_host(own, 2)->given);
    ck_assert_double_eq(profile_host(own, 1)->step_ns, 31000.5);
    ck_assert_double_eq(profile_host(own, 0)->request_ns, 900);
    ck_assert(profile_fact(own, 1, &key, &value) && !profile_fact(own, 2, &key, &value));
    ck_assert_str_eq(key, "device");
    ck_assert_str_eq(value, "a test's");
    profile_close(own);
}

static void same_rows(struct profile *a, struct profile *b) {
    for (int op = 0; op < PROFILE_OPS; op++) {
        struct lattice *x = profile_lattice(a, (enum profile_op)op);
        struct lattice *y = profile_lattice(b, (enum profile_op)op);
        ck_assert_msg((x == NULL) == (y == NULL), "%s", profile_op_name((enum profile_op)op));
        for (size_t cell = 0; x != NULL && cell < x->n_cells; cell++) {
            ck_assert(isnan(x->time_us[cell]) ? isnan(y->time_us[cell])
                                              : x->time_us[cell] == y->time_us[cell]);
        }
    }
}

static char *written(const struct profile *profile) {
    char *text = NULL;
    size_t size = 0;
    struct err err = {0};
    FILE *file = open_memstream(&text, &size);
    ck_assert_int_eq(profile_write(profile, file, &err), 0);
    fclose(file);
    return text;
}

TEST(a_profile_written_and_read_again_is_the_same) {
    struct profile *own = parse(OWN "moe,5,2048,768,8,128,11\nelementwise,4096,2\n"
                                    "attention_causal,2,16,48,8,4,128,5\n"
                                    "attention_decode,2,1,48,8,4,128,4\nall_reduce,2,64,3\n");
    char *text = written(own);
    struct profile *again = parse(text);
    same_rows(own, again);
    const char *key, *value;
    ck_assert(profile_fact(again, 0, &key, &value));
    ck_assert_str_eq(value, "2026-11-21");
    ck_assert_double_eq(profile_host(again, 1)->step_ns, 31000.5);
    ck_assert(!profile_host(again, 2)->given);
    free(text);
    profile_close(own);
    profile_close(again);
}

/* Rows may stand in any order, and tiles are found when they are asked for, in any order. */
TEST(the_order_of_rows_and_of_questions_decides_nothing) {
    char text[4096], turned[4096] = HEAD;
    size_t n = (size_t)snprintf(text, sizeof text, HEAD), at[64], n_rows = 0;
    for (int m = 16; m <= 64; m *= 2) {
        for (int i = 0; i < 20; i++) {
            at[n_rows++] = n;
            n += (size_t)snprintf(text + n, sizeof text - n, "gemm,%d,%d,%d,%d.%d\n", m,
                                  1024 + 512 * (i % 10), 1024 * (1 + i / 10), 20 + i % 7, i);
        }
    }
    for (size_t i = n_rows; i-- > 0;) {
        strncat(turned, text + at[i], strcspn(text + at[i], "\n") + 1);
    }
    struct profile *a = parse(text), *b = parse(turned);
    same_rows(a, b);
    for (int64_t width = 1100; width < 5600; width += 100) {
        const int64_t back = 6600 - width;
        ck_assert_double_eq(gemm_ns(a, 32, width, 2048, PROFILE_INTERPOLATED),
                            gemm_ns(b, 32, width, 2048, PROFILE_INTERPOLATED));
        gemm_ns(b, 32, back, 1500, PROFILE_INTERPOLATED);
    }
    profile_close(a);
    profile_close(b);
}

TEST(a_profile_may_say_what_passes_between_submissions) {
    struct profile *without = parse(HEAD "gemm,1,512,512,2\n");
    struct profile *with = parse(HEAD "gemm,1,512,512,2\nbetween,47000.5\n");
    ck_assert_double_eq(profile_between_ns(without), 0);
    ck_assert_double_eq(profile_between_ns(with), 47000.5);
    char *none = written(without), *text = written(with);
    ck_assert_ptr_null(strstr(none, "between"));
    struct profile *again = parse(text);
    ck_assert_double_eq_tol(profile_between_ns(again), 47000.5, 1);
    struct profile *copy = profile_copy(with, "a copy", profile_peaks(with));
    ck_assert_double_eq(profile_between_ns(copy), 47000.5);
    profile_close(copy);
    free(none);
    free(text);
    profile_close(without);
    profile_close(with);
    profile_close(again);
}

/* Of a kind that is not issued apart the column is left out, as in older files. */
TEST(a_host_row_may_say_what_a_step_takes_more_while_it_is_issued) {
    struct profile *own = parse(HEAD "gemm,1,512,512,2\nhost,refresh,40000,900,301968.5\n"
                                     "host,reuse,31000.5,700\nhost,select,1,2,0\n");
    ck_assert_double_eq(profile_host(own, 0)->issued_ns, 301968.5);
    ck_assert_double_eq(profile_host(own, 0)->request_ns, 900);
    ck_assert_double_eq(profile_host(own, 1)->issued_ns, 0);
    ck_assert_double_eq(profile_host(own, 2)->issued_ns, 0);
    char *text = written(own);
    ck_assert_ptr_nonnull(strstr(text, "\nhost,refresh,40000,900,301968\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nhost,reuse,31000.5,700\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nhost,select,1,2\n"));
    struct profile *again = parse(text);
    ck_assert_double_eq_tol(profile_host(again, 0)->issued_ns, 301968.5, 1);
    ck_assert_double_eq(profile_host(again, 1)->issued_ns, 0);
    ck_assert_double_eq(profile_host(again, 1)->step_ns, 31000.5);
    free(text);
    profile_close(own);
    profile_close(again);
}

TEST(keys_that_stream_from_memory_take_their_bytes) {
    struct profile *own = parse("# kind: imported\n# source: x\n"
                                "attention_causal,1,64,64,32,32,128,0.001\n"
                                "attention_causal,1,128,128,32,32,128,0.002\n"
                                "attention_decode,1,1,64,32,32,128,0.001\n"
                                "attention_decode,4,1,64,32,32,128,0.002\n");
    const struct profile_spans spans = {.n_seqs = 4,
                                        .sum_q = 4 * 32,
                                        .sum_kv = 4 * 10000,
                                        .sum_q_kv = 4 * 32 * 10000,
                                        .heads = 32,
                                        .kv_heads = 32,
                                        .head_dim = 128};
    enum profile_match match;
    /* Keys and values of two bytes, at the 1e12 bytes/s of `peaks`. */
    const double ns = 2 * 2 * 40000.0 * 32 * 128 / 1e12 * 1e9;
    ck_assert_double_eq_tol(profile_attention(own, &spans, &match), ns, 1e-6 * ns);
    profile_close(own);
}

TEST(a_prefix_beyond_the_measured_ones_holds_their_time_for_each_pair) {
    struct profile *own = parse("# kind: imported\n# source: x\n"
                                "attention_causal,1,16,16,8,4,128,2\n"
                                "attention_causal,1,16,48,8,4,128,5\n");
    const double q = 16, prefix = 100;
    const struct profile_spans spans = {.n_seqs = 1,
                                        .sum_q = q,
                                        .sum_kv = prefix + q,
                                        .sum_q_kv = q * (prefix + (q + 1) / 2),
                                        .heads = 8,
                                        .kv_heads = 4,
                                        .head_dim = 128};
    enum profile_match match;
    /* Tiles of 128 rows are computed whole. */
    const double pairs = q * (prefix + (q + 128) / 2), measured = q * (32 + (q + 128) / 2);
    ck_assert_double_eq_tol(profile_attention_prefill(own, &spans, &match),
                            1e3 * (2 + 3 * pairs / measured), 1e-6);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    profile_close(own);
}

/* Both at the batch that is asked for; the same length at another batch says less. */
TEST(a_length_between_two_that_were_measured_at_the_batch_is_on_their_line) {
    struct profile *own = parse("# kind: imported\n# source: x\n"
                                "attention_causal,1,16,16,8,4,128,2\n"
                                "attention_causal,2,16,16,8,4,128,3\n"
                                "attention_causal,1,32,32,8,4,128,5\n"
                                "attention_causal,1,64,64,8,4,128,10\n"
                                "attention_causal,2,64,64,8,4,128,19\n");
    const struct profile_spans spans = {.n_seqs = 2,
                                        .sum_q = 2 * 32,
                                        .sum_kv = 2 * 32,
                                        .sum_q_kv = 2 * 32 * 33 / 2.0,
                                        .heads = 8,
                                        .kv_heads = 4,
                                        .head_dim = 128};
    enum profile_match match;
    /* Tiles of 128 rows are computed whole: 16 * 72, 32 * 80 and 64 * 96 pairs. */
    ck_assert_double_eq_tol(profile_attention_prefill(own, &spans, &match),
                            1e3 * (3 + 16 * (2560.0 - 1152) / (6144 - 1152)), 1e-6);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    profile_close(own);
}

static int status_of(const char *text, size_t size) {
    struct profile *profile;
    struct err err = {0};
    int status = profile_parse("cut.csv", text, size, &peaks, &profile, &err);
    profile_close(profile);
    return status;
}

TEST(a_profile_that_was_cut_anywhere_is_refused) {
    struct profile *own = parse(OWN);
    char *text = written(own);
    size_t size = strlen(text);
    ck_assert_int_eq(status_of(text, size), 0);
    for (size_t cut = 0; cut < size; cut++) {
        ck_assert_msg(status_of(text, cut) == ERR_WORLD, "%zu of %zu bytes", cut, size);
    }
    free(text);
    profile_close(own);
    /* By hand, without the line, rows may be left out; with it, none may be added. */
    ck_assert_int_eq(status_of(OWN, strlen(OWN)), 0);
    ck_assert_int_eq(status_of(OWN, strlen(OWN) - 1), 0);
    static const char more[] = "# kind: measured\n# rows: 1\n# source: x\n"
                               "gemm,1,2,3,4\ngemm,2,2,3,4\n";
    ck_assert_int_eq(status_of(more, strlen(more)), ERR_WORLD);
    ck_assert_int_eq(status_of("# rows: some\n", 13), ERR_WORLD);
}

TEST(leaving_one_out_covers_every_kind_of_row) {
    struct profile *own =
        parse(OWN "gemm,256,4096,4096,40\nattention_full,2,512,8,8,128,45.333333333333\n"
                  "attention_block,8,32,384,8,8,128,47\n"
                  "pass,norm,4096,576,6.05\nhead,128,126464,4096,440\n");
    struct profile_check check;
    profile_check(own, &check);
    ck_assert_double_eq_tol(check.rows[CHECK_FULL].interior.median_abs, 0, 1e-9);
    ck_assert_double_eq_tol(check.rows[CHECK_BLOCK].interior.median_abs, 0, 1e-9);
    ck_assert_double_eq_tol(check.rows[CHECK_HEAD].interior.median_abs, 0, 1e-9);
    ck_assert_double_eq_tol(check.rows[CHECK_PASS].interior.median, 5.5 / 6.05 - 1, 1e-9);
    ck_assert_uint_eq(check.rows[CHECK_PASS].interior.n, 1);
    ck_assert_uint_eq(check.rows[CHECK_HEAD].frontier.n, 2);
    /* 128 rows between 65 and 256 take the tile of 256 rows. */
    double between = 40;
    ck_assert_uint_eq(check.rows[CHECK_GEMM].interior.n, 2);
    ck_assert_double_eq_tol(check.rows[CHECK_GEMM].interior.median, between / 20 - 1, 1e-9);
    profile_close(own);
}

static void expect_bad(const char *text, const char *sentence) {
    struct err err = {0};
    struct profile *profile = NULL;
    ck_assert_int_eq(profile_parse("t.csv", text, strlen(text), &peaks, &profile, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, sentence);
    ck_assert_ptr_null(profile);
}

TEST(a_bad_row_is_named_with_its_place) {
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
    expect_bad("# kind: guessed\n",
               "t.csv:1: kind is 'guessed', expected measured, imported or transferred");
    expect_bad(HEAD "pass,norms,4096,1,2\n", "t.csv:3: unknown pass 'norms'; did you mean 'norm'?");
    expect_bad(HEAD "attention_full,1,2,4,4,128,9,9\n",
               "t.csv:3: attention_full has 7 columns after its name, expected 6: "
               "batch,q,heads,kv_heads,head_dim,time_us");
    expect_bad(HEAD "attention_block,1,2,3,4,4,128,9,9,9,9\n",
               "t.csv:3: attention_block has 10 columns after its name, expected 7: "
               "batch,q,kv,heads,kv_heads,head_dim,time_us");
    expect_bad(HEAD "host,refreshes,1,2\n",
               "t.csv:3: unknown kind of step 'refreshes'; did you mean 'refresh'?");
    expect_bad(HEAD "host,reuse,1\n",
               "t.csv:3: host has 2 columns after its name, expected 3 or 4: "
               "KIND,step_ns,request_ns,issued_ns");
    expect_bad(HEAD "host,reuse,1,2,3,4\n",
               "t.csv:3: host has 5 columns after its name, expected 3 or 4: "
               "KIND,step_ns,request_ns,issued_ns");
    expect_bad(HEAD "host,reuse,1,2,-3\n", "t.csv:3: '-3' is not a time from 0 to 1e10 ns");
    expect_bad(HEAD "host,reuse,1,2,\n", "t.csv:3: '' is not a time from 0 to 1e10 ns");
    expect_bad(HEAD "host,reuse,1,-2\n", "t.csv:3: '-2' is not a time from 0 to 1e10 ns");
    expect_bad(HEAD "host,reuse,1,2\nhost,reuse,1,2\n", "t.csv:4: a second host row for reuse");
    expect_bad(HEAD "between,1,2\n", "t.csv:3: between has one column after its name, NS");
    expect_bad(HEAD "between,5\nbetween,5\n", "t.csv:4: a second between row");
    expect_bad(HEAD "between,0\n", "t.csv:3: '0' is not a time above 0, up to 1e10 ns");
    expect_bad(HEAD "between,1e11\n", "t.csv:3: '1e11' is not a time above 0, up to 1e10 ns");
    expect_bad(HEAD "load,1.02\nload,1.02\n", "t.csv:4: a second load row for all operators");
    expect_bad(HEAD "load,30\n", "t.csv:3: load '30' is not a number from 0.05 to 20");
    expect_bad(HEAD "load,linear,qkv projection,8\n",
               "t.csv:3: load has one column after its name, FACTOR, or four, "
               "KIND,SIZE,ROWS,FACTOR");
    expect_bad(HEAD "load,linea,qkv projection,8,1\n",
               "t.csv:3: unknown kind of operator 'linea'; did you mean 'linear'?");
    expect_bad(HEAD "load,linear,qkv projection,0,1\n",
               "t.csv:3: '0' is not a size from 1 to 2^40 (KIND,SIZE,ROWS,FACTOR)");
    expect_bad(HEAD "load,linear,qkv projection,8,1\nload,linear,qkv projection,8,1\n",
               "t.csv:4: load of 'qkv projection': its rows do not rise, or there are over 64 of "
               "them, over 64 operators or over 43 characters");
    expect_bad("# kind: measured\ngemm,1,512,512,2\n",
               "t.csv: no '# source: ' line says where the numbers come from");
}

TEST(a_missing_operator_is_named_when_it_is_needed) {
    struct profile *profile = parse(HEAD "gemm,1,512,512,2\n");
    struct err err = {0};
    ck_assert_int_eq(profile_require(profile, PROFILE_GEMM, &err), 0);
    ck_assert_int_eq(profile_require(profile, PROFILE_ELEMENTWISE, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "t.csv: has no 'elementwise' rows (elementwise,bytes,time_us)");
    ck_assert_ptr_null(profile_lattice(profile, PROFILE_MOE));
    profile_close(profile);
    struct err unread = {0};
    ck_assert_int_eq(profile_open("no/such.csv", &peaks, &profile, &unread), ERR_WORLD);
    ck_assert_str_eq(unread.text, "cannot open no/such.csv: No such file or directory");
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

TEST(leaving_one_row_out_predicts_it) {
    for (size_t g = 0; g < sizeof reached / sizeof reached[0]; g++) {
        struct profile *profile = open_shipped(reached[g].gpu);
        struct profile_check check;
        enum profile_match match;
        double before = profile_gemm(profile, 64, 4096, 4096, &match);
        profile_check(profile, &check);
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

/* At 32 queries both layouts wait for memory: 4 sequences of two key heads are as much work as 1.3
 * of eight. The row of 8 sequences of eight, beyond all, is missed. */
TEST(other_heads_answer_for_as_much_memory_as_they_read) {
    struct profile *own = parse(HEAD "attention_block,1,32,256,8,8,128,10\n"
                                     "attention_block,8,32,256,8,8,128,31\n"
                                     "attention_block,4,32,256,8,2,128,10.9\n"
                                     "attention_block,8,32,256,8,2,128,14.8\n");
    struct profile_check check;
    profile_check(own, &check);
    ck_assert_uint_eq(check.rows[CHECK_BLOCK_HEADS].frontier.n, 4);
    ck_assert_double_eq_tol(check.rows[CHECK_BLOCK_HEADS].frontier.median_abs, 0, 1e-9);
    profile_close(own);
}

/* Medians allowed where a whole shape is left out, in percent: reached 2026-11, rounded up. Every
 * row is predicted, by other shapes' rows alone. */
TEST(leaving_one_shape_out_predicts_it) {
    static const struct {
        const char *gpu;
        double gemm, shape, mixture, causal, decode;
    } limits[] = {{"l40s", 4.2, 3.5, 3.0, 2.6, 2.2},
                  {"a100-80g", 1.8, 4.7, 5.2, 2.5, 3.1},
                  {"h100", 2.4, 5.4, 4.5, 2.9, 2.7}};
    for (size_t g = 0; g < sizeof limits / sizeof limits[0]; g++) {
        struct profile *profile = open_shipped(limits[g].gpu);
        struct profile_check check;
        size_t n_gemm, n_moe;
        profile_raised(profile, PROFILE_MOE, &n_moe);
        profile_check(profile, &check);
        const struct {
            const struct profile_errors *errors;
            double percent;
        } rows[] = {{&check.rows[CHECK_GEMM_SHAPE].interior, limits[g].gemm},
                    {&check.rows[CHECK_MOE_SHAPE].frontier, limits[g].shape},
                    {&check.rows[CHECK_MOE_MIXTURE].frontier, limits[g].mixture},
                    {&check.rows[CHECK_CAUSAL_HEADS].frontier, limits[g].causal},
                    {&check.rows[CHECK_DECODE_HEADS].frontier, limits[g].decode}};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            ck_assert_msg(100 * rows[i].errors->median_abs <= rows[i].percent, "%s %zu: %.2f %%",
                          limits[g].gpu, i, 100 * rows[i].errors->median_abs);
            ck_assert_double_gt(rows[i].errors->median_abs, 0.005); /* it really was away */
        }
        ck_assert_uint_eq(check.rows[CHECK_MOE_MIXTURE].frontier.n, n_moe);
        ck_assert_uint_eq(check.rows[CHECK_MOE_SHAPE].interior.n, 0);
        /* All rows are there again. */
        size_t n_after;
        profile_raised(profile, PROFILE_MOE, &n_after);
        profile_raised(profile, PROFILE_GEMM, &n_gemm);
        ck_assert_uint_eq(n_after, n_moe);
        ck_assert_uint_gt(n_gemm, check.rows[CHECK_GEMM_SHAPE].interior.n);
        profile_close(profile);
    }
}

/* 4096 rows between 2048 and 8192 of the same product. */
/* Which tile explains a gap is judged by all rows, those that are left out among them. */
TEST(leaving_rows_out_changes_no_tile) {
    struct profile *judged = open_shipped("l40s"), *fresh = open_shipped("l40s");
    struct profile_check a, b;
    gemm_judge_tiles(judged);
    profile_check(judged, &a);
    profile_check(fresh, &b);
    ck_assert_int_eq(memcmp(&a, &b, sizeof a), 0);
    profile_close(judged);
    profile_close(fresh);
}

TEST(noise_is_how_far_a_row_is_from_the_middle_of_half_and_twice_as_many) {
    struct profile *own = parse(HEAD "gemm,1024,512,512,7\ngemm,1024,1024,512,9\n"
                                     "gemm,2048,512,512,10\ngemm,2048,1024,512,18\n"
                                     "gemm,4096,512,512,20\ngemm,4096,1024,512,36\n"
                                     "gemm,8192,512,512,40\ngemm,8192,1024,512,72\n");
    struct profile_check check;
    profile_check(own, &check);
    ck_assert_uint_eq(check.noise.n, 2);
    ck_assert_double_eq_tol(check.noise.p90_abs, 0, 1e-9);
    profile_close(own);
}

TEST(the_l40s_table_is_noisier_than_its_leave_one_out_error) {
    struct profile *l40s = open_shipped("l40s");
    struct profile_check check;
    profile_check(l40s, &check);
    ck_assert_uint_gt(check.noise.n, 300);
    ck_assert_double_gt(check.noise.median_abs, check.rows[CHECK_GEMM].interior.median_abs);
    profile_close(l40s);
}

static struct transfer_side side(const char *name, double flops, double bandwidth, int64_t sms) {
    struct profile_peaks rates = {.flops = flops, .bandwidth = bandwidth, .sms = sms};
    return (struct transfer_side){
        .gpu = name, .peaks = rates, .reached = rates, .link_bandwidth = 450e9};
}

static struct profile *transferred(const struct profile *donor, struct transfer_side to) {
    struct transfer_side from = side("old", peaks.flops, peaks.bandwidth, peaks.sms);
    return profile_transfer(donor, &from, &to);
}

TEST(a_transfer_says_so_and_scales_by_the_bound) {
    struct profile *donor = parse(HEAD "gemm,1,512,512,2\ngemm,1,8192,8192,152\n"
                                       "gemm,4096,8192,8192,6002\nall_reduce,2,1024,7\n"
                                       "attention_causal,1,16,16,8,8,128,2\n"
                                       "attention_causal,1,8192,8192,8,8,128,1602\n");
    struct profile *out = transferred(donor, side("new", 200e12, 4e12, 100));
    ck_assert_int_eq(profile_kind(out), PROVENANCE_TRANSFERRED);
    ck_assert_str_eq(profile_source(out), "new, scaled from old by the rates both reach: a test");
    /* What the shortest product takes beyond its bytes stays; the rest goes by bandwidth (4) or by
     * rate (2). */
    const double bytes = 2.0 * (512 * 512 + 2 * 512), launch_us = 2 - 1e6 * bytes / peaks.bandwidth;
    ck_assert_double_eq_tol(gemm_ns(out, 1, 512, 512, PROFILE_EXACT),
                            1e3 * (launch_us + (2 - launch_us) / 4), 1e-6);
    ck_assert_double_eq_tol(gemm_ns(out, 1, 8192, 8192, PROFILE_EXACT),
                            1e3 * (launch_us + (152 - launch_us) / 4), 1e-6);
    ck_assert_double_eq_tol(gemm_ns(out, 4096, 8192, 8192, PROFILE_EXACT),
                            1e3 * (launch_us + (6002 - launch_us) / 2), 1e-6);
    enum profile_match match;
    ck_assert_double_eq_tol(profile_collective(out, PROFILE_ALL_REDUCE, 2, 1024, &match), 7e3,
                            1e-6);
    const struct lattice *causal = &out->ops[PROFILE_ATTENTION_CAUSAL];
    ck_assert_double_eq_tol(causal->time_us[causal->n_cells - 1], 802, 1e-9);
    profile_close(out);
    profile_close(donor);
}

/* Weights of one byte; products of fp8 with fp8 at twice the rate. */
#define TYPED                                                                                      \
    HEAD "gemm,1,4096,4096,40\ngemm,1,4096,4096,fp8,20\ngemm,1,4096,4096,fp8-bf16,21\n"            \
         "gemm,4096,4096,4096,1400\ngemm,4096,4096,4096,fp8,700\n"                                 \
         "attention_full,1,64,8,8,128,fp8-bf16,9\nmoe,5,2048,768,8,128,4,fp8,7\n"

static const struct profile_peaks with_fp8 = {
    .flops = 100e12, .fp8_flops = 200e12, .bandwidth = 1e12, .sms = 100};

static struct profile *parse_typed(const char *text) {
    struct profile *profile = NULL;
    struct err err = {0};
    ck_assert_msg(profile_parse("t.csv", text, strlen(text), &with_fp8, &profile, &err) == 0, "%s",
                  err.text);
    return profile;
}

TEST(rows_of_each_type_are_apart_and_those_that_name_none_are_bf16) {
    struct profile *profile = parse_typed(TYPED);
    const struct profile *fp8 = profile_in(profile, PROFILE_FP8);
    const struct profile *half = profile_in(profile, PROFILE_FP8_BF16);
    ck_assert_ptr_eq(profile_in(profile, PROFILE_BF16), profile);
    ck_assert_ptr_null(profile_in(profile, PROFILE_F32));
    ck_assert(profile_type(profile) == PROFILE_BF16 && profile_type(fp8) == PROFILE_FP8);
    ck_assert_double_eq_tol(gemm_ns(profile, 1, 4096, 4096, PROFILE_EXACT), 40e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(fp8, 1, 4096, 4096, PROFILE_EXACT), 20e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(half, 1, 4096, 4096, PROFILE_EXACT), 21e3, 1e-6);
    ck_assert(!profile_has(profile, PROFILE_MOE) && profile_has(fp8, PROFILE_MOE));
    ck_assert(!profile_has(fp8, PROFILE_ATTENTION_FULL) &&
              profile_has(half, PROFILE_ATTENTION_FULL));
    enum profile_match match;
    const struct moe_shape shape = {2048, 768, 8, 128};
    ck_assert_double_eq_tol(profile_moe(fp8, shape, 5, 0, &match), 7e3, 1e-6);
    ck_assert_double_eq(profile_peaks(fp8)->flops, 200e12);
    ck_assert_double_eq(profile_peaks(half)->flops, 100e12);
    profile_close(profile);
    profile = parse_typed(HEAD "# dtype: fp8\ngemm,1,512,512,2\ngemm,1,512,512,bf16,3\n"
                               "gemm,2,512,512,fp8,4\n");
    ck_assert_double_eq_tol(gemm_ns(profile, 1, 512, 512, PROFILE_EXACT), 2e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(profile, 2, 512, 512, PROFILE_EXACT), 4e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(profile_in(profile, PROFILE_BF16), 1, 512, 512, PROFILE_EXACT),
                            3e3, 1e-6);
    profile_close(profile);
    profile = parse_typed(HEAD "# dtype: float32\ngemm,1,512,512,2\n");
    ck_assert_int_eq(profile_type(profile), PROFILE_F32);
    profile_close(profile);
}

/* Beyond the rows a product's utilisation is held: a weight of one byte is half as long read. */
TEST(rows_of_a_type_are_extrapolated_by_its_bytes_and_its_peak) {
    struct profile *profile = parse_typed(TYPED);
    const struct profile *fp8 = profile_in(profile, PROFILE_FP8);
    const double square = 4096.0 * 4096, twice = 8192.0 * 4096;
    const double wide = (2 * twice + 2 * (8192 + 4096)) / (2 * square + 2 * (4096 + 4096));
    const double narrow = (twice + 2 * (8192 + 4096)) / (square + 2 * (4096 + 4096));
    ck_assert_double_eq_tol(gemm_ns(profile, 1, 8192, 4096, PROFILE_EXTRAPOLATED), 40e3 * wide,
                            1e-6 * 40e3);
    ck_assert_double_eq_tol(gemm_ns(fp8, 1, 8192, 4096, PROFILE_EXTRAPOLATED), 20e3 * narrow,
                            1e-6 * 20e3);
    profile_close(profile);
}

TEST(types_are_written_read_again_and_transferred) {
    struct profile *profile = parse_typed(TYPED);
    char *text = written(profile);
    struct profile *again = parse_typed(text);
    for (int type = 0; type < PROFILE_TYPES; type++) {
        const struct profile *rows = profile->others[type];
        ck_assert((rows == NULL) == (again->others[type] == NULL));
        if (rows != NULL) {
            same_rows(profile->others[type], again->others[type]);
        }
    }
    same_rows(profile, again);
    free(text);
    profile_close(again);
    /* As fast for bf16, twice for fp8; and a card that multiplies no fp8. */
    struct transfer_side from = side("old", 100e12, 1e12, 100), to = side("new", 100e12, 1e12, 100);
    from.peaks.fp8_flops = from.reached.fp8_flops = 200e12;
    to.peaks.fp8_flops = to.reached.fp8_flops = 400e12;
    struct profile *out = profile_transfer(profile, &from, &to);
    const struct profile *fp8 = profile_in(out, PROFILE_FP8);
    const double least_us = 20 - 1e6 * (4096.0 * 4096 + 4 * 4096) / 1e12;
    ck_assert_double_eq_tol(gemm_ns(out, 4096, 4096, 4096, PROFILE_EXACT), 1400e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(fp8, 4096, 4096, 4096, PROFILE_EXACT),
                            1e3 * (least_us + (700 - least_us) / 2), 1e-3);
    profile_close(out);
    to.peaks.fp8_flops = to.reached.fp8_flops = 0;
    out = profile_transfer(profile, &from, &to);
    ck_assert_ptr_null(profile_in(out, PROFILE_FP8));
    ck_assert_ptr_nonnull(profile_in(out, PROFILE_FP8_BF16));
    profile_close(out);
    profile_close(profile);
}

TEST(a_type_that_cannot_be_is_refused_with_a_sentence) {
    static const struct {
        const char *rows, *says;
    } cases[] = {
        {"gemm,1,512,512,fp4,2\n", "t.csv:3: unknown type 'fp4'"},
        {"elementwise,512,fp8,2\n", "t.csv:3: elementwise goes by bytes, whatever their type"},
        {"# dtype: int8\ngemm,1,512,512,2\n", "t.csv: dtype is 'int8', expected bf16, f32"},
        {"gemm,1,512,512,2\ngemm,1,512,512,fp8,2\n",
         "t.csv: has rows of fp8, and the GPU's file no peak_fp8_flops"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        struct err err = {0};
        struct profile *profile = NULL;
        snprintf(text, sizeof text, HEAD "%s", cases[i].rows);
        ck_assert_int_eq(profile_parse("t.csv", text, strlen(text), &peaks, &profile, &err),
                         ERR_WORLD);
        ASSERT_SAYS(err.text, cases[i].says);
        ck_assert_ptr_null(profile);
    }
}

/* A table's shortest row may be a product that streams megabytes, and a short pass is a launch.
 * What operators take in steps over what they take alone stays. */
TEST(a_transfer_scales_streams_and_keeps_launches_and_corrections) {
    struct profile *donor = parse(HEAD "gate_up,1,8192,8192,140\ngate_up,64,8192,8192,150\n"
                                       "pass,norm,4096,1,1.2\npass,norm,4096,4096,41.2\n"
                                       "pass,swiglu,4096,1,5\npass,swiglu,4096,4096,45\n"
                                       "load,rmsnorm,4096x0,32,3\n");
    struct profile *out = transferred(donor, side("new", 400e12, 4e12, 100));
    const struct lattice *products = &out->ops[PROFILE_GATE_UP], *passes = &out->ops[PROFILE_PASS];
    const double stream_us = 2e6 * (8192.0 * 8192 + 2 * 8192) / peaks.bandwidth;
    ck_assert_double_eq_tol(products->time_us[0], 140 - stream_us * 3 / 4, 0.1);
    const double expected[] = {1.2, 11.2, 5, 15};
    ck_assert_uint_eq(passes->n_cells, 4);
    for (size_t i = 0; i < passes->n_cells; i++) {
        const size_t name = i / 2; /* in the order of the passes' names' numbers */
        const bool is_norm = fabs(passes->time_us[2 * name] - 1.2) < 1e-9;
        ck_assert_double_eq_tol(passes->time_us[i], expected[2 * !is_norm + i % 2], 1e-9);
    }
    const int curve = correction_find(profile_correction(out), OP_RMSNORM, "4096x0");
    ck_assert_int_ge(curve, 0);
    ck_assert_double_eq(correction_factor(profile_correction(out), curve, 32), 3);
    profile_close(out);
    profile_close(donor);
}

/* From 512 rows on a product's tile that is partly filled takes as long as a whole one, and its
 * factor is the whole one's; others' lie on a line. */
TEST(factors_of_products_are_those_of_whole_tiles) {
    struct profile *own = parse(HEAD "gemm,64,4096,4096,10\nload,linear,4096x4096,256,1\n"
                                     "load,linear,4096x4096,512,2\nload,linear,4096x4096,640,4\n"
                                     "load,add,4096x0,512,2\nload,add,4096x0,640,4\n");
    const struct correction *correction = profile_correction(own);
    const int linear = correction_find(correction, OP_LINEAR, "4096x4096"),
              add = correction_find(correction, OP_ADD, "4096x0");
    ck_assert_double_eq_tol(correction_factor(correction, linear, 384), 1.5, 1e-12);
    ck_assert_double_eq_tol(correction_factor(correction, linear, 512), 2, 1e-12);
    ck_assert_double_eq_tol(correction_factor(correction, linear, 513), 4, 1e-12);
    ck_assert_double_eq_tol(correction_factor(correction, linear, 4000), 4, 1e-12);
    ck_assert_double_eq_tol(correction_factor(correction, add, 576), 3, 1e-12);
    profile_close(own);
}

/* Of few queries over many keys, whose reading takes longer than the products. */
TEST(transferred_prefills_behind_a_long_prefix_go_by_the_bandwidth) {
    struct profile *donor = parse(HEAD "attention_causal,1,16,16,8,8,128,2\n"
                                       "attention_causal,1,16,65552,8,8,128,270\n");
    struct profile *out = transferred(donor, side("new", 200e12, 4e12, 100));
    const struct lattice *causal = &out->ops[PROFILE_ATTENTION_CAUSAL];
    ck_assert_double_eq_tol(causal->time_us[causal->n_cells - 1], 69, 1e-9);
    profile_close(out);
    profile_close(donor);
}

TEST(transferred_collectives_go_by_the_links) {
    struct profile *donor = parse(HEAD "all_reduce,2,1024,7\nall_reduce,2,1048576,27\n");
    struct transfer_side to = side("new", 200e12, 4e12, 100);
    to.link_bandwidth /= 2;
    struct profile *out = transferred(donor, to);
    enum profile_match match;
    ck_assert_double_eq_tol(profile_collective(out, PROFILE_ALL_REDUCE, 2, 1024, &match), 7e3,
                            1e-6);
    ck_assert_double_eq_tol(profile_collective(out, PROFILE_ALL_REDUCE, 2, 1048576, &match), 47e3,
                            1e-6);
    profile_close(out);
    profile_close(donor);
}

TEST(a_transfer_goes_by_the_rates_reached_not_by_the_data_sheet) {
    struct profile *donor = parse(HEAD "gemm,1,512,512,2\ngemm,4096,8192,8192,6002\n");
    struct transfer_side to = side("new", 200e12, 1e12, 100);
    to.reached.flops = 100e12;
    struct profile *out = transferred(donor, to);
    ck_assert_double_eq_tol(gemm_ns(out, 4096, 8192, 8192, PROFILE_EXACT), 6002e3, 1e-6);
    ck_assert_double_eq(profile_peaks(out)->flops, 200e12);
    profile_close(out);
    profile_close(donor);
}

TEST(rows_of_our_own_kernels_are_transferred_by_what_bounds_them) {
    struct profile *donor =
        parse(OWN "pass,decode,1,1,1\nattention_full,1,1,8,8,128,2\nhead,1,1,1,3\n"
                  "attention_block,1,1,1,8,8,128,4\n");
    /* Twice the rate, four times the bandwidth, as many multiprocessors. A head at its roofline has
     * no launch beyond it. */
    struct profile *out = transferred(donor, side("new", 200e12, 4e12, 100));
    enum profile_match match;
    ck_assert_double_eq_tol(profile_pass(out, PASS_NORM, 4096, 1024, &match), 3.75e3, 1e-6);
    ck_assert_double_eq_tol(full_ns(out, uniform(4, 1024, 0, 8), PROFILE_EXACT), 251e3, 1e-6);
    ck_assert_double_eq_tol(block_ns(out, uniform(8, 32, 512, 8), PROFILE_EXACT), 18.75e3, 1);
    ck_assert_double_eq_tol(profile_fused(out, PROFILE_HEAD, 256, 126464, 4096, &match), 220e3,
                            1e-6);
    /* Hosts are not the GPU's, and products keep their tiles. */
    ck_assert_double_eq(profile_host(out, 1)->step_ns, 31000.5);
    double hi = gemm_ns(out, 128, 4096, 4096, PROFILE_EXACT);
    ck_assert_double_eq_tol(gemm_ns(out, 86, 4096, 4096, PROFILE_INTERPOLATED), hi, 1e-6);
    profile_close(out);
    /* Twice the multiprocessors: four sequences run as two on the donor, at half the work. */
    out = transferred(donor, side("new", 200e12, 1e12, 200));
    double two = full_ns(donor, uniform(2, 1024, 0, 8), PROFILE_INTERPOLATED);
    ck_assert_double_eq_tol(full_ns(out, uniform(4, 1024, 0, 8), PROFILE_EXACT), two, 1e-6);
    profile_close(out);
    profile_close(donor);
}

TEST(a_transferred_file_names_its_donor_and_prices_as_the_transfer_did) {
    struct profile *donor = parse(OWN);
    struct profile *out = transferred(donor, side("new", 200e12, 4e12, 100));
    char *text = written(out);
    ck_assert_ptr_nonnull(strstr(text, "# kind: transferred\n"));
    ck_assert_ptr_nonnull(strstr(text, "# donor: old\n# donor_kind: measured\n"));
    ck_assert_ptr_nonnull(strstr(text, "# rule: "));
    struct profile *again = parse(text);
    ck_assert_int_eq(profile_kind(again), PROVENANCE_TRANSFERRED);
    ck_assert_double_eq_tol(gemm_ns(again, 86, 4096, 4096, PROFILE_INTERPOLATED) /
                                gemm_ns(out, 86, 4096, 4096, PROFILE_INTERPOLATED),
                            1, 1e-5);
    free(text);
    profile_close(again);
    profile_close(out);
    profile_close(donor);
}

static const struct gpu *gpu_of(const char *name) {
    struct err err = {0};
    const struct gpu *gpu = gpu_find(name, &err);
    ck_assert_ptr_nonnull(gpu);
    return gpu;
}

TEST(a_transfer_from_h100_comes_within_a_quarter_of_the_a100) {
    struct profile *h100 = open_shipped("h100"), *a100 = open_shipped("a100-80g");
    struct transfer_check check = transfer_check(h100, gpu_of("h100"), a100, gpu_of("a100-80g"));
    const struct profile_errors *products = &check.by_class[TRANSFER_LARGE_GEMM];
    ck_assert_uint_gt(products->n, 2000);
    ck_assert_double_lt(products->median_abs, 0.25);
    ck_assert_double_gt(products->median_abs, 0.01);
    ck_assert_double_ge(products->p90_abs, products->median_abs);
    /* Nothing is off where both are the same GPU. */
    check = transfer_check(a100, gpu_of("a100-80g"), a100, gpu_of("a100-80g"));
    for (size_t i = 0; i < TRANSFER_CLASSES; i++) {
        ck_assert_double_lt(check.by_class[i].p90_abs, 1e-9);
    }
    ck_assert_uint_gt(check.n, 10000);
    profile_close(h100);
    profile_close(a100);
}

TEST(the_nearest_transfer_that_can_be_checked_has_the_nearest_ends) {
    struct transfer_check check;
    struct err err = {0};
    char text[512];
    /* The donor's own table, and the nearest that shares enough rows with it. */
    ck_assert_int_eq(transfer_check_nearest(gpu_of("h100"), gpu_of("h200"), &check, &err), 0);
    ck_assert_str_eq(check.from->name, "h100");
    ck_assert_str_eq(check.to->name, "h200");
    transfer_check_text(&check, text, sizeof text);
    ck_assert_ptr_eq(strstr(text, "h100 -> h200: gemm, m < 128 median "), text);
    /* A donor without a shipped table is stood in for by the nearest with one; a target with one
     * is compared with itself, however few the rows. */
    ck_assert_int_eq(transfer_check_nearest(gpu_of("rtx3090"), gpu_of("rtx4090"), &check, &err), 0);
    ck_assert_str_ne(check.from->name, "rtx3090");
    ck_assert_str_eq(check.to->name, "rtx4090");
    ck_assert_uint_ge(check.n, TRANSFER_FEWEST_ROWS);
}

static const struct profile *share(const char *path) {
    struct err err = {0};
    const struct profile *profile = NULL;
    ck_assert_msg(profile_share(path, &peaks, &profile, &err) == 0, "%s", err.text);
    return profile;
}

/* A file that was changed meanwhile is read again, and what nobody uses is not kept for ever. */
TEST(profiles_of_equal_files_are_shared) {
    const char *path = scratch_write("shared.csv", HEAD "gemm,512,4096,4096,100\n");
    const struct profile *a = share(path), *b = share(path);
    ck_assert_ptr_eq(a, b);
    profile_give_back(b);
    profile_give_back(a);
    ck_assert_ptr_eq(share(path), a);
    scratch_write("shared.csv", HEAD "gemm,512,4096,4096,200\n");
    const struct profile *changed = share(path);
    ck_assert_ptr_ne(changed, a);
    ck_assert_double_eq_tol(gemm_ns(a, 512, 4096, 4096, PROFILE_EXACT), 100e3, 1e-6);
    ck_assert_double_eq_tol(gemm_ns(changed, 512, 4096, 4096, PROFILE_EXACT), 200e3, 1e-6);

    struct err err = {0};
    const struct transfer_side l40s = transfer_side_of(gpu_find("l40s", &err));
    const struct transfer_side a100 = transfer_side_of(gpu_find("a100-80g", &err));
    const struct profile *to = profile_share_transfer(a, &l40s, &a100);
    ck_assert_ptr_eq(profile_share_transfer(a, &l40s, &a100), to);
    ck_assert_ptr_ne(profile_share_transfer(a, &a100, &l40s), to);
    ck_assert_int_eq(profile_kind(to), PROVENANCE_TRANSFERRED);
    profile_give_back(a); /* the transfers have it still */
    for (int i = 0; i < 40; i++) {
        char name[32], text[128];
        snprintf(name, sizeof name, "shared-%d.csv", i);
        snprintf(text, sizeof text, HEAD "gemm,512,4096,4096,%d\n", 300 + i);
        const struct profile *one = share(scratch_write(name, text));
        ck_assert_double_eq_tol(gemm_ns(one, 512, 4096, 4096, PROFILE_EXACT), (300 + i) * 1e3,
                                1e-6);
        profile_give_back(one);
    }
    ck_assert_ptr_eq(profile_share_transfer(a, &l40s, &a100), to);
    profile_give_back(changed);

    const struct profile *none;
    ck_assert_int_eq(profile_share(scratch_write("bad.csv", "nonsense\n"), &peaks, &none, &err),
                     ERR_WORLD);
    ck_assert_ptr_null(none);
    err = (struct err){0};
    ck_assert_int_eq(profile_share("/nowhere/file.csv", &peaks, &none, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/file.csv"));
}

SUITE("profile")
