/* Figures: specifications, threads, calibration, and how near the paper's numbers are. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "experiments/study/canvases.h"
#include "experiments/study/figure.h"
#include "experiments/study/fit.h"
#include "tests/support/suite.h"

static const char *const names[] = {
    "dllm-serve-fig2",  "dllm-serve-fig3",  "dllm-serve-fig4", "dllm-serve-fig5",
    "dllm-serve-fig7a", "dllm-serve-fig7b", "dllm-serve-fig8", "dllm-serve-table4",
};
enum { N_NAMES = sizeof names / sizeof names[0] };

static void load(const char *name, struct grid *grid) {
    char path[256];
    struct err err = {0};
    snprintf(path, sizeof path, "experiments/figures/%s.ini", name);
    ck_assert_msg(grid_load(path, name, grid, &err) == 0, "%s", err.text);
}

START_TEST(every_constant_is_what_its_fit_says) {
    struct config calibrated;
    struct err err = {0};
    struct fit fits[16];
    size_t n;
    ck_assert_int_eq(config_read("experiments/calibrated.ini", &calibrated, &err), 0);
    ck_assert_msg(fit_all(&calibrated, fits, 16, &n, &err) == 0, "%s", err.text);
    ck_assert_uint_ge(n, 2);
    for (size_t i = 0; i < n; i++) {
        if (fits[i].measured != NULL) {
            ck_assert_msg(access(fits[i].measured, F_OK) == 0, "%s", fits[i].measured);
            continue;
        }
        ck_assert_double_eq_tol(fits[i].stored / fits[i].fitted, 1, 0.002);
        ck_assert_double_eq_tol(fits[i].stored_result / fits[i].target, 1, 0.002);
    }
    config_fini(&calibrated);
}
END_TEST

START_TEST(results_do_not_depend_on_the_number_of_threads) {
    struct grid grid;
    struct grid_results one, two;
    struct err err = {0};
    load("dllm-serve-fig8", &grid);
    grid.requests = 60;
    ck_assert_int_eq(grid_run(&grid, 1, NULL, NULL, &one, &err), 0);
    ck_assert_int_eq(grid_run(&grid, 2, NULL, NULL, &two, &err), 0);
    ck_assert_int_eq(memcmp(one.points, two.points, grid_n_points(&grid) * sizeof *one.points), 0);
    grid_results_fini(&one);
    grid_results_fini(&two);
}
END_TEST

START_TEST(seeds_give_means_and_intervals_that_one_seed_lacks) {
    struct grid grid;
    struct grid_results one, many;
    struct err err = {0};
    load("dllm-serve-fig8", &grid);
    grid.requests = 40;
    ck_assert_int_eq(grid_run(&grid, 2, NULL, NULL, &one, &err), 0);
    ck_assert(isnan(figure_spread(&grid, &one, METRIC_LATENCY, 0, 0, 0).low));
    double first = figure_value(&grid, &one, METRIC_LATENCY, 0, 0, 0);
    size_t n_points = grid_n_points(&grid);
    grid.n_seeds = 3;
    ck_assert_uint_eq(grid_n_points(&grid), 3 * n_points);
    ck_assert_int_eq(grid_run(&grid, 2, NULL, NULL, &many, &err), 0);
    const struct point *runs = grid_seeds(&grid, &many, 0, 0, 0);
    double mean = (runs[0].avg_latency + runs[1].avg_latency + runs[2].avg_latency) / 3;
    ck_assert(runs[0].avg_latency == first && runs[1].avg_latency != first);
    struct spread spread = figure_spread(&grid, &many, METRIC_LATENCY, 0, 0, 0);
    ck_assert_double_eq_tol(spread.mean, mean, 1e-9 * mean);
    ck_assert_double_eq_tol(spread.mean - spread.low, spread.high - spread.mean, 1e-9 * mean);
    ck_assert(spread.low < mean);
    grid_results_fini(&one);
    grid_results_fini(&many);
}
END_TEST

/* Throughput over the requests that were not too long is no merit. */
START_TEST(a_baseline_that_rejected_requests_is_not_the_best) {
    struct grid grid = {.n_seeds = 1, .n_x = 1, .systems.n = 4, .workloads.n = 1};
    struct point points[4] = {{.throughput = 10},
                              {.throughput = 30, .codes = 1U << WARNING_REJECTED},
                              {.throughput = 20},
                              {.throughput = 99}};
    struct grid_results results = {.points = points, .runs = points};
    ck_assert_uint_eq(figure_best_baseline(&grid, &results, 0, 0), 2);
    points[0].codes = points[2].codes = points[1].codes;
    ck_assert_uint_eq(figure_best_baseline(&grid, &results, 0, 0), 1);
}
END_TEST

/* The aim: dLLM-Serve's printed speed-ups over Fast-dLLM and Sparse-dLLM, as published, within 15 %
 * on at least 80 % of the rows that are no calibration points. */
START_TEST(printed_speed_ups_are_reproduced_within_15_percent_on_80_percent_of_rows) {
    struct paper paper;
    struct config calibrated;
    struct err err = {0};
    size_t n_rows = 0, n_within = 0;
    ck_assert_int_eq(paper_load("experiments/paper/dllm_serve.csv", &paper, &err), 0);
    ck_assert_int_eq(config_read("experiments/calibrated.ini", &calibrated, &err), 0);
    for (int i = 0; i < N_NAMES; i++) {
        struct grid grid;
        struct grid_results results;
        struct paper_result rows[128];
        load(names[i], &grid);
        ck_assert_msg(grid_run(&grid, 2, NULL, NULL, &results, &err) == 0, "%s", err.text);
        size_t n = figure_compare(&grid, &results, &paper, &calibrated, rows, 128);
        ck_assert_uint_gt(n, 0);
        for (size_t j = 0; j < n; j++) {
            ck_assert(isfinite(rows[j].ours)); /* every printed row has a number of ours */
            const char *system = rows[j].row->system;
            bool of_serve = strcmp(system, "dLLM-Serve") == 0 || system[0] == '+';
            if (of_serve && strncmp(rows[j].row->quantity, "speedup", 7) == 0) {
                n_rows++;
                n_within += paper_judge(&rows[j]) == PAPER_WITHIN;
            }
        }
        grid_results_fini(&results);
    }
    ck_assert_uint_ge(n_rows, 20);
    ck_assert_double_ge((double)n_within / (double)n_rows, 0.8);
    config_fini(&calibrated);
    paper_fini(&paper);
}
END_TEST

/* Every printed row of dInfer's two tables has a number of ours; of the distilled model one is what
 * a process was calibrated to. */
START_TEST(dinfers_tables_are_whole_and_what_is_calibrated_is_of_gsm8k) {
    static const struct {
        const char *name;
        size_t n_rows, n_calibrated;
    } figures[] = {{"dinfer-tps", 37, 2}, {"dinfer-anchors", 30, 0}, {"dinfer-table2", 18, 1}};
    struct paper paper;
    struct config calibrated;
    struct err err = {0};
    ck_assert_int_eq(paper_load("experiments/paper/dinfer_steps.csv", &paper, &err), 0);
    ck_assert_int_eq(config_read("experiments/calibrated.ini", &calibrated, &err), 0);
    for (int i = 0; i < 3; i++) {
        struct grid grid;
        struct grid_results results;
        struct paper_result rows[64];
        load(figures[i].name, &grid);
        grid.requests = 1;
        ck_assert_msg(grid_run(&grid, 2, NULL, NULL, &results, &err) == 0, "%s", err.text);
        size_t n = figure_compare(&grid, &results, &paper, &calibrated, rows, 64), n_calibrated = 0;
        for (size_t j = 0; j < n; j++) {
            ck_assert(isfinite(rows[j].ours));
            n_calibrated += rows[j].role == PAPER_CALIBRATION;
            ck_assert(rows[j].role != PAPER_CALIBRATION ||
                      (strcmp(rows[j].row->dataset, "GSM8K") == 0 &&
                       strcmp(rows[j].row->quantity, i == 2 ? "tpf" : "throughput") == 0));
        }
        ck_assert_uint_eq(n, figures[i].n_rows);
        ck_assert_uint_eq(n_calibrated, figures[i].n_calibrated);
        grid_results_fini(&results);
    }
    config_fini(&calibrated);
    paper_fini(&paper);
}
END_TEST

static void expect_refusal(const char *text, const char *sentence) {
    char path[] = "/tmp/unmask-figure-XXXXXX";
    struct grid grid;
    struct err err = {0};
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    ck_assert_int_eq(grid_load(path, "x", &grid, &err), ERR_USAGE);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "%s", err.text);
    remove(path);
}

/* The first or the last number under a series of a panel in a figure's CSV. */
static double value_of(const char *csv, const char *panel, const char *series, bool first) {
    char line[256], head[160];
    double value = NAN;
    FILE *file = fopen(csv, "r");
    ck_assert_ptr_nonnull(file);
    snprintf(head, sizeof head, "%s,%s,", panel, series);
    while (fgets(line, sizeof line, file) != NULL) {
        double x, y;
        if (strncmp(line, head, strlen(head)) == 0 && (isnan(value) || !first)) {
            ck_assert_int_eq(sscanf(line + strlen(head), "%lf,%lf", &x, &y), 2);
            value = y;
        }
    }
    fclose(file);
    return value;
}

static const char *draw(const char *name, const char *folder) {
    static char stem[96], csv[128];
    struct grid grid;
    struct grid_results results = {0};
    struct paper paper;
    struct err err = {0};
    load(name, &grid);
    ck_assert_int_eq(paper_load("experiments/paper/mosaic.csv", &paper, &err), 0);
    ck_assert_uint_eq(grid_n_points(&grid), 0);
    ck_assert_int_eq(grid_run(&grid, 1, NULL, NULL, &results, &err), 0);
    snprintf(stem, sizeof stem, "%s/figure", folder);
    ck_assert_msg(figure_draw(&grid, &results, &paper, stem, &err) == 0, "%s", err.text);
    grid_results_fini(&results);
    paper_fini(&paper);
    snprintf(csv, sizeof csv, "%s.csv", stem);
    return csv;
}

static void remove_drawn(const char *folder) {
    static const char *const suffixes[] = {"svg", "png", "csv"};
    for (size_t i = 0; i < 3; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/figure.%s", folder, suffixes[i]);
        ck_assert_int_eq(remove(path), 0);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

/* Mosaic's first observation: the bottleneck shifts from the KV cache to activations. */
START_TEST(autoregressive_models_fill_memory_with_cache_and_diffusion_models_with_activations) {
    char folder[] = "/tmp/unmask-figure-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    const char *csv = draw("mosaic-fig2", folder), *dllm = "LLaDA-8B Base/Instruct/1.5";
    ck_assert_double_eq(value_of(csv, "Llama-3.1-8B", "KV cache", false), 16);
    ck_assert_double_lt(value_of(csv, "Llama-3.1-8B", "activations", false), 0.01);
    ck_assert_double_eq(value_of(csv, dllm, "KV cache", false), 0);
    /* The logits alone: 131072 rows of 126464 in bf16. */
    ck_assert_double_ge(value_of(csv, dllm, "activations", false), 126464.0 * 131072 * 2 / 0x1p30);
    ck_assert_double_gt(value_of(csv, dllm, "weights", true), 14.9);
    remove_drawn(folder);
}
END_TEST

/* Mosaic's third: the peak toggles between logits and FFN. */
START_TEST(the_peak_is_of_the_ffn_where_few_tokens_are_masked_and_of_the_logits_where_many_are) {
    static const char *const models[] = {"LLaDA-8B Base/Instruct/1.5", "Dream-v0 7B Base/Instruct"};
    char folder[] = "/tmp/unmask-figure-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    const char *csv = draw("mosaic-fig3", folder);
    for (int i = 0; i < 2; i++) {
        double ffn = value_of(csv, models[i], "FFN", true);
        ck_assert_double_eq(value_of(csv, models[i], "FFN", false), ffn);
        ck_assert_double_gt(ffn, value_of(csv, models[i], "attention", true));
        ck_assert_double_gt(ffn, 3 * value_of(csv, models[i], "logits", true));
        ck_assert_double_lt(3 * ffn, value_of(csv, models[i], "logits", false));
    }
    remove_drawn(folder);
}
END_TEST

/* ---- canvases ---- */

static struct lmax asked_directly(const char *name, const char *gpu, const char *model,
                                  double prompt_share, enum share_of share_of,
                                  uint32_t canvas_tokens) {
    struct system_request wanted = {.system = name, .gpu = gpu, .model = model, .roofline = true};
    struct system *system = NULL;
    struct lmax lmax;
    struct err err = {0};
    ck_assert_msg(system_open(&wanted, &system, &err) == 0, "%s", err.text);
    struct lmax_request request = {.system = system,
                                   .prompt_share = prompt_share,
                                   .share_of = share_of,
                                   .canvas_tokens = canvas_tokens};
    ck_assert_msg(lmax_find(&request, &lmax, &err) == 0, "%s", err.text);
    system_close(system);
    return lmax;
}

START_TEST(a_figure_of_canvases_has_what_the_search_finds) {
    struct grid grid;
    struct grid_results results;
    struct err err = {0};
    load("mosaic-fig10-readings", &grid);
    ck_assert_msg(grid_run(&grid, 2, NULL, NULL, &results, &err) == 0, "%s", err.text);
    /* Every eleventh: each system, GPU, model, share and reading is among them. */
    struct canvas_place place = {0};
    size_t n = 0, n_asked = 0;
    for (; place.system < grid.systems.n; n++) {
        place.gpu = n / grid.models.n / grid.share_of.n / grid.n_x % grid.gpus.n;
        place.model = n / grid.share_of.n / grid.n_x % grid.models.n;
        place.share_of = n / grid.n_x % grid.share_of.n;
        place.x = n % grid.n_x;
        if (n % 11 == 0) {
            struct lmax lmax =
                asked_directly(grid.systems.word[place.system], grid.gpus.word[place.gpu],
                               grid.models.word[place.model], grid.x[place.x],
                               place.share_of == 0 ? SHARE_OF_CANVAS : SHARE_OF_OUTPUT, 0);
            ck_assert_double_eq(canvases_at(&grid, &results, place)->tokens,
                                lmax.longest.canvas_tokens);
            n_asked++;
        }
        place.system = (n + 1) / grid.gpus.n / grid.models.n / grid.share_of.n / grid.n_x;
    }
    ck_assert_uint_eq(n, 252);
    ck_assert_uint_eq(n_asked, 23);
    grid_results_fini(&results);
}
END_TEST

START_TEST(canvases_do_not_depend_on_the_number_of_threads) {
    struct grid grid;
    struct grid_results one, two;
    struct err err = {0};
    load("mosaic-fig16", &grid);
    ck_assert_int_eq(grid_run(&grid, 1, NULL, NULL, &one, &err), 0);
    ck_assert_int_eq(grid_run(&grid, 2, NULL, NULL, &two, &err), 0);
    ck_assert_uint_eq(grid_n_points(&grid), 18);
    ck_assert_int_eq(memcmp(one.canvases, two.canvases, 18 * sizeof *one.canvases), 0);
    grid_results_fini(&one);
    grid_results_fini(&two);
}
END_TEST

START_TEST(a_canvas_that_does_not_fit_is_a_gap) {
    struct grid grid;
    struct grid_results results;
    struct err err = {0};
    load("mosaic-fig13", &grid);
    ck_assert_int_eq(grid_run(&grid, 2, NULL, NULL, &results, &err), 0);
    for (size_t x = 0; x < grid.n_x; x++) {
        struct canvas_place on_3090 = {.x = x}; /* native, llada-8b */
        const struct canvas *canvas = canvases_at(&grid, &results, on_3090);
        ck_assert_int_eq(isnan(canvas->inflation) != 0, grid.x[x] > 11456);
        if (!isnan(canvas->inflation)) {
            struct lmax lmax = asked_directly("native", "rtx3090", "llada-8b", 0.5, SHARE_OF_CANVAS,
                                              (uint32_t)grid.x[x]);
            ck_assert_double_eq(canvas->inflation, lmax_inflation(&lmax.longest));
            ck_assert_double_eq(canvas->par, lmax.longest.par);
        }
    }
    grid_results_fini(&results);
}
END_TEST

/* Ours beside the row whose quantity and reading begin so. */
static double ours_beside(const struct paper_result *rows, size_t n, const char *quantity,
                          const char *reading) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].row->quantity, quantity) == 0 &&
            strncmp(rows[i].reading, reading, strlen(reading)) == 0) {
            return rows[i].ours;
        }
    }
    ck_abort_msg("no row %s (%s)", quantity, reading);
}

static double longest(const char *system, const char *gpu, const char *model, double share) {
    return asked_directly(system, gpu, model, share, SHARE_OF_CANVAS, 0).longest.canvas_tokens;
}

/* The means and the extremes that the tables print, from canvases asked for one by one. */
static void check_by_hand(const char *name, const struct grid *grid,
                          const struct paper_result *rows, size_t n) {
    double sum = 0, least = INFINITY;
    if (strcmp(name, "mosaic-fig10") == 0) {
        for (size_t i = 0; i < 18; i++) {
            const char *gpu = grid->gpus.word[i / 9], *model = grid->models.word[i / 3 % 3];
            sum += longest("mosaic-released", gpu, model, grid->x[i % 3]) /
                   longest("mosaic-torch", gpu, model, grid->x[i % 3]);
        }
        ck_assert_double_eq_tol(ours_beside(rows, n, "Lmax_vs_Mosaic-Torch",
                                            "mosaic-released over mosaic-torch, r_p prompt/canvas"),
                                sum / 18, 1e-9);
    }
    if (strcmp(name, "mosaic-fig14") == 0) {
        for (size_t i = 0; i < 6; i++) {
            const char *gpu = grid->gpus.word[i / 3], *model = grid->models.word[i % 3];
            least = fmin(least, longest("mosaic-released", gpu, model, 0.5) /
                                    longest("mosaic-masked-released", gpu, model, 0.5));
        }
        ck_assert_double_eq_tol(
            ours_beside(rows, n, "Lmax_gain_min",
                        "mosaic-released over mosaic-masked-released, r_p prompt/canvas"),
            100 * (least - 1), 1e-9);
    }
}

static bool is_declared(const struct grid *grid, const struct paper_result *rows, size_t n) {
    bool is_found = grid->declared[0] == '\0';
    for (size_t i = 0; i < n; i++) {
        is_found = is_found || (strstr(rows[i].reading, grid->declared) != NULL &&
                                rows[i].role != PAPER_APPENDIX);
    }
    return is_found;
}

/* As EXPERIMENTS.md has them: every reading is a row, and one of them is counted. */
START_TEST(the_readings_of_a_printed_number_are_all_beside_it) {
    static const struct {
        const char *name;
        size_t n_rows, n_counted;
        int n_within; /* -1: it goes by prices, which are tested elsewhere */
    } expected[] = {{"mosaic-fig4", 3, 1, 0},
                    {"mosaic-fig5", 2, 2, 0},
                    {"mosaic-fig9", 2, 2, -1},
                    {"mosaic-fig10", 3, 3, 3},
                    {"mosaic-fig11", 4, 2, -1},
                    {"mosaic-fig12", 4, 1, 1},
                    {"mosaic-fig13", 2, 2, 0},
                    {"mosaic-fig14", 6, 6, 4},
                    {"mosaic-fig15", 10, 6, -1},
                    {"mosaic-fig16", 2, 2, 2},
                    {"mosaic-fig17", 2, 2, 1},
                    {"mosaic-fig18", 2, 2, 2},
                    {"mosaic-fig4-readings", 6, 0, 0},
                    {"mosaic-fig10-readings", 20, 0, 0},
                    {"mosaic-fig12-readings", 10, 0, 0},
                    {"mosaic-fig13-readings", 4, 0, 0},
                    {"mosaic-fig14-readings", 12, 0, 0},
                    {"mosaic-fig14-step", 6, 0, 0},
                    {"mosaic-fig9-measured", 2, 0, 0},
                    {"mosaic-fig11-measured", 2, 0, 0},
                    {"mosaic-fig15-measured", 6, 0, 0}};
    size_t n_counted = 0;
    struct paper paper;
    struct err err = {0};
    struct config calibrated = {0};
    ck_assert_int_eq(paper_load("experiments/paper/mosaic.csv", &paper, &err), 0);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct grid grid;
        struct grid_results results;
        struct paper_result rows[64];
        load(expected[i].name, &grid);
        ck_assert_msg(grid_run(&grid, 2, NULL, NULL, &results, &err) == 0, "%s", err.text);
        size_t n = figure_compare(&grid, &results, &paper, &calibrated, rows, 64);
        struct paper_tally tally = paper_tally(rows, n);
        ck_assert_uint_eq(n, expected[i].n_rows);
        ck_assert_uint_eq(tally.counted, expected[i].n_counted);
        if (expected[i].n_within >= 0) {
            ck_assert_uint_eq(tally.within, (size_t)expected[i].n_within);
        }
        n_counted += tally.counted;
        ck_assert_msg(grid.role == PAPER_APPENDIX || is_declared(&grid, rows, n), "%s", grid.name);
        for (size_t j = 0; j < n; j++) {
            for (size_t k = 0; k < j; k++) { /* no reading twice */
                ck_assert(rows[j].row != rows[k].row ||
                          strcmp(rows[j].reading, rows[k].reading) != 0);
            }
        }
        check_by_hand(expected[i].name, &grid, rows, n);
        grid_results_fini(&results);
    }
    ck_assert_uint_eq(n_counted, 31); /* of 31 printed numbers */
    ck_assert_uint_eq(paper.n_rows, 31);
    paper_fini(&paper);
}
END_TEST

START_TEST(a_bad_specification_is_refused_with_its_line) {
    expect_refusal("[figure]\ntitel = x\n", ":2: unknown key 'titel' in [figure]; did you mean "
                                            "'title'?");
    expect_refusal("[figure]\nkind = bar\n", ":2: 'bar' is not a kind; did you mean 'bars'?");
    expect_refusal("[figure]\ntitle = x\n", "[figure] lacks 'paper'");
    expect_refusal("[figure]\ntitle = t\npaper = p\ngpu = l40s\npaper_gpu = L40S\nsources = s\n"
                   "systems = a, b\nlabels = A\nworkloads = w\nworkload_labels = W\nrates = 1\n"
                   "metrics = throughput\n",
                   "expected one label per system and per workload");
    expect_refusal("[figure]\ntitle = t\npaper = p\ngpu = l40s\npaper_gpu = L40S\nsources = s\n"
                   "systems = a\nlabels = A\nworkloads = w\nworkload_labels = W\nrates = -1\n"
                   "metrics = throughput\n",
                   "'-1' is not a positive number on the axis");
    expect_refusal("[figure]\nkind = masks\ntitle = t\npaper = p\npaper_gpu = -\nsources = s\n"
                   "models = m\n",
                   "[figure] lacks 'values'");
    expect_refusal("[figure]\nkind = masks\ntitle = t\npaper = p\npaper_gpu = -\nsources = s\n"
                   "models = m\nvalues = 0.5, 1.5\n",
                   "'1.5' is not a share of masked tokens");
    static const char lmax[] = "[figure]\ntitle = t\npaper = p\npaper_gpu = -\nsources = s\n"
                               "gpus = g\nmodels = m\nsystems = a, b\nlabels = A, B\n";
    static const struct {
        const char *rest, *sentence;
    } wrong[] = {
        {"kind = lmax\nvalues = 0.5\nshare_of = canvas\n", "[figure] lacks 'paper_systems'"},
        {"kind = lmax\nvalues = 0.5\nshare_of = canvas\npaper_systems = A\n",
         "expected one of paper_systems per system"},
        {"kind = lmax\nvalues = 1\nshare_of = canvas\npaper_systems = A, B\n",
         "'1' is not a share below 1 of the prompt"},
        {"kind = lmax\nvalues = 0.5\nshare_of = prompt\npaper_systems = A, B\n",
         "'prompt' in share_of is neither canvas nor output"},
        {"kind = par\nvalues = 64\nshare_of = canvas\npaper_systems = A, B\n",
         "[figure] lacks 'share'"},
        {"kind = par\nvalues = 64\nshare_of = canvas\npaper_systems = A, B\nshare = 1\n",
         "'1' is not a share below 1 of the prompt"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s", lmax, wrong[i].rest);
        expect_refusal(text, wrong[i].sentence);
    }
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        every_constant_is_what_its_fit_says,
        results_do_not_depend_on_the_number_of_threads,
        seeds_give_means_and_intervals_that_one_seed_lacks,
        a_baseline_that_rejected_requests_is_not_the_best,
        printed_speed_ups_are_reproduced_within_15_percent_on_80_percent_of_rows,
        dinfers_tables_are_whole_and_what_is_calibrated_is_of_gsm8k,
        autoregressive_models_fill_memory_with_cache_and_diffusion_models_with_activations,
        the_peak_is_of_the_ffn_where_few_tokens_are_masked_and_of_the_logits_where_many_are,
        a_figure_of_canvases_has_what_the_search_finds,
        canvases_do_not_depend_on_the_number_of_threads,
        a_canvas_that_does_not_fit_is_a_gap,
        the_readings_of_a_printed_number_are_all_beside_it,
        a_bad_specification_is_refused_with_its_line,
    };
    return SUITE_RUN("figures", tests);
}
