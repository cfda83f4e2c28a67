/* Measured profiles: parsing and lookups. */
#include "tests/support/profiles.h"

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

#define RAISED IMPORTED "# weights_in_turn: gemm 6, moe 1\n# raised_by: a test\n"

/* experiments/import/cold.py says what such rows take; here they are read. */
TEST(a_row_that_was_raised_keeps_its_time_and_is_no_exact_one) {
    struct profile *profile = parse(RAISED "gemm,1,1024,1024,warm=1.5,3.5971520000000003\n"
                                           "gemm,8,1024,1024,warm=6,7.1\ngemm,512,1024,1024,30\n"
                                           "gemm,8,1024,1024,f32,warm=8,9\n"
                                           "moe,1,2048,512,8,256,8,warm=50,60\n"
                                           "moe,2,2048,512,8,256,16,70\n"
                                           "attention_decode,1,1,64,32,8,128,warm=2,3\n");
    size_t n_rows;
    ck_assert_uint_eq(profile_raised(profile, PROFILE_GEMM, &n_rows), 2);
    ck_assert_uint_eq(n_rows, 3);
    ck_assert_uint_eq(profile_raised(profile, PROFILE_MOE, &n_rows), 1);
    ck_assert_uint_eq(profile_raised(profile, PROFILE_ATTENTION_DECODE, &n_rows), 1);
    ck_assert_uint_eq(profile_raised(profile_in(profile, PROFILE_F32), PROFILE_GEMM, &n_rows), 1);
    ck_assert_double_eq(profile_lattice(profile, PROFILE_GEMM)->time_us[0], 3.5971520000000003);
    ck_assert_double_eq(gemm_ns(profile, 8, 1024, 1024, PROFILE_EXTRAPOLATED), 7.1e3);
    ck_assert_double_eq(gemm_ns(profile, 512, 1024, 1024, PROFILE_EXACT), 30e3);
    enum profile_match match;
    const struct moe_shape mini = {2048, 512, 8, 256};
    ck_assert_double_eq(profile_moe(profile, mini, 1, 0, &match), 60e3);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    ck_assert_double_eq(profile_moe(profile, mini, 2, 0, &match), 70e3);
    ck_assert_int_eq(match, PROFILE_EXACT);
    char *text = written(profile);
    ck_assert_ptr_nonnull(strstr(text, "\ngemm,8,1024,1024,warm=6,7.1\n"));
    ck_assert_ptr_nonnull(strstr(text, "\ngemm,8,1024,1024,f32,warm=8,9\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nmoe,1,2048,512,8,256,8,warm=50,60\n"));
    ck_assert_ptr_nonnull(strstr(text, "\ngemm,512,1024,1024,30\n"));
    free(text);
    profile_close(profile);
}

TEST(rows_that_an_import_left_on_a_warm_cache_are_refused) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {IMPORTED "# weights_in_turn: gemm 6\ngemm,1,2,3,4\n",
         "t.csv: '# weights_in_turn' says that rows were timed on a warm cache, and no '# "
         "raised_by' that they were raised: `experiments/import/cold.py GPU.ini FILE` does that; "
         "without the first line they are read as they are"},
        {RAISED "gemm,1,2,3,warm=,4\n", "t.csv:5: 'warm=', expected a positive number"},
        {RAISED "gemm,1,2,3,warm=-1,4\n", "t.csv:5: 'warm=-1', expected a positive number"},
        {RAISED "gemm,1,2,3,warm=1e13,4\n", "t.csv:5: 'warm=1e13', expected a positive number"},
        {RAISED "gemm,1,2,warm=3,4\n",
         "t.csv:5: gemm has 3 columns after its name, expected 4: m,n,k,time_us"},
        {RAISED "elementwise,1,warm=3,4\n", "t.csv:5: elementwise is never raised from warm times"},
        {RAISED "attention_causal,1,2,2,4,1,128,8\nattention_causal,1,1,1,4,1,128,warm=3,4\n",
         "t.csv:6: attention_causal is never raised from warm times"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct profile *none = NULL;
        struct err err = {0};
        ck_assert_int_eq(
            profile_parse("t.csv", cases[i].text, strlen(cases[i].text), &peaks, &none, &err),
            ERR_WORLD);
        ck_assert_str_eq(err.text, cases[i].says);
    }
    /* Without either line rows are read as they are. */
    struct profile *profile = parse(IMPORTED "gemm,8,1024,1024,1\n");
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

/* Patterns: straight in keys at the queries of a row, and choices by their queries alone. */
TEST(patterns_are_priced_by_the_keys_that_they_keep) {
    struct profile *own = parse(HEAD "attention_pattern,1,512,128,8,8,128,10\n"
                                     "attention_pattern,1,512,512,8,8,128,34\n"
                                     "attention_pattern,4,512,128,8,8,128,37\n"
                                     "pattern,1,512,8,8,128,100\npattern,2,512,8,8,128,180\n"
                                     "pattern,1,1024,8,8,128,356\n");
    enum profile_match match;
    struct profile_spans spans = {1, 512, 512, 512 * 128.0, 8, 8, 128, NULL};
    ck_assert_double_eq_tol(profile_attention_pattern(own, &spans, &match), 10e3, 1e-6);
    ck_assert_int_eq(match, PROFILE_EXACT);
    spans.sum_q_kv = 512 * 256.0;
    ck_assert_double_eq_tol(profile_attention_pattern(own, &spans, &match), 18e3, 1e-6);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
    /* Twice the keys of the largest row multiply twice as much. */
    spans.sum_q_kv = 512 * 1024.0;
    ck_assert_double_eq_tol(profile_attention_pattern(own, &spans, &match), 68e3, 1);
    ck_assert_int_eq(match, PROFILE_EXTRAPOLATED);
    spans = (struct profile_spans){2, 1024, 1024, 1024 * 128.0, 8, 8, 128, NULL};
    ck_assert_double_eq_tol(profile_attention_pattern(own, &spans, &match), 19e3, 1e-6);
    ck_assert_double_eq_tol(profile_pattern(own, &spans, &match), 180e3, 1e-6);
    ck_assert_int_eq(match, PROFILE_EXACT);
    /* Between rows as the pairs of whole tiles are: 768 (768 + 128) of 512 (640) to 1024 (1152). */
    spans = (struct profile_spans){1, 768, 768, 1, 8, 8, 128, NULL};
    ck_assert_double_eq_tol(profile_pattern(own, &spans, &match),
                            100e3 + 256e3 * (768.0 * 896 - 512 * 640) / (1024 * 1152 - 512 * 640),
                            1);
    ck_assert_int_eq(match, PROFILE_INTERPOLATED);
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

SUITE("profile")
