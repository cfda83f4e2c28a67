/* Figures: specifications, threads, calibration, and how near the paper's numbers are. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "experiments/figure.h"
#include "experiments/fit.h"
#include "tests/suite.h"

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
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        every_constant_is_what_its_fit_says,
        results_do_not_depend_on_the_number_of_threads,
        printed_speed_ups_are_reproduced_within_15_percent_on_80_percent_of_rows,
        autoregressive_models_fill_memory_with_cache_and_diffusion_models_with_activations,
        the_peak_is_of_the_ffn_where_few_tokens_are_masked_and_of_the_logits_where_many_are,
        a_bad_specification_is_refused_with_its_line,
    };
    return SUITE_RUN("figures", tests);
}
