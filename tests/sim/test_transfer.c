/* Noise of profiles, number types, and transfers from one GPU to another. */
#include "tests/support/profiles.h"

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

/* 2 MiB at 1 TB/s, and at 2 TB/s: the warm time goes with the row's, and stays in the file. */
TEST(a_raised_row_is_transferred_as_one) {
    struct profile *donor = parse(IMPORTED "gemm,1,1024,1024,warm=1.5,3\ngemm,1,4096,1024,9\n");
    struct profile *out = transferred(donor, side("new", 100e12, 2e12, 100));
    const double ratio = gemm_ns(out, 1, 1024, 1024, PROFILE_EXTRAPOLATED) / 3e3;
    ck_assert_double_lt(ratio, 0.9);
    ck_assert_double_eq_tol(profile_lattice(out, PROFILE_GEMM)->warm_us[0], 1.5 * ratio, 1e-9);
    char *text = written(out);
    struct profile *again = parse(text);
    size_t n_rows;
    ck_assert_uint_eq(profile_raised(again, PROFILE_GEMM, &n_rows), 1);
    free(text);
    profile_close(again);
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

SUITE("transfer")
