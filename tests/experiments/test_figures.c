/* The papers' figures: calibration, and how near the printed numbers are. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "experiments/study/fit.h"
#include "sim/system/lmax.h"
#include "tests/support/scratch.h"
#include "tests/support/study.h"
#include "tests/support/suite.h"

static const char *const names[] = {
    "dllm-serve-fig2",  "dllm-serve-fig3",  "dllm-serve-fig4", "dllm-serve-fig5",
    "dllm-serve-fig7a", "dllm-serve-fig7b", "dllm-serve-fig8", "dllm-serve-table4",
};
enum { N_NAMES = sizeof names / sizeof names[0] };

TEST(every_constant_is_what_its_fit_says) {
    struct config calibrated;
    struct err err = {0};
    struct fit fits[16];
    size_t n;
    ck_assert_int_eq(config_read("experiments/study/calibrated.ini", &calibrated, &err), 0);
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

/* What finishes no request reaches no target. */
TEST(a_constant_that_nothing_can_be_said_of_is_refused) {
    struct config config;
    struct err err = {0};
    struct fit fit;
    size_t n;
    const char *path = scratch_write(
        "unreachable.ini",
        "[none]\nvalue = 1\nfitted_to = x\nkey = host.factor\nsystem = dllm-serve\ngpu = l40s\n"
        "workload = burst\nrate = 1\nrequests = 2\nquantity = ms_per_forward\ntarget = 5\n"
        "set = context_tokens=16\n");
    ck_assert_int_eq(config_read(path, &config, &err), 0);
    ck_assert_int_ne(fit_all(&config, &fit, 1, &n, &err), 0);
    ck_assert_str_eq(err.text, "[none] cannot reach its target of 5: host.factor from 0 to 8 gives "
                               "- to -");
    config_fini(&config);
}

/* Throughput over the requests that were not too long is no merit. */
TEST(a_baseline_that_rejected_requests_is_not_the_best) {
    static const double throughputs[] = {10, 30, 20, 99};
    for (int all = 0; all < 2; all++) {
        char path[256];
        struct err err = {0};
        struct studied made = {.tables = tables_open()};
        const struct study_changes none = {.n_seeds = 1};
        json_t *rows = json_array();
        ck_assert_int_eq(study_open(study_path("dllm-serve-fig5", path), &none, &made.study, &err),
                         0);
        for (int i = 0; i < 4; i++) {
            json_t *row = json_pack(
                "{s:i, s:i, s:i, s:s, s:i, s:s, s:f, s:i, s:f, s:f, s:f}", "point", i, "seed", 1,
                "system_n", i, "label", "s", "workload_n", 0, "dataset", "d", "x", 0.5, "x_n", 0,
                "throughput_answer_tok_s", throughputs[i], "throughput_tok_s", 1.0, "tpf", 1.0);
            static const char *const zeros[] = {"tpf_answer", "latency_s_mean", "latency_s_std",
                                                "latency_s_min", "latency_s_max"};
            for (size_t z = 0; z < 5; z++) {
                json_object_set_new(row, zeros[z], json_real(0));
            }
            bool is_rejected = all == 1 ? i < 3 : i == 1;
            json_object_set_new(row, "warnings",
                                is_rejected ? json_pack("[{s:s}]", "code", "rejected")
                                            : json_array());
            json_array_append_new(rows, row);
        }
        ck_assert_int_eq(tables_add(made.tables, "run", rows, &err), 0);
        ck_assert_int_eq(paper_load("experiments/study/paper/dllm_serve.csv", &made.paper, &err),
                         0);
        ck_assert_msg(study_print(&made.study, &made.paper, made.tables, &err) == 0, "%s",
                      err.text);
        ck_assert_msg(study_select(&made.study, made.tables, &err) == 0, "%s", err.text);
        ck_assert_double_eq(study_number(&made, "SELECT point FROM best"), all == 1 ? 1 : 2);
        json_decref(rows);
        studied_fini(&made);
    }
}

/* A run of each system, workload and batch of FOCUS's Figure 6, and what is drawn of them. */
static void check_marks(const char *name) {
    static const char *const systems[] = {"LMDeploy", "FOCUS"};
    static const char *const datasets[] = {"ShareGPT", "WildChat", "MATH"};
    static const char *const zeros[] = {"tpf_answer",
                                        "latency_s_mean",
                                        "latency_s_std",
                                        "latency_s_min",
                                        "latency_s_max",
                                        "throughput_tok_s",
                                        "tpf"};
    char path[256];
    struct err err = {0};
    struct studied made = {.tables = tables_open()};
    const struct study_changes none = {.n_seeds = 1};
    json_t *rows = json_array();
    ck_assert_int_eq(study_open(study_path(name, path), &none, &made.study, &err), 0);
    for (int i = 0; i < 24; i++) {
        json_t *row = json_pack("{s:i, s:i, s:i, s:s, s:i, s:s, s:i, s:i, s:i}", "point", i, "seed",
                                1, "system_n", i / 12, "label", systems[i / 12], "workload_n",
                                i / 4 % 3, "dataset", datasets[i / 4 % 3], "x", 32 << i % 4, "x_n",
                                i % 4, "throughput_answer_tok_s", i + 1);
        for (size_t z = 0; z < sizeof zeros / sizeof zeros[0]; z++) {
            json_object_set_new(row, zeros[z], json_real(1));
        }
        json_array_append_new(rows, row);
    }
    ck_assert_int_eq(tables_add(made.tables, "run", rows, &err), 0);
    ck_assert_int_eq(paper_load("experiments/study/paper/focus.csv", &made.paper, &err), 0);
    ck_assert_msg(study_print(&made.study, &made.paper, made.tables, &err) == 0, "%s", err.text);
    ck_assert_msg(study_select(&made.study, made.tables, &err) == 0, "%s", err.text);
    ck_assert_msg(study_ask(&made.study, made.tables, &err) == 0, "%s", err.text);
    ck_assert_double_eq(study_number(&made, "SELECT count(*) FROM drawn"), 24);
    ck_assert_double_eq(study_number(&made, "SELECT count(DISTINCT paper) FROM drawn"), 24);
    /* Each beside its own: the printed row of that system, data set and batch. */
    ck_assert_double_eq(
        study_number(&made, "SELECT count(*) FROM drawn JOIN printed ON series = system AND "
                            "panel = dataset AND setting = 'batch ' || x || ' B=32' "
                            "WHERE quantity = 'throughput' AND paper = value"),
        24);
    json_decref(rows);
    studied_fini(&made);
}

TEST(each_bar_of_focus_figure_6_is_marked_beside_ours) {
    check_marks("focus-fig6-sdar");
    check_marks("focus-fig6-llada2");
}

static struct paper_result *compare(const struct studied *made, const struct config *calibrated,
                                    size_t *n) {
    struct paper_result *rows;
    struct err err = {0};
    ck_assert_msg(
        study_compare(&made->study, made->tables, &made->paper, calibrated, &rows, n, &err) == 0,
        "%s", err.text);
    return rows;
}

/* The aim: dLLM-Serve's printed speed-ups over Fast-dLLM and Sparse-dLLM, as published, within 15 %
 * on at least 80 % of the rows that are no calibration points. */
TEST(printed_speed_ups_are_reproduced_within_15_percent_on_80_percent_of_rows) {
    struct config calibrated;
    struct err err = {0};
    size_t n_rows = 0, n_within = 0;
    ck_assert_int_eq(config_read("experiments/study/calibrated.ini", &calibrated, &err), 0);
    for (int i = 0; i < N_NAMES; i++) {
        struct studied made = study_shipped(names[i], 2);
        size_t n;
        struct paper_result *rows = compare(&made, &calibrated, &n);
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
        free(rows);
        studied_fini(&made);
    }
    ck_assert_uint_ge(n_rows, 20);
    ck_assert_double_ge((double)n_within / (double)n_rows, 0.8);
    config_fini(&calibrated);
}

/* Every printed row of dInfer's two tables has a number of ours; of the distilled model one is what
 * a process was calibrated to. */
TEST(dinfers_tables_are_whole_and_what_is_calibrated_is_of_gsm8k) {
    static const struct {
        const char *name;
        size_t n_rows, n_calibrated;
    } figures[] = {{"dinfer-tps", 37, 2}, {"dinfer-anchors", 30, 1}, {"dinfer-table2", 18, 1}};
    static const char *const calibrated_quantity[] = {"throughput", "ms_per_forward", "tpf"};
    struct config calibrated;
    struct err err = {0};
    ck_assert_int_eq(config_read("experiments/study/calibrated.ini", &calibrated, &err), 0);
    for (int i = 0; i < 3; i++) {
        struct studied made = study_shipped(figures[i].name, 2);
        size_t n, n_calibrated = 0;
        struct paper_result *rows = compare(&made, &calibrated, &n);
        for (size_t j = 0; j < n; j++) {
            ck_assert(isfinite(rows[j].ours));
            n_calibrated += rows[j].role == PAPER_CALIBRATION;
            ck_assert(rows[j].role != PAPER_CALIBRATION ||
                      (strcmp(rows[j].row->dataset, "GSM8K") == 0 &&
                       strcmp(rows[j].row->quantity, calibrated_quantity[i]) == 0));
        }
        ck_assert_uint_eq(n, figures[i].n_rows);
        ck_assert_uint_eq(n_calibrated, figures[i].n_calibrated);
        free(rows);
        studied_fini(&made);
    }
    config_fini(&calibrated);
}

/* The first or the last number under a series of a panel. */
static double value_of(const struct studied *made, const char *panel, const char *series,
                       bool first) {
    char query[256];
    snprintf(query, sizeof query,
             "SELECT y FROM drawn WHERE panel = '%s' AND series = '%s' ORDER BY rowid %s LIMIT 1",
             panel, series, first ? "" : "DESC");
    return study_number(made, query);
}

/* Mosaic's first observation: the bottleneck shifts from the KV cache to activations. */
TEST(autoregressive_models_fill_memory_with_cache_and_diffusion_models_with_activations) {
    struct studied made = study_shipped("mosaic-fig2", 1);
    const char *dllm = "LLaDA-8B Base/Instruct/1.5";
    ck_assert_double_eq(value_of(&made, "Llama-3.1-8B", "KV cache", false), 16);
    ck_assert_double_lt(value_of(&made, "Llama-3.1-8B", "activations", false), 0.01);
    ck_assert_double_eq(value_of(&made, dllm, "KV cache", false), 0);
    /* The logits alone: 131072 rows of 126464 in bf16. */
    ck_assert_double_ge(value_of(&made, dllm, "activations", false),
                        126464.0 * 131072 * 2 / 0x1p30);
    ck_assert_double_gt(value_of(&made, dllm, "weights", true), 14.9);
    studied_fini(&made);
}

/* Mosaic's third: the peak toggles between logits and FFN. */
TEST(the_peak_is_of_the_ffn_where_few_tokens_are_masked_and_of_the_logits_where_many_are) {
    static const char *const models[] = {"LLaDA-8B Base/Instruct/1.5", "Dream-v0 7B Base/Instruct"};
    struct studied made = study_shipped("mosaic-fig3", 1);
    for (int i = 0; i < 2; i++) {
        double ffn = value_of(&made, models[i], "FFN", true);
        ck_assert_double_eq(value_of(&made, models[i], "FFN", false), ffn);
        ck_assert_double_gt(ffn, value_of(&made, models[i], "attention", true));
        ck_assert_double_gt(ffn, 3 * value_of(&made, models[i], "logits", true));
        ck_assert_double_lt(3 * ffn, value_of(&made, models[i], "logits", false));
    }
    studied_fini(&made);
}

static struct lmax asked_directly(const char *name, const char *gpu, const char *model,
                                  double prompt_share, enum share_of share_of,
                                  uint32_t canvas_tokens) {
    struct system_request wanted = {.system = name, .gpu = gpu, .model = model, .roofline = true};
    struct system *system = NULL;
    struct lmax lmax;
    struct err err = {0};
    ck_assert_msg(system_open(&wanted, &system, &err) == 0, "%s", err.text);
    struct lmax_request request =
        MAKE(struct lmax_request, .system = system, .prompt_share = prompt_share,
             .share_of = share_of, .canvas_tokens = canvas_tokens);
    ck_assert_msg(lmax_find(&request, &lmax, &err) == 0, "%s", err.text);
    system_close(system);
    return lmax;
}

TEST(a_figure_of_canvases_has_what_the_search_finds) {
    struct studied made = study_shipped("mosaic-fig10-readings", 2);
    json_t *rows = study_rows(&made, "SELECT * FROM lmax ORDER BY rowid");
    ck_assert_uint_eq(json_array_size(rows), 252);
    /* Every eleventh: each system, GPU, model, share and reading is among them. */
    for (size_t i = 0; i < 252; i += 11) {
        const json_t *row = json_array_get(rows, i);
        const char *system, *gpu, *model, *share_of;
        double share, tokens;
        ck_assert_int_eq(json_unpack((json_t *)(uintptr_t)row, "{s:s, s:s, s:s, s:s, s:F, s:F}",
                                     "system", &system, "gpu", &gpu, "model", &model, "share_of",
                                     &share_of, "prompt_share", &share, "tokens", &tokens),
                         0);
        struct lmax lmax =
            asked_directly(system, gpu, model, share,
                           strcmp(share_of, "canvas") == 0 ? SHARE_OF_CANVAS : SHARE_OF_OUTPUT, 0);
        ck_assert_double_eq(tokens, lmax.longest.canvas_tokens);
    }
    json_decref(rows);
    studied_fini(&made);
}

TEST(canvases_do_not_depend_on_the_number_of_threads) {
    struct studied one = study_shipped("mosaic-fig16", 1), two = study_shipped("mosaic-fig16", 2);
    study_same(&one, &two, "lmax", 18);
    studied_fini(&one);
    studied_fini(&two);
}

TEST(a_canvas_that_does_not_fit_is_a_gap) {
    struct studied made = study_shipped("mosaic-fig13", 2);
    json_t *rows = study_rows(&made, "SELECT * FROM lmax WHERE system = 'native' AND gpu = "
                                     "'rtx3090' AND model = 'llada-8b'");
    ck_assert_uint_eq(json_array_size(rows), 7);
    for (size_t i = 0; i < 7; i++) {
        const json_t *row = json_array_get(rows, i), *found = json_object_get(row, "inflation");
        uint32_t canvas = (uint32_t)json_integer_value(json_object_get(row, "canvas"));
        ck_assert_int_eq(json_is_null(found), canvas > 11456);
        if (!json_is_null(found)) {
            struct lmax lmax =
                asked_directly("native", "rtx3090", "llada-8b", 0.5, SHARE_OF_CANVAS, canvas);
            ck_assert_double_eq(json_real_value(found), lmax_inflation(&lmax.longest));
            ck_assert_double_eq(json_real_value(json_object_get(row, "par")), lmax.longest.par);
        }
    }
    json_decref(rows);
    studied_fini(&made);
}

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
static void check_by_hand(const char *name, const struct paper_result *rows, size_t n) {
    static const char *const gpus[] = {"rtx3090", "a100-40g"};
    static const char *const models[] = {"llada-8b", "dream-7b", "llada-moe"};
    static const double shares[] = {0.1, 0.5, 0.9};
    double sum = 0, least = INFINITY;
    if (strcmp(name, "mosaic-fig10") == 0) {
        for (size_t i = 0; i < 18; i++) {
            const char *gpu = gpus[i / 9], *model = models[i / 3 % 3];
            sum += longest("mosaic-released", gpu, model, shares[i % 3]) /
                   longest("mosaic-torch", gpu, model, shares[i % 3]);
        }
        ck_assert_double_eq_tol(ours_beside(rows, n, "Lmax_vs_Mosaic-Torch",
                                            "mosaic-released over mosaic-torch, r_p prompt/canvas"),
                                sum / 18, 1e-9);
    }
    if (strcmp(name, "mosaic-fig14") == 0) {
        for (size_t i = 0; i < 6; i++) {
            const char *gpu = gpus[i / 3], *model = models[i % 3];
            least = fmin(least, longest("mosaic-released", gpu, model, 0.5) /
                                    longest("mosaic-masked-released", gpu, model, 0.5));
        }
        ck_assert_double_eq_tol(
            ours_beside(rows, n, "Lmax_gain_min",
                        "mosaic-released over mosaic-masked-released, r_p prompt/canvas"),
            100 * (least - 1), 1e-9);
    }
}

static bool is_declared(const struct study *study, const struct paper_result *rows, size_t n) {
    const char *declared = study_text(study, "declared", NULL);
    bool is_found = declared == NULL;
    for (size_t i = 0; i < n; i++) {
        is_found = is_found ||
                   (strstr(rows[i].reading, declared) != NULL && rows[i].role != PAPER_APPENDIX);
    }
    return is_found;
}

/* As docs/papers has them: every reading is a row, and one of them is counted. */
TEST(the_readings_of_a_printed_number_are_all_beside_it) {
    static const struct {
        const char *name;
        size_t n_rows, n_counted;
        int n_within; /* -1: it goes by prices, which are tested elsewhere */
    } expected[] = {{"mosaic-fig4", 3, 1, 0},
                    {"mosaic-fig5", 2, 2, 0},
                    {"mosaic-fig9", 2, 0, 0},
                    {"mosaic-fig10", 3, 3, 3},
                    {"mosaic-fig11", 4, 1, -1},
                    {"mosaic-fig12", 4, 1, 1},
                    {"mosaic-fig13", 8, 2, 0},
                    {"mosaic-fig14", 6, 6, 4},
                    {"mosaic-fig15", 14, 4, 3},
                    {"mosaic-fig16", 2, 0, 0},
                    {"mosaic-fig17", 2, 0, 0},
                    {"mosaic-fig18", 2, 0, 0},
                    {"mosaic-fig4-readings", 6, 0, 0},
                    {"mosaic-fig10-readings", 20, 0, 0},
                    {"mosaic-fig12-readings", 10, 0, 0},
                    {"mosaic-fig13-readings", 10, 0, 0},
                    {"mosaic-history", 15, 0, 0},
                    {"mosaic-fig14-readings", 12, 0, 0},
                    {"mosaic-fig14-step", 6, 0, 0},
                    {"mosaic-fig9-measured", 2, 0, 0},
                    {"mosaic-fig11-measured", 2, 0, 0},
                    {"mosaic-fig15-measured", 6, 0, 0}};
    size_t n_counted = 0;
    const struct config calibrated = {0};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct studied made = study_shipped(expected[i].name, 2);
        size_t n;
        struct paper_result *rows = compare(&made, &calibrated, &n);
        struct paper_tally tally = paper_tally(rows, n);
        ck_assert_uint_eq(n, expected[i].n_rows);
        ck_assert_uint_eq(tally.counted, expected[i].n_counted);
        if (expected[i].n_within >= 0) {
            ck_assert_uint_eq(tally.within, (size_t)expected[i].n_within);
        }
        n_counted += tally.counted + tally.bound;
        ck_assert_msg(study_text(&made.study, "role", NULL) != NULL ||
                          is_declared(&made.study, rows, n),
                      "%s", expected[i].name);
        for (size_t j = 0; j < n; j++) {
            for (size_t k = 0; k < j; k++) { /* no reading twice */
                ck_assert(rows[j].row != rows[k].row ||
                          strcmp(rows[j].reading, rows[k].reading) != 0);
            }
        }
        check_by_hand(expected[i].name, rows, n);
        ck_assert_uint_eq(made.paper.n_rows, 31);
        free(rows);
        studied_fini(&made);
    }
    ck_assert_uint_eq(n_counted, 31); /* or a bound: of 31 printed numbers */
}

SUITE("figures")
