/* The points of a calibration, its samples and their file, fits of a host, refusals. */
#include "tests/support/calibrating.h"

static int64_t machine_ns(void *state) {
    (void)state;
    return monotonic_ns();
}

/* A device that chooses products' kernels by trying: of each range of 256 tokens the first size
 * that it met, which is what it chose on. */
enum { CHOOSING_RANGES = 8, CHOOSING_TOKENS = 256, CHOOSING_PRODUCTS = 16, WIDE_FROM = 4 };
static struct choosing {
    int32_t n_outputs, n_inputs, first[CHOOSING_RANGES];
} choosing[CHOOSING_PRODUCTS];
static const struct device_table *choosing_base;

static int32_t *choosing_first(const struct call_linear *call) {
    int i = 0;
    while (choosing[i].n_outputs != 0 &&
           (choosing[i].n_outputs != call->n_outputs || choosing[i].n_inputs != call->n_inputs)) {
        ck_assert_int_lt(++i, CHOOSING_PRODUCTS);
    }
    const int range = (call->n_tokens - 1) / CHOOSING_TOKENS;
    choosing[i].n_outputs = call->n_outputs;
    choosing[i].n_inputs = call->n_inputs;
    return &choosing[i].first[range < CHOOSING_RANGES ? range : CHOOSING_RANGES - 1];
}

static bool choosing_chosen(const struct device *device, const struct call_linear *call) {
    (void)device;
    return *choosing_first(call) > 0;
}

static int choosing_linear(struct device *device, const struct call_linear *call) {
    int32_t *first = choosing_first(call);
    *first = *first > 0 ? *first : call->n_tokens;
    return choosing_base->linear(device, call);
}

TEST(a_cpu_is_calibrated_in_seconds) {
    struct rig *rig = rig_open_model(&device_cpu, "dllm-serve", "llada-tiny");
    rig->request.now_ns = machine_ns;
    rig->request.is_quick = true;
    rig->request.max_tokens = 128;
    rig->request.minutes = 0.05;
    int64_t start_ns = machine_ns(NULL);
    rig_run(rig);
    double seconds = (double)(machine_ns(NULL) - start_ns) * 1e-9;
    const struct calibration_report *report = &rig->report;
    ck_assert_uint_ge(report->n_rounds, 1);
    ck_assert_uint_gt(report->held_out.n, 0);
    ck_assert(isfinite(report->held_out.median) && report->held_out.median > 0);
    ck_assert_uint_gt(report->mixed.n, 0);
    check_all_covered(rig);
    check_features_covered(rig);
    check_patterns_covered(rig);
    printf("%zu points, %" PRIu32 " rounds in %.1f s; held out %.1f %%, mixed %.1f %%\n",
           report->n_points, report->n_rounds, seconds, 100 * report->held_out.median,
           100 * report->mixed.median);
    rig_close(rig);
}

static struct calibration_grid grid_of(const char *name, int64_t max_tokens, bool is_coarse) {
    struct calibration_grid grid;
    const struct calibration_bounds bounds =
        MAKE(struct calibration_bounds, .max_tokens = max_tokens, .max_logit_rows = max_tokens,
             .max_kv_rows = 16 * max_tokens, .page_rows = 64, .is_coarse = is_coarse);
    struct err err = {0};
    ck_assert_msg(
        calibration_grid_make(&grid, model_named(name), &(struct storage){0}, &bounds, &err) == 0,
        "%s", err.text);
    return grid;
}

static bool has_row(const struct calibration_grid *grid, const char *wanted) {
    char text[POINT_TEXT_CHARS];
    for (size_t i = 0; i < grid->n; i++) {
        if (strcmp(calibration_point_text(&grid->points[i], text), wanted) == 0) {
            return true;
        }
    }
    return false;
}

TEST(a_grid_stands_on_both_sides_of_tile_edges) {
    static const int edges[] = {64, 128, 192, 256, 384, 512, 768, 1024, 2048};
    struct calibration_grid grid = grid_of("llada-8b", 16384, false);
    char wanted[POINT_TEXT_CHARS];
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        for (int beyond = 0; beyond < 2; beyond++) {
            snprintf(wanted, sizeof wanted, "gemm,%d,24576,4096", edges[i] + beyond);
            ck_assert_msg(has_row(&grid, wanted), "%s", wanted);
        }
    }
    ck_assert(has_row(&grid, "gemm,16384,4096,12288"));
    ck_assert(has_row(&grid, "attention_full,4,4096,32,32,128"));
    ck_assert(has_row(&grid, "attention_block,256,32,1024,32,32,128"));
    ck_assert(has_row(&grid, "attention_block,4,2048,1024,32,32,128"));
    ck_assert(has_row(&grid, "pass,rope,12288,16384"));
    ck_assert(has_row(&grid, "head,1024,126464,4096"));
    ck_assert(has_row(&grid, "gate_up,129,24576,4096"));
    calibration_grid_close(&grid);
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

TEST(a_grid_has_each_row_once_and_its_groups_together) {
    static const char *const models[] = {"llada-8b", "dream-7b",     "llada-tiny", "dream-tiny",
                                         "sdar-8b",  "llama-3.1-8b", "llada-moe",  "llada2-mini"};
    char *texts = malloc(8192 * POINT_TEXT_CHARS);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct calibration_grid grid = grid_of(models[m], m < 2 || m > 3 ? 16384 : 256, m == 2);
        ck_assert_uint_le(grid.n, 8192);
        for (size_t i = 0; i < grid.n; i++) {
            calibration_point_text(&grid.points[i], texts + i * POINT_TEXT_CHARS);
            ck_assert(i == 0 || grid.points[i].group - grid.points[i - 1].group <= 1);
        }
        qsort(texts, grid.n, POINT_TEXT_CHARS, by_text);
        for (size_t i = 1; i < grid.n; i++) {
            ck_assert_str_ne(texts + i * POINT_TEXT_CHARS, texts + (i - 1) * POINT_TEXT_CHARS);
        }
        calibration_grid_close(&grid);
    }
    free(texts);
}

/* Blocks attend to contexts of 0.6 to 1.4 times the mean, which stays what it was. */
TEST(requests_of_a_reuse_differ_and_those_of_other_steps_do_not) {
    struct err err = {0};
    struct model model = *model_find("llada-8b", &err);
    for (uint32_t n = 2; n <= 12; n++) {
        const struct step_side reuse = {HOST_REUSE, n, 1024}, refresh = {HOST_REFRESH, n, 1024};
        uint32_t sum = 0, least = UINT32_MAX, most = 0;
        for (uint32_t r = 0; r < n; r++) {
            const struct step_side one = calibration_side_one(&reuse, &model, r);
            ck_assert_uint_eq(one.n_requests, 1);
            sum += one.canvas_tokens - model.block_tokens;
            least = one.canvas_tokens < least ? one.canvas_tokens : least;
            most = one.canvas_tokens > most ? one.canvas_tokens : most;
            ck_assert_uint_eq(calibration_side_one(&refresh, &model, r).canvas_tokens, 1024);
        }
        ck_assert_double_eq_tol((double)sum / n, 992, 1);
        ck_assert_uint_ge(least, 32 + 595);
        ck_assert_uint_le(most, 32 + 1389);
        ck_assert_double_eq_tol(most - least, 992 * 0.8 * (n - 1) / n, 2);
    }
    const struct step_side alone = {HOST_REUSE, 1, 1024}, two = {HOST_REUSE, 2, 1024};
    ck_assert_uint_eq(calibration_side_one(&alone, &model, 0).canvas_tokens, 1024);
    model.max_positions = 1100;
    ck_assert_uint_eq(calibration_side_one(&two, &model, 0).canvas_tokens, 32 + 793);
    ck_assert_uint_eq(calibration_side_one(&two, &model, 1).canvas_tokens, 1100);
    model = *model_find("sdar-8b", &err); /* in whole blocks */
    ck_assert_uint_gt(model.block_tokens, 1);
    for (uint32_t r = 0; r < 8; r++) {
        const struct step_side side = {HOST_REUSE, 8, 512};
        const uint32_t canvas = calibration_side_one(&side, &model, r).canvas_tokens;
        ck_assert_uint_eq(canvas % model.block_tokens, 0);
        ck_assert_uint_ge(canvas, 2 * model.block_tokens);
    }
}

TEST(a_grid_stays_within_its_bounds) {
    struct calibration_grid grid = grid_of("dream-tiny", 300, false);
    for (size_t i = 0; i < grid.n; i++) {
        const struct calibration_point *p = &grid.points[i];
        const int64_t *s = p->sizes;
        bool block = p->op == PROFILE_ATTENTION_BLOCK;
        bool attends = p->op == PROFILE_ATTENTION_FULL || p->op == PROFILE_PATTERN ||
                       p->op == PROFILE_ATTENTION_PATTERN || block;
        int64_t tokens = p->op == PROFILE_PASS ? s[POINT_PASS_ROWS]
                         : attends             ? s[POINT_BATCH] * s[POINT_Q]
                                               : s[0];
        ck_assert(p->op != PROFILE_ATTENTION_PATTERN || s[POINT_KV] <= s[POINT_Q]);
        if (p->op == PROFILE_PASS && (p->pass == PASS_SELECT || p->pass == PASS_PACK)) {
            int64_t candidates = p->pass == PASS_PACK ? 2 * tokens : tokens;
            tokens = candidates + 32 * ceil_div(candidates, SELECT_CANVAS_TOKENS - 32);
        }
        ck_assert_int_ge(tokens, 1);
        ck_assert_int_le(tokens, 300);
        ck_assert(!block || s[POINT_BATCH] * s[POINT_KV] <= 4800);
    }
    calibration_grid_close(&grid);
}

/* dLLM-Cache and SparseD have kernels that no other system runs. */
TEST(a_grid_has_the_kernels_of_features_and_of_patterns) {
    static const char *const rows[] = {"pass,similarity,4096,16384",
                                       "pass,pick,4096,1",
                                       "pass,keep_feature,4096,16384",
                                       "pass,add_feature,4096,256",
                                       "gemm,128,8192,4096", /* queries and keys without values */
                                       "pattern,1,16384,32,32,128",
                                       "pattern,16,1024,32,32,128",
                                       "attention_pattern,4,4096,512,32,32,128",
                                       "attention_pattern,1,128,128,32,32,128"};
    struct calibration_grid all = grid_of("llada-8b", 16384, false);
    struct calibration_grid exact = grid_of("sdar-8b", 16384, false);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_msg(has_row(&all, rows[i]), "%s", rows[i]);
    }
    for (size_t i = 0; i < exact.n; i++) {
        ck_assert(exact.points[i].op < PROFILE_ATTENTION_PATTERN);
        ck_assert(exact.points[i].op != PROFILE_PASS || exact.points[i].pass < PASS_SIMILARITY);
    }
    calibration_grid_close(&all);
    calibration_grid_close(&exact);
}

TEST(a_grid_of_exact_keys_and_values_has_pages_and_nothing_that_selects) {
    struct calibration_grid grid = grid_of("sdar-8b", 16384, false);
    ck_assert(has_row(&grid, "attention_causal,1,8192,8192,32,8,128"));
    ck_assert(has_row(&grid, "attention_causal,16,512,1536,32,8,128"));
    ck_assert(has_row(&grid, "attention_block,64,4,1024,32,8,128"));
    ck_assert(has_row(&grid, "attention_block,128,1,512,32,8,128"));
    ck_assert(has_row(&grid, "pass,rope,6144,16384"));
    for (size_t i = 0; i < grid.n; i++) {
        const struct calibration_point *p = &grid.points[i];
        ck_assert_int_ne(p->op, PROFILE_ATTENTION_FULL);
        ck_assert(p->op != PROFILE_PASS || (p->pass != PASS_KEEP && p->pass != PASS_SELECT));
        if (p->op == PROFILE_ATTENTION_CAUSAL) {
            ck_assert_int_le(p->sizes[POINT_BATCH] * p->sizes[POINT_Q], 16384);
            ck_assert_int_le(p->sizes[POINT_BATCH] * (p->sizes[POINT_KV] + 64), 16 * 16384);
        }
    }
    calibration_grid_close(&grid);
    grid = grid_of("llama-3.1-8b", 16384, false);
    ck_assert(has_row(&grid, "attention_block,256,1,512,32,8,128"));
    ck_assert(!has_row(&grid, "attention_block,256,4,512,32,8,128"));
    calibration_grid_close(&grid);
}

/* What is done to a step's input once is priced by its like in the layers. */
TEST(a_grid_of_local_and_global_layers_has_the_heads_of_both_and_what_noise_is_drawn_by) {
    struct calibration_grid grid = grid_of("diffusiongemma", 16384, true);
    ck_assert(has_row(&grid, "attention_block,1,256,1024,16,8,256"));
    ck_assert(has_row(&grid, "attention_block,4,256,4096,16,2,512"));
    ck_assert(has_row(&grid, "attention_causal,1,512,1536,16,2,512"));
    ck_assert(has_row(&grid, "pass,draw,262144,256"));
    ck_assert(has_row(&grid, "pass,softmax,262144,256"));
    ck_assert(has_row(&grid, "gemm,256,2816,262144"));
    ck_assert(has_row(&grid, "moe,256,2816,704,8,128"));
    for (size_t i = 0; i < grid.n; i++) {
        const struct calibration_point *p = &grid.points[i];
        const bool is_local = p->head_dim == 256;
        ck_assert(!is_local || p->sizes[POINT_KV] <= 1024);
        ck_assert(p->op != PROFILE_HEAD);
    }
    calibration_grid_close(&grid);
}

TEST(a_grid_of_a_mixture_has_its_router_its_experts_and_what_they_share) {
    struct calibration_grid grid = grid_of("llada-moe", 16384, false);
    ck_assert(has_row(&grid, "moe,64,2048,1024,8,64"));
    ck_assert(has_row(&grid, "moe,16384,2048,1024,8,64"));
    ck_assert(has_row(&grid, "gemm,64,64,2048"));
    ck_assert(has_row(&grid, "pass,moe_choose,64,4096"));
    ck_assert(has_row(&grid, "pass,moe_combine,2048,4096"));
    for (size_t i = 0; i < grid.n; i++) {
        const struct calibration_point *p = &grid.points[i];
        ck_assert(p->op != PROFILE_GATE_UP && (p->op != PROFILE_PASS || p->pass != PASS_SWIGLU));
        ck_assert(p->op != PROFILE_MOE || p->n_ops == 2);
    }
    calibration_grid_close(&grid);
    grid = grid_of("llada2-mini", 16384, false);
    ck_assert(has_row(&grid, "moe,32,2048,512,8,256"));
    ck_assert(has_row(&grid, "gate_up,32,10240,2048")); /* the dense layer's, and what is shared */
    ck_assert(has_row(&grid, "gate_up,32,1024,2048"));
    ck_assert(has_row(&grid, "gemm,32,2048,512"));
    ck_assert(has_row(&grid, "pass,swiglu,5120,32"));
    ck_assert(has_row(&grid, "pass,swiglu,512,32"));
    calibration_grid_close(&grid);
}

static int samples_of(struct calibration_samples *samples, const struct calibration_grid *grid,
                      const char *text, struct err *err) {
    return samples_open(samples, grid, scratch_write("samples.partial", text), "a test", err);
}

#define SAMPLES_HEAD "# a calibration in progress: a test\n"

TEST(a_point_is_the_median_of_its_rounds) {
    struct calibration_grid grid = grid_of("llada-tiny", 256, true);
    struct calibration_samples samples;
    struct err err = {0};
    double median, spread;
    ck_assert_msg(samples_of(&samples, &grid,
                             SAMPLES_HEAD "0 gemm,32,768,256,10\n1 gemm,32,768,256,30\n"
                                          "2 gemm,32,768,256,11\n4 gemm,32,768,256,12\n"
                                          "3 gemm,64,768,256,7\n",
                             &err) == 0,
                  "%s", err.text);
    ck_assert_uint_eq(samples.n_found, 5);
    for (size_t i = 0; i < grid.n; i++) {
        uint32_t n = samples_summarise(&samples, i, &median, &spread);
        const struct calibration_point *p = &grid.points[i];
        bool is_product = p->op == PROFILE_GEMM && p->sizes[1] == 768 && p->sizes[2] == 256;
        if (is_product && p->sizes[0] == 32) {
            ck_assert_uint_eq(n, 4);
            ck_assert_double_eq_tol(median, 11.5, 1e-9);
            ck_assert_double_eq_tol(spread, 20 / 11.5, 1e-9);
        } else if (is_product && p->sizes[0] == 64) {
            ck_assert_uint_eq(n, 1);
            ck_assert_double_eq(median, 7);
            ck_assert_double_eq(spread, 0);
        } else {
            ck_assert_uint_eq(n, 0);
        }
    }
    samples_close(&samples);
    calibration_grid_close(&grid);
}

/* What is not ours stays as it is, whatever its first line looks like, and whatever leads to it. */
TEST(samples_harm_no_file_of_others) {
    static const char *const foreign[] = {"a thesis without a line's end", "# notes #1\n", "\n",
                                          "# a calibration in progress: another\n",
                                          "# a calibration in progress: a test, but not"};
    struct calibration_grid grid = grid_of("llada-tiny", 256, true);
    struct calibration_samples samples;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        struct err err = {0};
        ck_assert_msg(samples_of(&samples, &grid, foreign[i], &err) == ERR_USAGE, "%zu", i);
        char *text = scratch_read(scratch_path("samples.partial"));
        ck_assert_str_eq(text, foreign[i]);
        free(text);
    }
    struct err err = {0};
    char *link = strdup(scratch_path("link.partial")), *fifo = strdup(scratch_path("f.partial"));
    char *target = strdup(scratch_write("empty", "")), *nowhere = strdup(scratch_path("nowhere"));
    ck_assert_int_eq(symlink(target, link), 0);
    ck_assert_int_eq(samples_open(&samples, &grid, link, "a test", &err), ERR_WORLD);
    ck_assert_int_eq(unlink(link) + symlink(nowhere, link) + mkfifo(fifo, 0600), 0);
    err = (struct err){0};
    ck_assert_int_eq(samples_open(&samples, &grid, link, "a test", &err), ERR_WORLD);
    err = (struct err){0};
    ck_assert_int_eq(samples_open(&samples, &grid, fifo, "a test", &err), ERR_WORLD);
    char *text = scratch_read(target);
    ck_assert_str_eq(text, "");
    ck_assert_int_ne(access(nowhere, F_OK), 0);
    free(text);
    free(link);
    free(fifo);
    free(target);
    free(nowhere);
    calibration_grid_close(&grid);
}

TEST(a_torn_last_line_is_cut_off) {
    struct calibration_grid grid = grid_of("llada-tiny", 256, true);
    struct calibration_samples samples;
    struct err err = {0};
    const char *path = scratch_path("samples.partial");
    ck_assert_msg(
        samples_of(&samples, &grid, SAMPLES_HEAD "0 gemm,32,768,256,10\n0 gemm,64,768", &err) == 0,
        "%s", err.text);
    ck_assert_uint_eq(samples.n_found, 1);
    *samples_at(&samples, 0, 0) = 5;
    ck_assert_int_eq(samples_append(&samples, 0, 0, 1, &err), 0);
    samples_close(&samples);
    char *text = scratch_read(path), first[POINT_TEXT_CHARS], expected[512];
    int n = snprintf(expected, sizeof expected, SAMPLES_HEAD "0 gemm,32,768,256,10\n0 %s,5 #",
                     calibration_point_text(&grid.points[0], first));
    ck_assert_int_eq(strncmp(text, expected, (size_t)n), 0);
    ck_assert_uint_eq(strlen(text),
                      (size_t)n + 9); /* eight digits of a check, and the line's end */
    /* What has another's check is cut off with all behind it. */
    char *digit = strstr(text, ",5 #") + 1;
    *digit = '6';
    ck_assert_int_eq(samples_of(&samples, &grid, text, &err), 0);
    ck_assert_uint_eq(samples.n_found, 1);
    samples_close(&samples);
    *digit = '5';
    ck_assert_int_eq(samples_of(&samples, &grid, text, &err), 0);
    ck_assert_uint_eq(samples.n_found, 2);
    /* Two at once would time each other. */
    struct calibration_samples second;
    ck_assert_int_eq(samples_open(&second, &grid, path, "a test", &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "another calibration") != NULL, "%s", err.text);
    samples_close(&samples);
    free(text);
    calibration_grid_close(&grid);
}

TEST(what_is_no_file_of_this_calibration_is_refused) {
    static const struct {
        const char *text, *sentence;
        int status;
    } cases[] = {
        {"# a calibration in progress: another\n", "holds the samples of something else",
         ERR_USAGE},
        {"gemm,1,2,3,4\n", "holds the samples of something else", ERR_USAGE},
        {SAMPLES_HEAD "0 gemm,33,768,256,10\n", ":2: this is no sample", ERR_WORLD},
        {SAMPLES_HEAD "9 gemm,32,768,256,10\n", ":2: this is no sample", ERR_WORLD},
        {SAMPLES_HEAD "0 gemm,32,768,256,-1\n", ":2: this is no sample", ERR_WORLD},
        {SAMPLES_HEAD "nonsense\n", ":2: this is no sample", ERR_WORLD},
    };
    struct calibration_grid grid = grid_of("llada-tiny", 256, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct calibration_samples samples;
        struct err err = {0};
        ck_assert_int_eq(samples_of(&samples, &grid, cases[i].text, &err), cases[i].status);
        ck_assert_msg(strstr(err.text, cases[i].sentence) != NULL, "%s", err.text);
    }
    calibration_grid_close(&grid);
}

static struct host_fit fit_of(const struct host_sample *samples, size_t n) {
    struct host_fit fit;
    struct err err = {0};
    ck_assert_msg(host_fit(samples, n, &fit, &err) == 0, "%s", err.text);
    return fit;
}

/* Steps of n requests that take the device 1 ms each. */
static struct host_sample sample_of(double n, double step_ns, double request_ns) {
    return (struct host_sample){n, 1e6 * n + step_ns + request_ns * n, 1e6 * n};
}

TEST(exact_times_are_fitted_exactly) {
    struct host_sample samples[6];
    for (size_t n = 2; n <= 6; n++) {
        for (size_t i = 0; i < n; i++) {
            samples[i] = sample_of((double)(1 << i), 50e3, 3e3);
        }
        struct host_fit fit = fit_of(samples, n);
        ck_assert(fit.given);
        ck_assert_double_eq_tol(fit.step_ns, 50e3, 1);
        ck_assert_double_eq_tol(fit.request_ns, 3e3, 1);
    }
    ck_assert(!fit_of(samples, 0).given);
}

TEST(one_disturbed_step_does_not_move_the_fit) {
    struct host_sample samples[8];
    for (size_t i = 0; i < 8; i++) {
        /* Ten nanoseconds to and fro, as no measurement is without. */
        samples[i] = sample_of((double)(1 + i), 50e3 + (i % 2 ? 10 : -10), 3e3);
    }
    samples[4].wall_ns += 2e6;
    struct host_fit fit = fit_of(samples, 8);
    ck_assert_double_eq_tol(fit.step_ns, 50e3, 500);
    ck_assert_double_eq_tol(fit.request_ns, 3e3, 100);
}

TEST(no_term_is_below_zero) {
    struct host_sample samples[4];
    for (size_t i = 0; i < 4; i++) {
        samples[i] = sample_of((double)(1 + i), -5e3, 3e3);
    }
    struct host_fit fit = fit_of(samples, 4);
    ck_assert_double_eq(fit.step_ns, 0);
    ck_assert(fit.request_ns > 0 && fit.request_ns < 3e3);
    for (size_t i = 0; i < 4; i++) {
        samples[i] = sample_of((double)(1 + i), 50e3, -3e3);
    }
    fit = fit_of(samples, 4);
    ck_assert_double_eq(fit.request_ns, 0);
    ck_assert(fit.step_ns > 0 && fit.step_ns < 50e3);
    for (size_t i = 0; i < 4; i++) {
        samples[i] = sample_of((double)(1 + i), -5e3, -3e3);
    }
    fit = fit_of(samples, 4);
    ck_assert_double_eq(fit.step_ns, 0);
    ck_assert_double_eq(fit.request_ns, 0);
}

TEST(equal_steps_tell_nothing_of_requests) {
    const struct host_sample samples[] = {sample_of(2, 40e3, 0), sample_of(2, 60e3, 0)};
    struct host_fit fit = fit_of(samples, 2);
    ck_assert_double_eq_tol(fit.step_ns, 50e3, 500);
    ck_assert_double_eq(fit.request_ns, 0);
}

TEST(a_command_that_makes_no_sense_is_refused_in_one_sentence) {
    char sentence[1024];
    const char *other = scratch_write("other.csv", "not a profile\n");
    const char *profile = scratch_write("profile.csv", "# Operator times of one GPU\n");
    REFUSES(2, "calibrate: --backend is missing", "calibrate", "--out", "x.csv");
    REFUSES(2, "calibrate: --out is missing", "calibrate", "--backend", "cpu");
    REFUSES(2, "unknown device 'gpu': there are cpu and cuda", "calibrate", "--backend", "gpu",
            "--out", scratch_path("x.csv"));
    snprintf(sentence, sizeof sentence, "'%s' exists and is not a profile: it is not overwritten",
             other);
    REFUSES(2, sentence, "calibrate", "--backend", "cpu", "--replace", "--out", other);
    snprintf(sentence, sizeof sentence, "%s holds a profile already; --replace measures it anew",
             profile);
    REFUSES(2, sentence, "calibrate", "--backend", "cpu", "--out", profile);
    const char *log = scratch_write("foreign.log.csv", "dear diary\n");
    snprintf(sentence, sizeof sentence,
             "'%s' exists and is not the log of a calibration: it is not overwritten", log);
    REFUSES(2, sentence, "calibrate", "--backend", "cpu", "--out", scratch_path("foreign.csv"));
    struct engine_device cpu;
    struct err err = {0};
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    snprintf(sentence, sizeof sentence,
             "the device is '%s', not a h200: leave --gpu out, or describe the card in a file",
             cpu.facts.name);
    engine_device_close(&cpu);
    REFUSES(2, sentence, "calibrate", "--backend", "cpu", "--gpu", "h200", "--out",
            scratch_path("x.csv"));
    REFUSES(2, "a calibration of llada-tiny takes 64 to 134217727 tokens, not 63", "calibrate",
            "--backend", "cpu", "--model", "llada-tiny", "--max-tokens", "63", "--out",
            scratch_path("x.csv"));
}

/* Profiles p and p.csv have one log. */
TEST(a_log_is_one_calibrations_and_no_link) {
    struct calibration_log *log, *second;
    struct err err = {0};
    char *name = strdup(scratch_path("p")), *csv = strdup(scratch_path("p.csv"));
    char *link = strdup(scratch_path("q.log.csv"));
    ck_assert_int_eq(calibration_log_open(&log, name, false, 0, &err), 0);
    ck_assert_int_eq(calibration_log_open(&second, csv, false, 0, &err), ERR_WORLD);
    calibration_log_close(log);
    char *text = scratch_read(scratch_path("p.log.csv"));
    ck_assert_int_eq(symlink(scratch_path("p.log.csv"), link), 0);
    err = (struct err){0};
    ck_assert_int_eq(calibration_log_open(&log, scratch_path("q.csv"), false, 0, &err), ERR_WORLD);
    char *after = scratch_read(scratch_path("p.log.csv"));
    ck_assert_str_eq(text, after);
    /* And it goes on, or begins anew. */
    err = (struct err){0};
    for (int continues = 1; continues >= 0; continues--) {
        scratch_write("p.log.csv", CALIBRATION_LOG_HEAD "x\n1\n");
        ck_assert_int_eq(calibration_log_open(&log, csv, continues == 1, 0, &err), 0);
        calibration_log_close(log);
        free(after);
        after = scratch_read(scratch_path("p.log.csv"));
        ck_assert_str_eq(after, continues ? CALIBRATION_LOG_HEAD "x\n1\n" : text);
    }
    free(text);
    free(after);
    free(name);
    free(csv);
    free(link);
}

/* And calibrated, on a CPU, for exact keys and values. */
TEST(a_system_that_serves_the_model_is_found) {
    static const char *const models[][2] = {{"sdar-tiny", "of 64 tokens for sdar\n"},
                                            {"qwen2.5-tiny", "of 16 tokens for vllm-ar\n"}};
    for (size_t i = 0; i < 2; i++) {
        char *text =
            PRINTS("calibrate", "--backend", "cpu", "--model", models[i][0], "--quick", "--minutes",
                   "0.001", "--max-tokens", "64", "--shared", "--out", scratch_path(models[i][0]));
        ck_assert_msg(strstr(text, models[i][1]) != NULL, "%s", text);
        free(text);
    }
}

/* Of the products over at least so many tokens: calls, and the fewest experts that one hit. */
enum { MANY_TOKENS = 64 };
static struct {
    uint32_t n_calls;
    int32_t least_hit;
} routed;

/* What is filled in one large call, workspace and pool, is zeros: they send all tokens to the same
 * experts. */
static int random_or_zeros(struct device *device, const struct call_random *call) {
    enum { A_WORKSPACE = 1 << 20 };
    struct call_random zeros = *call;
    zeros.spread = call->n < A_WORKSPACE ? call->spread : 0;
    return device_cpu.random(device, &zeros);
}

static int count_hits(struct device *device, const struct call_moe_gate_up *call) {
    int32_t hit = 0;
    for (int32_t e = 0; e < call->n_experts; e++) {
        hit += call->start[e + 1] > call->start[e];
    }
    if (call->n_tokens >= MANY_TOKENS) {
        routed.least_hit = routed.n_calls == 0 || hit < routed.least_hit ? hit : routed.least_hit;
        routed.n_calls++;
    }
    return device_cpu.moe_gate_up(device, call);
}

TEST(the_tokens_of_a_mixtures_point_go_to_many_experts) {
    struct device_table table = device_cpu;
    table.random = random_or_zeros;
    table.moe_gate_up = count_hits;
    struct rig *rig = rig_open_model(&table, "sdar", "llada2-tiny");
    struct calibration_grid grid;
    struct measure *measure = NULL;
    struct err err = {0};
    const struct calibration_bounds bounds =
        MAKE(struct calibration_bounds, .max_tokens = 256, .max_logit_rows = 256,
             .max_kv_rows = 4096, .page_rows = 64, .is_coarse = true);
    ck_assert_int_eq(calibration_grid_make(&grid, rig->system->model,
                                           &(struct storage){NUMBER_F32, NUMBER_F32, NUMBER_F32,
                                                             NUMBER_F32, NUMBER_F32},
                                           &bounds, &err),
                     0);
    routed.n_calls = 0;
    ck_assert_msg(measure_open(&rig->device, &rig->weights, &bounds, &grid, &measure, &err) == 0,
                  "%s", err.text);
    for (size_t i = 0; i < grid.n; i++) {
        char text[POINT_TEXT_CHARS];
        double us;
        if (strncmp(calibration_point_text(&grid.points[i], text), "moe,", 4) == 0) {
            ck_assert_msg(measure_point(measure, &grid.points[i], 1, &us, &err) == 0, "%s",
                          err.text);
        }
    }
    measure_close(measure);
    calibration_grid_close(&grid);
    ck_assert_uint_gt(routed.n_calls, 4);
    ck_assert_int_ge(routed.least_hit, 24); /* of 32; of zeros 4 */
    rig_close(rig);
}

static struct {
    int32_t mask_token;
    uint32_t n_blocks, n_half_masked; /* embeddings of one block that has masks */
} embedded;

static int count_masks(struct device *device, const struct call_embed *call) {
    enum { BLOCK = 32 };
    int32_t n = 0;
    for (int32_t t = 0; t < call->n_tokens; t++) {
        n += call->ids[call->at != NULL ? call->at[t] : t] == embedded.mask_token;
    }
    embedded.n_blocks += call->n_tokens == BLOCK && n > 0;
    embedded.n_half_masked += call->n_tokens == BLOCK && n == BLOCK / 2;
    return device_cpu.embed(device, call);
}

/* The host's clock, so fast that seconds of holding a step pass at once. */
static int64_t hasty_ns(void *state) {
    return 10 * machine_ns(state);
}

static void draws_a_kilowatt(struct device *device, struct device_vitals *out) {
    (void)device;
    *out = (struct device_vitals){.energy_j = (double)hasty_ns(NULL) * 1e-6};
}

/* Also of one that is repeated until its clock has settled, whose runs each decide. */
TEST(half_of_the_block_that_a_step_decides_on_is_masked) {
    struct device_table table = device_cpu;
    table.embed = count_masks;
    table.vitals = draws_a_kilowatt;
    struct rig *rig = rig_open_model(&table, "sdar", "llada2-tiny");
    rig->request.now_ns = hasty_ns;
    rig->request.is_quick = true;
    rig->request.max_tokens = 128;
    rig->request.minutes = 0.01;
    embedded.mask_token = (int32_t)rig->system->model->mask_token;
    embedded.n_blocks = embedded.n_half_masked = 0;
    rig_run(rig);
    ck_assert_uint_gt(embedded.n_blocks, 0);
    ck_assert_uint_eq(embedded.n_half_masked, embedded.n_blocks);
    rig_close(rig);
}

/* A live run chooses on the last size of each range, before its first request: so do the rows. */
TEST(products_are_chosen_on_the_sizes_that_a_live_run_chooses_on) {
    const struct device_table base = fake_table(false);
    struct device_table table = base;
    choosing_base = &base;
    memset(choosing, 0, sizeof choosing);
    table.linear = choosing_linear;
    table.linear_chosen = choosing_chosen;
    struct rig *rig = rig_open(&table);
    rig->request.max_tokens = CHOOSING_RANGES * CHOOSING_TOKENS;
    rig->request.is_quick = true;
    rig_run(rig);
    size_t n = 0;
    for (int i = 0; i < CHOOSING_PRODUCTS && choosing[i].n_outputs != 0; i++) {
        bool is_of_a_step = choosing[i].first[WIDE_FROM] > 0;
        for (int32_t range = WIDE_FROM; is_of_a_step && range < CHOOSING_RANGES; range++) {
            ck_assert_int_eq(choosing[i].first[range], (range + 1) * CHOOSING_TOKENS);
        }
        n += is_of_a_step;
    }
    ck_assert_uint_ge(n, 4); /* projections, the output's, gates and ups, the way down */
    rig_close(rig);
}

/* All that layers multiply but for the router, and attention where cached rows are in fp8; what is
 * wide has rows of the profile's own type. */
TEST(products_and_attention_in_fp8_are_measured_as_such) {
    static const struct {
        enum number_type weights, activations, cache;
        enum profile_type type;
        const char *column;
    } cases[] = {
        {NUMBER_FP8, NUMBER_FP8, NUMBER_BF16, PROFILE_FP8, ",fp8"},
        {NUMBER_FP8, NUMBER_BF16, NUMBER_FP8, PROFILE_FP8_BF16, ",fp8-bf16"},
        {NUMBER_FP8_CHANNEL, NUMBER_FP8_CHANNEL, NUMBER_FP8, PROFILE_FP8_CHANNEL, ",fp8-channel"}};
    const struct model *m = model_named("llada-moe");
    const struct calibration_bounds bounds =
        MAKE(struct calibration_bounds, .max_tokens = 64, .max_logit_rows = 64, .max_kv_rows = 1024,
             .page_rows = 64, .is_coarse = true);
    for (size_t i = 0; i < 3; i++) {
        const struct storage storage = {.weights = (uint8_t)cases[i].weights,
                                        .activations = (uint8_t)cases[i].activations,
                                        .cache = (uint8_t)cases[i].cache};
        struct calibration_grid grid;
        struct err err = {0};
        ck_assert_msg(calibration_grid_make(&grid, m, &storage, &bounds, &err) == 0, "%s",
                      err.text);
        size_t n_typed = 0, n_attend = 0, n_norms = 0;
        for (size_t p = 0; p < grid.n; p++) {
            const struct calibration_point *point = &grid.points[p];
            if (cases[i].activations != NUMBER_BF16 && point->op == PROFILE_PASS &&
                (point->pass == PASS_NORM || point->pass == PASS_NORM_ADD) &&
                point->type == PROFILE_FP8_BF16) {
                n_norms++; /* which quantise */
                continue;
            }
            if (cases[i].cache == NUMBER_FP8 && point->op == PROFILE_ATTENTION_BLOCK) {
                ck_assert_str_eq(calibration_point_type(point), ",fp8-bf16");
                n_attend++;
                continue;
            }
            if (cases[i].cache == NUMBER_FP8 && point->type == PROFILE_FP8_BF16 &&
                point->op != PROFILE_GEMM && point->op != PROFILE_GATE_UP &&
                point->op != PROFILE_MOE) {
                continue; /* attention of other kinds, and what writes cached rows */
            }
            const bool is_narrow = (point->op == PROFILE_GEMM && point->sizes[1] != m->vocab &&
                                    point->sizes[1] != m->experts) ||
                                   point->op == PROFILE_GATE_UP || point->op == PROFILE_MOE;
            ck_assert_int_eq(point->type, is_narrow ? cases[i].type : PROFILE_BF16);
            ck_assert_str_eq(calibration_point_type(point), is_narrow ? cases[i].column : "");
            n_typed += is_narrow;
        }
        ck_assert_int_eq(n_norms > 0, cases[i].activations != NUMBER_BF16);
        ck_assert_uint_gt(n_typed, 10);
        ck_assert(cases[i].cache != NUMBER_FP8 || n_attend > 2);
        calibration_grid_close(&grid);
    }
}

SUITE("calibrate grid")
