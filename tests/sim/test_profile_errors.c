/* Files of profiles, what is refused of them, and leave-one-out errors of the shipped ones. */
#include "tests/support/profiles.h"

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

/* Plain rows are read in one walk, others by their columns. */
TEST(a_row_is_the_same_however_its_numbers_are_spelled) {
    struct profile *plain = parse(HEAD "gemm,1,512,512,2.5\ngemm,2,512,512,f32,3\n"
                                       "gemm,2,512,512,20.25\nelementwise,4096,2\n"
                                       "elementwise,8192,0.125\n");
    struct profile *others = parse(HEAD "gemm,1,512,512,25e-1\r\ngemm,2,512,512,f32,+3\n"
                                        "gemm,2,512,0000000000512,2.025e1\nelementwise,4096,2.\n"
                                        "elementwise,8192,.125");
    same_rows(plain, others);
    const struct profile *types[] = {profile_in(plain, PROFILE_F32),
                                     profile_in(others, PROFILE_F32)};
    ck_assert(profile_has(types[0], PROFILE_GEMM) && profile_has(types[1], PROFILE_GEMM));
    for (int i = 0; i < 2; i++) {
        enum profile_match match;
        ck_assert_double_eq(profile_gemm(types[i], 2, 512, 512, &match), 3000);
        ck_assert_double_eq(profile_gemm(plain, 2, 512, 512, &match), 20250);
    }
    profile_close(plain);
    profile_close(others);
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
    expect_bad(HEAD "gemm,1,512,512,2\ngemm,1,512,512,1e13\n",
               "t.csv:4: time_us is '1e13', expected a positive number");
    expect_bad(HEAD "gemm,1,512,512,2\ngemm,1,512,512,10000000000000\n",
               "t.csv:4: time_us is '10000000000000', expected a positive number");
    expect_bad(HEAD "gemm,1,512,512,2\ngemm,1,512,512,0\n",
               "t.csv:4: time_us is '0', expected a positive number");
    expect_bad(HEAD "gemm,1,512,512,2\ngemm,1099511627777,512,512,2\n",
               "t.csv:4: '1099511627777' is not a size from 1 to 2^40 (m,n,k,time_us)");
    expect_bad(HEAD "elementwise,4096,2\nelementwise,8192,f32,2\n",
               "t.csv:4: elementwise goes by bytes, whatever their type");
    expect_bad(HEAD "gemm,1,512,512,2\ngemm,1,512,512,f31,2\n", "t.csv:4: unknown type 'f31'");
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

SUITE("profile errors")
