/* The decode process, and the life of a block's positions. */
#include "tests/support/blocks.h"

TEST(confidences_lie_in_the_open_interval_and_only_where_masked) {
    struct rng rng = rng_stream(1, "ranges");
    for (int round = 0; round < 2000; round++) {
        struct decode_process process =
            round % 4 == 0 ? process_kumaraswamy(0.01 + 100 * rng_uniform(&rng), 0.01)
                           : random_process(&rng);
        process.location *= round % 3 == 0 ? 1000 : 1; /* where single precision rounds to 0 or 1 */
        uint8_t masked[MOST];
        float confidence[MOST], delta[MOST];
        uint32_t length = 1 + below(&rng, MOST);
        for (uint32_t i = 0; i < length; i++) {
            masked[i] = rng_uniform(&rng) < 0.6;
        }
        struct decode_view view =
            MAKE(struct decode_view, .request = (uint64_t)round, .block_start = below(&rng, 100000),
                 .block_length = length, .step_in_block = below(&rng, 64), .masked = masked);
        process_confidence(&process, 7, &view, confidence);
        process_delta(&process, 7, &view, delta);
        double sum = 0;
        for (uint32_t i = 0; i < length; i++) {
            ck_assert(masked[i] ? confidence[i] > 0 && confidence[i] < 1 : confidence[i] == 0);
            ck_assert(masked[i] ? isfinite(delta[i]) : delta[i] == 0);
            sum += delta[i];
        }
        ck_assert_double_le(fabs(sum), 1e-3 * length * (1 + fabs(process.location) * 1e-3));
    }
}

/* The same request, step and mask give the same draws whatever was drawn before or in between, and
 * another request, step or seed others. */
TEST(draws_do_not_depend_on_company_or_order) {
    enum { N = 50 };
    static float alone[N][B], together[N][B];
    uint8_t masked[B];
    for (uint32_t i = 0; i < B; i++) {
        masked[i] = i % 5 != 1;
    }
    struct decode_view view = {.block_start = 96, .block_length = B, .masked = masked};
    for (uint32_t r = 0; r < N; r++) {
        view.request = r;
        view.step_in_block = r % 3;
        process_confidence(&middling, 3, &view, alone[r]);
    }
    for (uint32_t r = N; r-- > 0;) {
        float delta[B];
        view.request = r;
        view.step_in_block = r % 3;
        process_delta(&middling, 3, &view, delta);
        process_confidence(&middling, 3, &view, together[r]);
    }
    ck_assert_int_eq(memcmp(alone, together, sizeof alone), 0);
    for (uint32_t r = 0; r + 3 < N; r++) {
        ck_assert_int_ne(memcmp(alone[r], alone[r + 3], sizeof alone[r]), 0);
    }
    view.request = 0;
    view.step_in_block = 1;
    process_confidence(&middling, 3, &view, together[0]);
    ck_assert_int_ne(memcmp(alone[0], together[0], sizeof alone[0]), 0);
    view.step_in_block = 0;
    process_confidence(&middling, 4, &view, together[0]);
    ck_assert_int_ne(memcmp(alone[0], together[0], sizeof alone[0]), 0);
}

/* A pass draws what it reads alone: the same numbers as when all positions are drawn. */
TEST(a_draw_does_not_depend_on_which_others_are_wanted) {
    struct decode_process processes[3] = {middling, middling, process_kumaraswamy(2, 1)};
    uint8_t masked[B], wanted[B];
    processes[1].temperature = 0.5;
    processes[1].drawing.draws = true;
    for (uint32_t i = 0; i < B; i++) {
        masked[i] = i % 5 != 1;
        wanted[i] = i % 3 == 0;
    }
    for (size_t p = 0; p < 3; p++) {
        float all[B], some[B];
        struct decode_view view = {.request = 8, .block_length = B, .masked = masked};
        view.behind_text = 4;
        process_confidence(&processes[p], 3, &view, all);
        view.wanted = wanted;
        process_confidence(&processes[p], 3, &view, some);
        for (uint32_t i = 0; i < B; i++) {
            ck_assert(some[i] == (wanted[i] ? all[i] : 0));
        }
    }
}

/* Unmasking a position on the right of i changes nothing but the share of the block known: with no
 * weight on it, i's confidence stays; and a nearer known position on the left raises it. */
TEST(confidence_falls_with_the_gap_at_the_left) {
    struct decode_process process = middling;
    process.context = 0;
    uint8_t masked[B];
    float all[B], some[B];
    memset(masked, 1, sizeof masked);
    struct decode_view view = {.request = 5, .block_length = B, .masked = masked};
    process_confidence(&process, 1, &view, all);
    masked[10] = 0;
    process_confidence(&process, 1, &view, some);
    for (uint32_t i = 0; i < B; i++) {
        ck_assert(i == 10 ? some[i] == 0 : i < 10 ? some[i] == all[i] : some[i] > all[i]);
    }
    struct decode_process beside = process; /* next to known context distance costs nothing */
    float free_of_distance[B];
    beside.distance = 0;
    process_confidence(&beside, 1, &view, free_of_distance);
    ck_assert(some[0] == free_of_distance[0] && some[11] == free_of_distance[11]);
    ck_assert(some[1] < free_of_distance[1] && some[12] < free_of_distance[12]);
    process.context = 2;
    masked[10] = 1;
    process_confidence(&process, 1, &view, all);
    masked[10] = 0;
    process_confidence(&process, 1, &view, some);
    ck_assert_float_gt(some[0], all[0]);
}

static double logit(float confidence) {
    return log(confidence / (1.0 - confidence));
}

/* Difficulty and the steps' draws are independent of each other, from request to request and from
 * position to position; difficulty stays from step to step. */
TEST(spreads_add_up_and_only_difficulty_stays) {
    static const struct decode_process process = {
        .gap = 1, .position_spread = 1.5, .step_spread = 1};
    enum { N = 2000 };
    double squares = 0, next_step = 0, next_request = 0, next_position = 0;
    uint8_t masked[B];
    memset(masked, 1, sizeof masked);
    for (uint64_t r = 0; r < N; r++) {
        float here[B], later[B], other[B];
        struct decode_view view = {.request = r, .block_length = B, .masked = masked};
        process_confidence(&process, 1, &view, here);
        view.step_in_block = 1;
        process_confidence(&process, 1, &view, later);
        view.request = r + N;
        process_confidence(&process, 1, &view, other);
        for (uint32_t i = 0; i < B; i++) {
            double x = logit(here[i]);
            squares += x * x;
            next_step += x * logit(later[i]);
            next_request += x * logit(other[i]);
            next_position += x * logit(later[(i + 1) % B]);
        }
    }
    ck_assert_double_eq_tol(squares / N / B, 2.25 + 1, 0.05);
    ck_assert_double_eq_tol(next_step / N / B, 2.25, 0.05);
    ck_assert_double_eq_tol(next_request / N / B, 0, 0.06);
    ck_assert_double_eq_tol(next_position / N / B, 0, 0.06);
}

/* By pow, of which the one that is drawn by default takes none. */
TEST(kumaraswamy_draws_what_the_loop_always_drew) {
    static const struct {
        double a, b;
        uint64_t n;
    } cases[] = {{2, 1, 40000}, {2, 3, 400}, {1, 1, 400}, {5, 2, 400}};
    uint8_t masked[B];
    float confidence[B];
    for (uint32_t i = 0; i < B; i++) {
        masked[i] = i % 3 == 0;
    }
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const double a = cases[k].a, b = cases[k].b;
        const struct decode_process process = process_kumaraswamy(a, b);
        for (uint64_t request = 0; request < cases[k].n; request++) {
            const struct decode_view view =
                MAKE(struct decode_view, .request = request, .block_start = 64, .block_length = B,
                     .step_in_block = 2, .step = 77, .masked = masked);
            process_confidence(&process, 9, &view, confidence);
            for (uint32_t i = 0; i < B; i += 3) {
                const double u = rng_keyed(9, request, 77, i / 3);
                ck_assert(confidence[i] == (float)pow(1 - pow(1 - u, 1 / b), 1 / a));
            }
        }
    }
}

TEST(bells_are_nearly_standard_normal) {
    double sum[5] = {0};
    enum { N = 400000 };
    for (uint64_t i = 0; i < N; i++) {
        double x = rng_bell(rng_key(1, i / 1000, i % 1000), i), power = 1;
        for (int p = 1; p < 5; p++) {
            sum[p] += power *= x;
        }
        ck_assert_double_le(fabs(x), 3.47);
    }
    ck_assert_double_eq_tol(sum[1] / N, 0, 0.006);
    ck_assert_double_eq_tol(sum[2] / N, 1, 0.01);
    ck_assert_double_eq_tol(sum[3] / N, 0, 0.02);
    ck_assert_double_eq_tol(sum[4] / N, 2.7, 0.05);
}

static void expect_bad_file(const char *text, const char *name, const char *sentence) {
    char path[] = "/tmp/unmask-decode-XXXXXX";
    struct decode_process process;
    struct err err = {0};
    FILE *file = fdopen(mkstemp(path), "w");
    fputs(text, file);
    fclose(file);
    ck_assert_int_eq(decode_process_read(path, name, &process, &err), ERR_USAGE);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "%s", err.text);
    remove(path);
}

TEST(an_unknown_process_and_a_bad_constant_are_refused_with_a_sentence) {
    static const char good[] = "[s]\ngap = 2\ndistance = 1\n"
                               "[m/d]\nshape = s\nlocation = 1\ncalibrated_to = x\n";
    expect_bad_file(good, "m/e", "there is no decode process 'm/e'; did you mean 'm/d'?");
    expect_bad_file(good, "s", "there is no decode process 's'");
    expect_bad_file("[m/d]\nshape = t\nlocation = 1\n", "m/d", ":2: there is no shape 't'");
    expect_bad_file("[m/d]\nlocation = 1\ndistnace = 1\n", "m/d", "did you mean 'distance'?");
    expect_bad_file("[m/d]\nlocation = 1\ngap = 0\n", "m/d", "gap");
    expect_bad_file("[m/d]\nlocation = 1\ngap = x\n", "m/d", ":3");
}

TEST(the_error_that_is_known_is_that_of_the_first_policy_which_has_one) {
    char path[] = "/tmp/unmask-decode-XXXXXX";
    struct decode_process process;
    struct err err = {0};
    FILE *file = fdopen(mkstemp(path), "w");
    fputs("[m/d]\nlocation = 1\ncalibrated_to = x\nerror = any\nerror.first = one\n"
          "error.second = two\n",
          file);
    fclose(file);
    ck_assert_int_eq(decode_process_read(path, "m/d", &process, &err), 0);
    remove(path);
    static const struct {
        const char *names[4], *error;
    } asked[] = {
        {{"first", "second", NULL}, "one"},
        {{"second", "first", NULL}, "two"},
        {{"other", "second", NULL}, "two"},
        {{"other", NULL}, "any"},
        {{NULL}, "any"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        ck_assert_str_eq(decode_process_error(&process, asked[i].names), asked[i].error);
    }
}

TEST(of_many_errors_the_first_eight_are_known) {
    char path[] = "/tmp/unmask-decode-XXXXXX";
    struct decode_process process;
    struct err err = {0};
    FILE *file = fdopen(mkstemp(path), "w");
    fputs("[m/e]\nlocation = 1\ncalibrated_to = x\nerror.a0 = others\n"
          "[m/d]\nlocation = 1\ncalibrated_to = x\nerror = any\n",
          file);
    for (int i = 0; i < DECODE_MOST_ERRORS + 1; i++) {
        fprintf(file, "error.a%d = %d\n", i, i);
    }
    fclose(file);
    ck_assert_int_eq(decode_process_read(path, "m/d", &process, &err), 0);
    remove(path);
    for (int i = 0; i < DECODE_MOST_ERRORS + 1; i++) {
        char name[8], expected[8];
        const char *const names[] = {name, NULL};
        snprintf(name, sizeof name, "a%d", i);
        snprintf(expected, sizeof expected, "%d", i);
        ck_assert_str_eq(decode_process_error(&process, names),
                         i < DECODE_MOST_ERRORS ? expected : "any");
    }
}

TEST(a_process_says_where_it_is_from) {
    struct decode_process process;
    struct err err = {0};
    ck_assert_int_eq(decode_process_find("llada-td/gsm8k", &process, &err), 0);
    ck_assert_str_eq(process.name, "llada-td/gsm8k");
    ck_assert_int_eq(process.from.kind, PROVENANCE_CALIBRATED);
    ck_assert(strncmp(process.from.source, "dInfer Table 2: ", 16) == 0);
    ck_assert_int_eq(decode_process_find("llada-td/mbpp", &process, &err), 0);
    ck_assert_int_eq(process.from.kind, PROVENANCE_TRANSFERRED);
    ck_assert(strncmp(process.from.source, "llada-moe/mbpp, ", 16) == 0);
    ck_assert_int_eq(decode_process_find("kumaraswamy", &process, &err), 0);
    ck_assert_int_eq(process.from.kind, PROVENANCE_ASSUMED);
    const char *own = "experiments/study/decode.ini:sdar-2m/hops";
    ck_assert_int_eq(decode_process_find(own, &process, &err), 0);
    ck_assert_str_eq(process.name, "sdar-2m/hops");
}

/* The distribution that the header describes, written out: its softmax at a temperature is what is
 * drawn at it. */
TEST(a_temperature_is_a_division_of_all_logits) {
    static const double temperatures[] = {0.5, 0.8, 1.25, 3};
    enum { TOKENS = 4000 };
    struct decode_process process = middling;
    process.tail_spread = 1;
    uint8_t masked[B];
    memset(masked, 1, sizeof masked);
    const struct decode_view view = {.request = 3, .block_length = B, .masked = masked};
    float own[B], margin[B], entropy[B], drawn[B], deltas[2][B];
    process_confidence(&process, 5, &view, own);
    process_statistics(&process, 5, &view, own, margin, entropy);
    process_delta(&process, 5, &view, deltas[0]);
    for (size_t t = 0; t < sizeof temperatures / sizeof temperatures[0]; t++) {
        process.temperature = temperatures[t];
        process_confidence(&process, 5, &view, drawn);
        process_delta(&process, 5, &view, deltas[1]);
        ck_assert_mem_eq(deltas[0], deltas[1], sizeof deltas[0]);
        for (uint32_t i = 0; i < B; i++) {
            double p = (double)own[i], second = p - (double)margin[i], q = second / (1 - p);
            if (margin[i] <= 0 || q > 0.95 || q < 0.05 || p > 0.999) {
                continue; /* the second is cut off, or single precision is too short */
            }
            double sum = pow(p, 1 / temperatures[t]), left = 1 - p;
            const double first = sum;
            for (int token = 0; token < TOKENS; token++) {
                sum += pow(left * q, 1 / temperatures[t]);
                left *= 1 - q;
            }
            ck_assert_double_eq_tol((double)drawn[i], first / sum, 2e-3);
        }
    }
    process.temperature = 1;
    process_confidence(&process, 5, &view, drawn);
    ck_assert_mem_eq(own, drawn, sizeof own);
}

static uint32_t block_tokens_of(const char *workload, const char *block_tokens) {
    const struct setting setting = {.key = "block_tokens", .place = "test"};
    struct setting settings[1] = {setting};
    snprintf(settings[0].value, sizeof settings[0].value, "%s", block_tokens);
    const struct system_request request =
        MAKE(struct system_request, .system = "focus", .gpu = "a100-80g", .workload = workload,
             .overrides = settings, .n_overrides = 1);
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    uint32_t block = system->settings.block_tokens;
    system_close(system);
    return block;
}

TEST(a_process_brings_the_blocks_it_was_calibrated_under) {
    ck_assert_uint_eq(block_tokens_of("sharegpt", "0"), 32);
    ck_assert_uint_eq(block_tokens_of("sharegpt", "16"), 16);
    ck_assert_uint_eq(block_tokens_of("burst", "0"), 4);
    ck_assert_uint_eq(block_tokens_of(NULL, "0"), 4);
}

/* "mmdc": masked, decoded, cached. */
static void expect_life(const struct block_state *block, const char *life) {
    ck_assert_uint_eq(block->length, strlen(life));
    for (uint32_t i = 0; i < block->length; i++) {
        char is = block->masked[i] ? 'm' : block->uncached[i] ? 'd' : 'c';
        ck_assert_msg(is == life[i], "position %u is %c in %s", i, is, life);
    }
}

/* How positions come out: x is committed, r revised, a masked again. */
static void come_out(const char *text, uint8_t *outcome) {
    for (uint32_t i = 0; text[i] != '\0'; i++) {
        outcome[i] = text[i] == 'x'   ? OUTCOME_COMMIT
                     : text[i] == 'r' ? OUTCOME_REVISE
                     : text[i] == 'a' ? OUTCOME_AGAIN
                                      : OUTCOME_NONE;
    }
}

/* One pass that runs what is pending, in `runs`, and after which positions come out so. */
static void pass(struct block_state *block, const char *runs, const char *outcomes) {
    uint8_t pending[8], outcome[8];
    uint32_t n = block_pending(block, pending), n_expected = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        ck_assert_msg(pending[i] == (runs[i] == 'x'), "position %u of %s", i, runs);
        n_expected += runs[i] == 'x';
    }
    ck_assert_uint_eq(n, n_expected);
    come_out(outcomes, outcome);
    block_pass(block, pending, outcome);
}

/* What was revised or masked again is cached after a pass in its new form. */
TEST(a_position_that_is_revised_or_masked_again_runs_once_more) {
    uint8_t masked[4], uncached[4];
    uint16_t later[4] = {0};
    struct block_state block;
    block_begin(&block, BLOCK_WHOLE, 4, 1, masked, uncached);
    pass(&block, "xxxx", ".xx.");
    pass(&block, "xxxx", ".ra.");
    expect_life(&block, "ddmm");
    pass(&block, "xxxx", "...."); /* commits none */
    pass(&block, "xxxx", ".axx");
    expect_life(&block, "dmdd");
    pass(&block, "xxxx", ".x..");
    pass(&block, "xxxx", "....");
    ck_assert(block_is_done(&block));

    block_begin(&block, BLOCK_DELAYED, 4, 0, masked, uncached);
    pass(&block, "xxxx", "xx..");
    pass(&block, "xxxx", "ra.."); /* neither is cached, though both ran in decoded form */
    expect_life(&block, "dmmm");
    pass(&block, "xxxx", ".xxx");
    expect_life(&block, "cddd");

    block_begin(&block, BLOCK_DELAYED, 4, 0, masked, uncached);
    block.recent = 2;
    block.later = later;
    pass(&block, "xxxx", "x...");
    pass(&block, "xxxx", "rx..");
    pass(&block, "xxxx", "..x.");
    expect_life(&block, "dddm"); /* one since it was revised */
    pass(&block, "xxxx", "...x");
    expect_life(&block, "ccdd");
}

TEST(only_what_ran_and_is_decided_is_revised_or_masked_again) {
    static const struct {
        const char *keep, *outcomes;
        bool is_allowed;
    } cases[] = {{"xxxx", "..a.", true},  {"xxxx", "..r.", true},  {"xxxx", "..ax", true},
                 {"xxxx", "...a", false}, {"xxxx", "...r", false}, {"xxxx", "..x.", false},
                 {"xxxx", "a...", false}, {"xxxx", "r...", false}, {"xx.x", "..a.", false}};
    uint8_t masked[4], uncached[4], keep[4], outcome[4];
    struct block_state block;
    block_begin(&block, BLOCK_PARTS, 4, 1, masked, uncached);
    pass(&block, "xxxx", "..x.");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int at = 0; at < 4; at++) {
            keep[at] = cases[i].keep[at] == 'x';
        }
        come_out(cases[i].outcomes, outcome);
        ck_assert_msg(block_allows(&block, keep, outcome) == cases[i].is_allowed, "%s of %s",
                      cases[i].outcomes, cases[i].keep);
    }
    memset(keep, 1, sizeof keep);
    outcome[1] = OUTCOME_COUNT;
    ck_assert(!block_allows(&block, keep, outcome));
    come_out(".x.x", outcome);
    memset(keep, 1, sizeof keep);
    block_pass(&block, keep, outcome);
    come_out("..a.", outcome); /* nothing is left to decide */
    ck_assert(!block_allows(&block, keep, outcome));
}

TEST(plain_block_diffusion_runs_all_until_the_commit_pass) {
    uint8_t masked[4], uncached[4];
    struct block_state block;
    block_begin(&block, BLOCK_WHOLE, 4, 1, masked, uncached);
    expect_life(&block, "dmmm");
    pass(&block, "xxxx", "..x.");
    expect_life(&block, "dmdm");
    pass(&block, "xxxx", ".x.x");
    expect_life(&block, "dddd");
    ck_assert(!block_is_done(&block));
    pass(&block, "xxxx", "....");
    expect_life(&block, "cccc");
    ck_assert(block_is_done(&block));
    ck_assert_uint_eq(block.passes, 3);
}

TEST(a_delayed_cache_runs_a_decoded_position_once_more) {
    uint8_t masked[4], uncached[4];
    struct block_state block;
    block_begin(&block, BLOCK_DELAYED, 4, 1, masked, uncached);
    pass(&block, "xxxx", "..x."); /* the prompt's token was run in its final form */
    expect_life(&block, "cmdm");
    pass(&block, ".xxx", ".x..");
    expect_life(&block, "cdcm");
    pass(&block, ".x.x", "...x");
    expect_life(&block, "cccd");
    pass(&block, "...x", "....");
    ck_assert(block_is_done(&block));
}

/* With recent tokens: until as many were decoded in passes after its own; 1 is the same as 0. */
TEST(a_decoded_position_runs_until_so_many_were_decoded_after_it) {
    uint8_t masked[5], uncached[5];
    uint16_t later[5] = {0};
    struct block_state block;
    block_begin(&block, BLOCK_DELAYED, 5, 0, masked, uncached);
    block.recent = 3;
    block.later = later;
    pass(&block, "xxxxx", "x....");
    pass(&block, "xxxxx", ".x...");
    expect_life(&block, "ddmmm"); /* one was decoded after the first */
    pass(&block, "xxxxx", "..xx.");
    expect_life(&block, "cdddm"); /* three after the first, two after the second */
    pass(&block, ".xxxx", "....x");
    expect_life(&block, "ccddd");
    for (uint32_t recent = 0; recent < 2; recent++) {
        memset(later, 0, sizeof later);
        block_begin(&block, BLOCK_DELAYED, 5, 0, masked, uncached);
        block.recent = recent;
        block.later = later;
        pass(&block, "xxxxx", "x....");
        pass(&block, "xxxxx", ".xx..");
        expect_life(&block, "cddmm");
        pass(&block, ".xxxx", "...x.");
        expect_life(&block, "cccdm");
    }
}

TEST(a_neighbour_aware_cache_waits_for_the_right_neighbour) {
    uint8_t masked[4], uncached[4];
    struct block_state block;
    block_begin(&block, BLOCK_NEIGHBOUR, 4, 1, masked, uncached);
    pass(&block, "xxxx", "..xx");
    expect_life(&block, "dmdd"); /* the prompt's last token has a masked neighbour */
    pass(&block, "xxxx", ".x..");
    expect_life(&block, "ddcc"); /* judged before the commit; the last position has no neighbour */
    pass(&block, "xx..", "....");
    ck_assert(block_is_done(&block));
}

/* Where logits are shifted the last row decides on the next block's first position, once nothing is
 * masked. */
TEST(the_last_position_of_a_block_that_waits_runs_until_nothing_is_masked) {
    uint8_t masked[4], uncached[4];
    struct block_state block;
    block_begin(&block, BLOCK_NEIGHBOUR, 4, 1, masked, uncached);
    block.waits = true;
    pass(&block, "xxxx", "..xx");
    pass(&block, "xxxx", ".x..");
    expect_life(&block, "ddcd");
    pass(&block, "xx.x", "....");
    ck_assert(block_is_done(&block));
}

TEST(evicted_positions_stay_masked_and_pending_and_the_frontier_is_what_was_kept) {
    uint8_t masked[6], uncached[6], chosen[6] = {0, 1, 0, 0, 0, 0}, pending[6];
    const uint8_t keep[6] = {1, 1, 0, 1, 0, 0};
    struct block_state block;
    block_begin(&block, BLOCK_NEIGHBOUR, 6, 0, masked, uncached);
    ck_assert_int_eq(block.frontier, -1);
    block_pass(&block, keep, chosen);
    expect_life(&block, "mdmmmm");
    ck_assert_int_eq(block.frontier, 3);
    ck_assert_uint_eq(block_pending(&block, pending), 6);
    const uint8_t less[6] = {1, 1, 0, 0, 0, 0};
    chosen[0] = 1;
    chosen[1] = 0;
    block_pass(&block, less, chosen);
    expect_life(&block, "ddmmmm");
    ck_assert_int_eq(block.frontier, 3);
}

SUITE("decode")
