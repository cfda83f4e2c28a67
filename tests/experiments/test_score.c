/* The score: which printed rows count, and that one leaves by its cause's calculation alone. */
#include <math.h>
#include <string.h>

#include "experiments/study/score.h"
#include "sim/base/input/datadir.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

/* ---- the shipped papers ---- */

struct shipped {
    struct config papers, causes;
    struct score *score;
};

/* Of all papers. */
static const char *const files[] = {"dllm_serve.csv", "mosaic.csv",       "focus.csv",
                                    "dinfer.csv",     "dinfer_steps.csv", "sglang.csv"};
enum { FILES = sizeof files / sizeof files[0] };

static void open_shipped(struct shipped *out, const char *folder) {
    char path[512];
    struct err err = {0};
    ck_assert_int_eq(config_read(data_path(path, sizeof path, "experiments/study/paper/papers.ini"),
                                 &out->papers, &err),
                     0);
    ck_assert_msg(config_read(data_path(path, sizeof path, "experiments/study/paper/causes.ini"),
                              &out->causes, &err) == 0,
                  "%s", err.text);
    out->score = score_open(
        &out->papers, &out->causes,
        folder != NULL ? folder : data_path(path, sizeof path, "experiments/study/paper"), &err);
    ck_assert_msg(out->score != NULL, "%s", err.text);
    ck_assert_msg(score_judge(out->score, &err) == 0, "%s", err.text);
}

static void close_shipped(struct shipped *shipped) {
    score_close(shipped->score);
    config_fini(&shipped->papers);
    config_fini(&shipped->causes);
}

/* The row of a file that begins so and has this cause; "FILE:LINE". */
static const char *id_of(const char *folder, const char *file, const char *begins,
                         const char *cause, char id[96]) {
    char path[512], line[512];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    for (int n = 1; fgets(line, sizeof line, in) != NULL; n++) {
        line[strcspn(line, "\n")] = '\0';
        const char *comma = strrchr(line, ',');
        if (strncmp(line, begins, strlen(begins)) == 0 && strcmp(comma + 1, cause) == 0) {
            snprintf(id, 96, "%s:%d", file, n);
            fclose(in);
            return id;
        }
    }
    ck_abort_msg("%s: no row begins '%s' with the cause '%s'", path, begins, cause);
}

static const struct {
    const char *file, *begins, *cause;
    enum score_class class;
} shown[] = {
    {"dllm_serve.csv", "Table 4,L40S,LLaDA-8B-Instruct,Burst,Fast-dLLM", "dllm-latency",
     SCORE_DERIVED},
    {"dllm_serve.csv", "Table 4,L40S,LLaDA-8B-Instruct,LiveBench,dLLM-Cache", "dllm-latency",
     SCORE_DERIVED},
    /* what concurrency adds is more than the queue's length says: it stays */
    {"dllm_serve.csv", "Table 4,L40S,LLaDA-8B-Instruct,LiveBench,dLLM-Serve", "dllm-latency",
     SCORE_OURS},
    {"dllm_serve.csv", "Sec 6.3 Fig 4,RTX 4090,LLaDA-8B-Instruct,Burst,dLLM-Serve", "dllm-latency",
     SCORE_DERIVED},
    {"dllm_serve.csv", "Sec 3.2", "dllm-product", SCORE_DERIVED},
    {"dllm_serve.csv", "Sec 6.3 Fig 5", "dllm-jitter", SCORE_DERIVED},
    {"dllm_serve.csv", "Sec 6.2,RTX 4090,LLaDA-8B-Instruct,all,baselines", "dllm-saturation",
     SCORE_CONTRADICTS},
    {"dllm_serve.csv", "Sec 6.2,RTX 4090,LLaDA-8B-Instruct,all,dLLM-Serve,-,saturation_rate_low",
     "dllm-saturation", SCORE_CONTRADICTS},
    {"dllm_serve.csv", "Table 4,L40S,LLaDA-8B-Instruct,Burst,Fast-dLLM,1.0,throughput",
     "dllm-batch", SCORE_OURS}, /* without a number of ours nothing is shown */
    {"dinfer_steps.csv", "Table 2,8xH800,LLaDA-MoE-TD,IFEval,dInfer TD,saturation,tpf",
     "dinfer-distilled", SCORE_UNKNOWN},
    {"dinfer_steps.csv", "Table 2 (quotient),8xH800,LLaDA-MoE-TD,IFEval", "dinfer-step",
     SCORE_INSTEAD},
    {"dinfer_steps.csv", "Table 1 (quotient),8xH800,LLaDA-MoE,IFEval,dInfer,", "dinfer-step",
     SCORE_OURS},
    {"focus.csv", "Fig 6,A100-80,LLaDA2.0-mini,ShareGPT,LMDeploy", "focus-batch-32",
     SCORE_CONTRADICTS},
    {"focus.csv", "Fig 6,A100-80,LLaDA2.0-mini,ShareGPT,FOCUS", "focus-batch-32", SCORE_OURS},
    {"focus.csv", "Fig 6,A100-80,SDAR-8B-Chat,MATH,LMDeploy", "focus-batch-32", SCORE_OURS},
};

TEST(rows_of_the_papers_leave_by_what_their_own_numbers_show) {
    struct shipped shipped;
    char id[96], folder[512];
    data_path(folder, sizeof folder, "experiments/study/paper");
    open_shipped(&shipped, NULL);
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        id_of(folder, shown[i].file, shown[i].begins, shown[i].cause, id);
        ck_assert_msg(score_class_of(shipped.score, id) == shown[i].class, "%s (%s) is %d", id,
                      shown[i].cause, score_class_of(shipped.score, id));
    }
    close_shipped(&shipped);
}

/* A label is not enough: were the printed numbers others, the same rows would count. */
TEST(a_row_whose_numbers_agree_counts_whatever_its_cause) {
    static const struct {
        const char *file, *from, *to, *begins, *cause;
    } edits[] = {{"focus.csv", "batch 32 B=32,throughput,472,", "batch 32 B=32,throughput,872,",
                  "Fig 6,A100-80,LLaDA2.0-mini,ShareGPT,LMDeploy", "focus-batch-32"},
                 {"dllm_serve.csv", "saturation_rate,0.25,", "saturation_rate,0.17,",
                  "Sec 6.2,RTX 4090,LLaDA-8B-Instruct,all,baselines", "dllm-saturation"},
                 {"dllm_serve.csv", "saturation_rate_low,0.4,", "saturation_rate_low,0.3,",
                  "Sec 6.2,RTX 4090,LLaDA-8B-Instruct,all,dLLM-Serve,-,saturation_rate_low",
                  "dllm-saturation"},
                 {"dllm_serve.csv", "avg_latency,3158.38,", "avg_latency,4158.38,",
                  "Table 4,L40S,LLaDA-8B-Instruct,Burst,Fast-dLLM", "dllm-latency"},
                 {"dinfer_steps.csv", "GSM8K,dInfer TD,saturation,tpf,6.12,",
                  "GSM8K,dInfer TD,saturation,tpf,5.30,",
                  "Table 2,8xH800,LLaDA-MoE-TD,IFEval,dInfer TD,saturation,tpf",
                  "dinfer-distilled"}};
    for (size_t e = 0; e < sizeof edits / sizeof edits[0]; e++) {
        struct shipped shipped;
        char path[512], id[96];
        for (size_t f = 0; f < FILES; f++) {
            snprintf(path, sizeof path, "experiments/study/paper/%s", files[f]);
            char whole[512], *text = scratch_read(data_path(whole, sizeof whole, path));
            char *at = strcmp(files[f], edits[e].file) == 0 ? strstr(text, edits[e].from) : NULL;
            ck_assert(at != NULL || strcmp(files[f], edits[e].file) != 0);
            if (at != NULL) {
                ck_assert_uint_eq(strlen(edits[e].from), strlen(edits[e].to));
                memcpy(at, edits[e].to, strlen(edits[e].to));
            }
            scratch_write(files[f], text);
            free(text);
        }
        open_shipped(&shipped, scratch_folder);
        id_of(scratch_folder, edits[e].file, edits[e].begins, edits[e].cause, id);
        ck_assert_msg(score_class_of(shipped.score, id) == SCORE_OURS, "%s", id);
        close_shipped(&shipped);
    }
}

static double printed_value(const struct paper *paper, const char *source, const char *dataset,
                            const char *system, const char *quantity) {
    for (size_t i = 0; i < paper->n_rows; i++) {
        const struct paper_row *row = &paper->rows[i];
        if (strcmp(row->source, source) == 0 && strcmp(row->dataset, dataset) == 0 &&
            strcmp(row->system, system) == 0 && strcmp(row->quantity, quantity) == 0) {
            return row->value;
        }
    }
    ck_abort_msg("no row %s, %s, %s, %s", source, dataset, system, quantity);
}

static void load_shipped(const char *file, struct paper *paper) {
    char path[512], relative[128];
    struct err err = {0};
    snprintf(relative, sizeof relative, "experiments/study/paper/%s", file);
    ck_assert_msg(paper_load(data_path(path, sizeof path, relative), paper, &err) == 0, "%s",
                  err.text);
}

/* Of FOCUS's 48 bars exactly these leave. */
TEST(three_bars_of_focus_leave_and_no_other) {
    struct shipped shipped;
    struct paper paper;
    size_t n_bars = 0, n_left = 0;
    load_shipped("focus.csv", &paper);
    open_shipped(&shipped, NULL);
    for (size_t i = 0; i < paper.n_rows; i++) {
        const struct paper_row *row = &paper.rows[i];
        char id[96];
        snprintf(id, sizeof id, "focus.csv:%d", row->line);
        bool has_left = score_class_of(shipped.score, id) != SCORE_OURS;
        bool is_bar = strcmp(row->source, "Fig 6") == 0;
        ck_assert(!is_bar || row->role == PAPER_COUNTED);
        ck_assert(!has_left || (is_bar && strcmp(row->model, "LLaDA2.0-mini") == 0 &&
                                strcmp(row->system, "LMDeploy") == 0 &&
                                strcmp(row->setting, "batch 32 B=32") == 0));
        n_bars += is_bar;
        n_left += has_left;
    }
    ck_assert_uint_eq(n_bars, 48);
    ck_assert_uint_eq(n_left, 3);
    close_shipped(&shipped);
    paper_fini(&paper);
}

/* Settings that are not printed but that the paper's own numbers decide, as docs/papers says: which
 * of its two cards dLLM-Serve's Figures 7 and 8 are of, and what Mosaic's prompt share is a share
 * of. */
TEST(what_the_papers_own_numbers_decide_is_not_open) {
    static const char *const datasets[] = {"LiveBench", "OSC", "Burst"};
    static const char over_sparse[] = "speedup_vs_Sparse-dLLM";
    struct paper paper;
    const double apart = (1 + PAPER_TOLERANCE) / (1 - PAPER_TOLERANCE);
    load_shipped("dllm_serve.csv", &paper);
    for (size_t i = 0; i < 3; i++) { /* not the L40S of Table 4: the other one */
        ck_assert_double_gt(
            printed_value(&paper, "Table 4", datasets[i], "dLLM-Serve", over_sparse) /
                printed_value(&paper, "Sec 6.6 Fig 8", datasets[i], "+engine+scheduler+logits",
                              over_sparse),
            apart);
    }
    double shortest =
        printed_value(&paper, "Sec 6.5 Fig 7a", "input 100", "dLLM-Serve", over_sparse);
    double longest =
        printed_value(&paper, "Sec 6.5 Fig 7a", "input 600", "dLLM-Serve", over_sparse);
    double l40s = printed_value(&paper, "Table 4", "Burst", "dLLM-Serve", over_sparse);
    double other =
        printed_value(&paper, "Sec 6.6 Fig 8", "Burst", "+engine+scheduler+logits", over_sparse);
    ck_assert(l40s <= shortest && l40s >= longest);
    ck_assert_double_lt(other, longest * (1 - PAPER_TOLERANCE));
    paper_fini(&paper);
    load_shipped("mosaic.csv", &paper);
    /* prompt / output = 0.5 masks 2 / 3 of the canvas: masked logits alone are 3 / 2 as long */
    ck_assert_double_gt(
        printed_value(&paper, "Sec 5.3 Fig 14", "", "+mask-only kernel", "Lmax_gain_min"),
        50 * (1 + PAPER_TOLERANCE));
    paper_fini(&paper);
}

/* What stands for other rows, or in their place, is their quotient to the digits that are printed.
 */
TEST(quotients_of_printed_numbers_are_their_quotients) {
    struct paper serve, tables, steps;
    size_t n = 0;
    load_shipped("dllm_serve.csv", &serve);
    load_shipped("dinfer.csv", &tables);
    load_shipped("dinfer_steps.csv", &steps);
    for (size_t i = 0; i < serve.n_rows; i++) {
        const struct paper_row *row = &serve.rows[i];
        const char *over = row->quantity + strlen("speedup_vs_"), base[] = "speedup_vs_Sparse-dLLM";
        if (strcmp(row->source, "Sec 6.6 Fig 8 (quotient)") == 0) {
            double all = printed_value(&serve, "Sec 6.6 Fig 8", row->dataset, row->system, base);
            double one = printed_value(&serve, "Sec 6.6 Fig 8", row->dataset, over, base);
            ck_assert_double_eq_tol(row->value, all / one, 0.0006);
            n++;
        }
    }
    ck_assert_uint_eq(n, 5);
    for (size_t i = 0; i < steps.n_rows; i++) {
        const struct paper_row *row = &steps.rows[i];
        if (strcmp(row->quantity, "ms_per_forward") != 0 || strcmp(row->dataset, "Avg") == 0) {
            continue;
        }
        const char *source = strncmp(row->source, "Table 1", 7) == 0 ? "Table 1" : "Table 2";
        double tps = printed_value(&steps, source, row->dataset, row->system, "throughput"),
               tpf = 0;
        for (size_t j = 0; j < tables.n_rows; j++) {
            const struct paper_row *of = &tables.rows[j];
            bool no_kv = strstr(row->system, "no KV") != NULL;
            bool is_system = strncmp(of->system, row->system, strcspn(row->system, " ")) == 0;
            bool is_cache = strcmp(of->setting, "-") == 0 ||
                            no_kv == (strcmp(of->setting, "without KV cache") == 0);
            if (is_system && is_cache && strcmp(of->source, source) == 0 &&
                strcmp(of->dataset, row->dataset) == 0 && strcmp(of->quantity, "tpf") == 0) {
                tpf = of->value;
            }
        }
        ck_assert_msg(fabs(1000 * tpf / tps / row->value - 1) < 0.002, "%s, %s, %s", row->source,
                      row->system, row->dataset);
        n++;
    }
    ck_assert_uint_eq(n, 5 + 36);
    paper_fini(&serve);
    paper_fini(&tables);
    paper_fini(&steps);
}

TEST(every_cause_of_the_papers_has_rows) {
    struct shipped shipped;
    char folder[512];
    char *text[FILES], wanted[96];
    open_shipped(&shipped, NULL);
    for (size_t f = 0; f < FILES; f++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s",
                 data_path(folder, sizeof folder, "experiments/study/paper"), files[f]);
        text[f] = scratch_read(path);
    }
    const struct config_entry *entry = NULL;
    while ((entry = config_next(&shipped.causes, NULL, "class", entry)) != NULL) {
        bool has_rows = false;
        snprintf(wanted, sizeof wanted, ",%s\n", entry->section);
        for (size_t f = 0; f < FILES; f++) {
            has_rows = has_rows || strstr(text[f], wanted) != NULL;
        }
        ck_assert_msg(has_rows, "[%s]", entry->section);
        ck_assert_uint_le(strlen(config_find(&shipped.causes, entry->section, "says")->value), 60);
    }
    for (size_t f = 0; f < FILES; f++) {
        free(text[f]);
    }
    close_shipped(&shipped);
}

/* ---- a paper of our own ---- */

#define HEADER "source,system,quantity,value,unit,role,compare,cause\n"

static const char own_rows[] = HEADER "T,s,speed,100,tok/s,,,open\n"    /* 2 */
                                      "T,s,steps,5,ms,derived,,place\n" /* 3 */
                                      "T,s,share,50,%,,points,open\n"   /* 4 */
                                      "T,s,speed,80,tok/s,,,\n"         /* 5 */
                                      "T,s,more,1.1,x,,,\n"             /* 6 */
                                      "T,s,free,1,x,,,\n";              /* 7 */

static const char own_causes[] =
    "[open]\nclass = unknown\nsays = how many\n"
    "shown = SELECT p.id, min(f.ours) AS one, max(f.ours) AS other FROM printed p\n"
    "  JOIN found f USING (id) WHERE p.cause = 'open' AND f.ours IS NOT NULL GROUP BY p.id\n"
    "[place]\nclass = instead\nsays = a quotient\n"
    "shown = SELECT p.id FROM printed p JOIN gone g WHERE p.cause = 'place'\n"
    "  AND g.class = 'unknown'\n";

struct own {
    struct config papers, causes;
    struct paper paper;
    struct score *score;
    struct err err;
};

static void open_own(struct own *own, const char *rows, const char *causes) {
    const char papers[] = "[P]\nfiles = own.csv\n";
    *own = (struct own){.score = NULL};
    const char *path = scratch_write("own.csv", rows);
    ck_assert_int_eq(config_parse("papers", papers, strlen(papers), &own->papers, &own->err), 0);
    ck_assert_msg(config_parse("causes", causes, strlen(causes), &own->causes, &own->err) == 0,
                  "%s", own->err.text);
    own->score = score_open(&own->papers, &own->causes, scratch_folder, &own->err);
    if (own->score != NULL) {
        ck_assert_int_eq(paper_load(path, &own->paper, &own->err), 0);
    }
}

static void close_own(struct own *own) {
    score_close(own->score);
    paper_fini(&own->paper);
    config_fini(&own->papers);
    config_fini(&own->causes);
}

/* The score with these two readings of every row. */
static struct score_line line_of(struct own *own, const double (*ours)[2], size_t n) {
    struct paper_result results[16];
    for (size_t i = 0; i < n; i++) {
        for (size_t r = 0; r < 2; r++) {
            results[2 * i + r] =
                (struct paper_result){.row = &own->paper.rows[i], .ours = ours[i][r]};
            snprintf(results[2 * i + r].reading, sizeof results[0].reading, "%zu", r);
        }
    }
    paper_settle(results, 2 * n, "", PAPER_COUNTED);
    for (int figure = 0; figure < 2; figure++) { /* of the same rows */
        ck_assert_int_eq(score_add(own->score, "own.csv", results, 2 * n, &own->err), 0);
    }
    ck_assert_msg(score_judge(own->score, &own->err) == 0, "%s", own->err.text);
    return score_line(own->score, "P");
}

static void check_line(const double (*ours)[2], size_t n, struct score_line expected) {
    struct own own;
    open_own(&own, own_rows, own_causes);
    struct score_line line = line_of(&own, ours, n), all = score_line(own.score, NULL);
    ck_assert_uint_eq(line.counted, expected.counted);
    ck_assert_uint_eq(line.within, expected.within);
    ck_assert_uint_eq(line.with_left, expected.with_left);
    ck_assert_uint_eq(line.within_left, expected.within_left);
    ck_assert_uint_eq(line.unknown, expected.unknown);
    ck_assert_uint_eq(line.bound, expected.bound);
    ck_assert_uint_eq(line.missing, expected.missing);
    ck_assert_int_eq(memcmp(&line, &all, sizeof all), 0);
    close_own(&own);
}

/* A number counts once. What leaves takes its hits with it, and its quotient stands in for it; with
 * what left the quotient is no fact of its own. */
TEST(hits_leave_like_misses_and_a_quotient_counts_where_its_row_has_left) {
    const double hit[][2] = {{100, 200}, {5, 5}}, miss[][2] = {{200, 100}, {5, 5}};
    const struct score_line of_hit = {.counted = 1,
                                      .within = 1,
                                      .with_left = 1,
                                      .within_left = 1,
                                      .unknown = 1},
                            of_miss = {.counted = 1, .within = 1, .with_left = 1, .unknown = 1};
    check_line(hit, 2, of_hit);
    check_line(miss, 2, of_miss);
}

/* 1.15 / 0.85 apart, and the printed value is one that some reading explains. */
TEST(a_missing_number_excuses_nothing_that_it_does_not_move) {
    const double near[][2] = {{130, 100}, {5, 5}}, far[][2] = {{136, 100}, {5, 5}};
    const double above[][2] = {{400, 120}, {5, 5}}, one[][2] = {{130, NAN}, {5, 5}};
    const struct score_line stays = {.counted = 1, .with_left = 1},
                            leaves = {.counted = 1, .within = 1, .with_left = 1, .unknown = 1};
    check_line(near, 2, stays);
    check_line(far, 2, leaves);
    check_line(above, 2, stays);
    check_line(one, 2, stays);
}

TEST(shares_are_judged_in_points_and_a_number_near_no_effect_is_a_bound) {
    const double ours[][2] = {{100, 100}, {5, 5}, {64, 64}, {80, 80}, {1.1, 1.1}, {NAN, NAN}};
    const struct score_line expected = {
        .counted = 3, .within = 3, .with_left = 3, .within_left = 3, .bound = 2};
    const double off[][2] = {{100, 100}, {5, 5}, {66, 66}, {NAN, NAN}, {1.1, 1.1}, {1, 1}};
    const struct score_line missed = {
        .counted = 2, .within = 1, .with_left = 2, .within_left = 1, .bound = 2, .missing = 1};
    const double apart[][2] = {{100, 100}, {5, 5}, {66, 35}};
    const struct score_line left = {.counted = 2, /* the speed, and the quotient */
                                    .within = 2,
                                    .with_left = 2,
                                    .within_left = 1,
                                    .unknown = 1};
    check_line(ours, 6, expected);
    check_line(off, 6, missed);
    const double nearer[][2] = {{100, 100}, {5, 5}, {66, 37}}; /* 29 points */
    const struct score_line stays = {.counted = 2, .within = 1, .with_left = 2, .within_left = 1};
    check_line(apart, 3, left);
    check_line(nearer, 3, stays);
}

/* A query speaks of rows that name its cause alone, and by two numbers. */
TEST(a_query_moves_no_row_of_another_cause_and_none_without_two_values) {
    static const struct {
        const char *answers;
        size_t counted, contradicts;
    } cases[] = {{"1 AS one, 9 AS other", 1, 2},    {"NULL AS one, 9 AS other", 3, 0},
                 {"1 AS one, NULL AS other", 3, 0}, {"1 AS one", 3, 0},
                 {"1 AS one, 1.35 AS other", 3, 0}, {"1 AS one, 1.36 AS other", 1, 2}};
    const double ours[][2] = {{100, 100}, {5, 5}, {50, 50}, {80, 80}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char causes[256], rows[512];
        struct own own;
        snprintf(causes, sizeof causes,
                 "[open]\nclass = contradicts\nsays = x\nshown = SELECT id, %s FROM printed\n"
                 "[place]\nclass = ours\nsays = y\n",
                 cases[i].answers);
        snprintf(rows, sizeof rows, "%s", own_rows);
        char *points = strstr(rows, "points");
        memcpy(points, "equal,", 6);
        memmove(points + 5, points + 6, strlen(points + 5));
        open_own(&own, rows, causes);
        struct score_line line = line_of(&own, ours, 4);
        ck_assert_uint_eq(line.counted, cases[i].counted);
        ck_assert_uint_eq(line.contradicts, cases[i].contradicts);
        close_own(&own);
    }
}

static char *printed_of(void (*print)(const struct score *, enum paper_format, FILE *),
                        enum paper_format format) {
    const double ours[][2] = {{200, 100}, {6, 6}, {50, 50}, {100, 100}};
    struct own own;
    char *text = NULL;
    size_t size;
    open_own(&own, own_rows, own_causes);
    line_of(&own, ours, 4);
    FILE *out = open_memstream(&text, &size);
    print(own.score, format, out);
    fclose(out);
    close_own(&own);
    return text;
}

TEST(both_tables_say_what_counts_what_left_and_what_is_missed) {
    char *text = printed_of(score_print, PAPER_CSV);
    ck_assert_ptr_nonnull(strstr(text, "\nP,3,1,0.3333,3,1,0.3333,0,1,0,"));
    ck_assert_ptr_nonnull(strstr(text, "\nall,3,1,0.3333,3,1,0.3333,0,1,0,"));
    free(text);
    text = printed_of(score_print_causes, PAPER_CSV);
    ck_assert_ptr_nonnull(strstr(text, "\nP,-,ours,1,0,1.250,not found out\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nP,open,cannot be known,1,0,2.000,how many\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nP,place,"));
    free(text);
    text = printed_of(score_print_causes, PAPER_MARKDOWN);
    ck_assert_ptr_nonnull(strstr(text, "| P | `open` | cannot be known | 1 | 0 | 2.000 |"));
    free(text);
}

TEST(a_file_of_no_paper_is_one_of_its_own) {
    struct own own;
    open_own(&own, own_rows, own_causes);
    scratch_write("other.csv", own_rows);
    const struct paper_result result = {.row = &own.paper.rows[3], .ours = 80};
    ck_assert_int_eq(score_add(own.score, "other.csv", &result, 1, &own.err), 0);
    ck_assert_int_eq(score_judge(own.score, &own.err), 0);
    ck_assert_uint_eq(score_line(own.score, "other.csv").within, 1);
    ck_assert_uint_eq(score_line(own.score, "P").counted, 0);
    close_own(&own);
}

TEST(more_papers_than_a_score_has_lines_are_refused) {
    struct own own;
    int status = 0, n = 0;
    open_own(&own, own_rows, own_causes);
    for (; status == 0 && n < 20; n++) {
        char name[32];
        snprintf(name, sizeof name, "other%d.csv", n);
        scratch_write(name, own_rows);
        const struct paper_result result = {.row = &own.paper.rows[3], .ours = 80};
        status = score_add(own.score, name, &result, 1, &own.err);
    }
    ck_assert_int_eq(status, ERR_USAGE);
    ck_assert_int_eq(n, 17);
    close_own(&own);
}

TEST(a_cause_without_a_calculation_is_refused) {
    static const struct {
        const char *rows, *causes, *says;
    } bad[] = {
        {HEADER "T,s,q,1,x,,,nobody\n", own_causes, "own.csv:2: the cause 'nobody'"},
        {HEADER "T,s,q,1,x,,,\n", "[a]\nclass = unknown\nsays = x\n", "causes:2: [a]"},
        {HEADER "T,s,q,1,x,,,\n", "[a]\nclass = contradicts\nsays = x\n", "causes:2: [a]"},
        {HEADER "T,s,q,1,x,,,\n", "[a]\nclass = ours\nsays = x\nshown = SELECT 1\n", "[a]"},
        {HEADER "T,s,q,1,x,,,\n", "[a]\nclass = odd\nsays = x\n", "[a] lacks"},
        {HEADER "T,s,q,1,x,,,\n", "[a]\nclass = ours\n", "[a] lacks"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct own own;
        open_own(&own, bad[i].rows, bad[i].causes);
        ck_assert_ptr_null(own.score);
        ck_assert_msg(strstr(own.err.text, bad[i].says) != NULL, "%s", own.err.text);
        close_own(&own);
    }
    struct own own;
    open_own(&own, own_rows,
             "[open]\nclass = unknown\nsays = x\nshown = SELECT nothing\n"
             "[place]\nclass = ours\nsays = y\n");
    ck_assert_int_eq(score_judge(own.score, &own.err), ERR_USAGE);
    ck_assert_msg(strstr(own.err.text, "causes:4") != NULL, "%s", own.err.text);
    close_own(&own);
}

SUITE("score")
