/* Studies: tables of combinations, what the command line changes, files, and what is refused. */
#include <string.h>
#include <unistd.h>

#include "analysis/plot/plot.h"
#include "analysis/spread.h"
#include "tests/support/scratch.h"
#include "tests/support/study.h"
#include "tests/support/suite.h"

/* Two systems, two workloads and two rates: eight runs, and a query over them. */
static const char small[] = "[figure]\ntitle = t\nkind = lines\n"
                            "query = SELECT label AS series, rate AS x, latency_s_mean AS y\n"
                            "  FROM run WHERE workload_n = 0\n"
                            "[run]\nsystem = sparse-dllm, dllm-serve\n"
                            "label of system = Sparse, Serve\ngpu = l40s\n"
                            "workload = burst, osc\nrate = 0.2, 0.4\nrequests = 40\n"
                            "set cache.retention = 0.4\n";

static struct studied make_small(const struct study_changes *changes, unsigned n_threads) {
    char path[64];
    struct studied studied;
    struct err err = {0};
    ck_assert_msg(study_try(study_file(small, path), changes, n_threads, &studied, &err) == 0, "%s",
                  err.text);
    remove(path);
    return studied;
}

TEST(results_do_not_depend_on_the_number_of_threads) {
    const struct study_changes none = {.n_seeds = 1};
    struct studied one = make_small(&none, 1), two = make_small(&none, 2);
    study_same(&one, &two, "run", 8);
    studied_fini(&one);
    studied_fini(&two);
}

/* A row for every combination, the last list fastest, with what belongs to it. */
TEST(a_table_has_a_row_for_every_combination) {
    const struct study_changes none = {.n_seeds = 1};
    struct studied made = make_small(&none, 2);
    json_t *rows = study_rows(&made, "SELECT label, workload, rate, system_n, workload_n, rate_n, "
                                     "point, cache_retention FROM run ORDER BY rowid");
    for (size_t i = 0; i < 8; i++) {
        json_t *expected =
            json_pack("{s:s, s:s, s:f, s:i, s:i, s:i, s:i, s:f}", "label",
                      i < 4 ? "Sparse" : "Serve", "workload", i % 4 < 2 ? "burst" : "osc", "rate",
                      i % 2 == 0 ? 0.2 : 0.4, "system_n", (int)i / 4, "workload_n", (int)i / 2 % 2,
                      "rate_n", (int)i % 2, "point", (int)i, "cache_retention", 0.4);
        ck_assert(json_equal(json_array_get(rows, i), expected));
        json_decref(expected);
    }
    json_decref(rows);
    ck_assert_double_gt(study_number(&made, "SELECT count(*) FROM drawn WHERE y > 0"), 3);
    studied_fini(&made);
}

TEST(the_command_line_changes_what_a_study_runs) {
    const char *const sets[] = {"cache.retention=0.3,0.5"};
    const struct study_changes other = {
        .gpu = "a100-80g,h100", .host = "reference", .sets = sets, .n_sets = 1, .n_seeds = 1};
    struct studied made = make_small(&other, 2);
    ck_assert_double_eq(study_number(&made, "SELECT count(*) FROM run"), 32);
    ck_assert_double_eq(study_number(&made,
                                     "SELECT count(DISTINCT gpu || cache_retention) FROM run "
                                     "WHERE host = 'reference'"),
                        4);
    studied_fini(&made);
}

TEST(seeds_give_means_and_intervals_that_one_seed_lacks) {
    static const char mean[] = "SELECT mean(latency_s_mean) FROM run WHERE point = 0",
                      half[] = "SELECT half(latency_s_mean) FROM run WHERE point = 0";
    const struct study_changes none = {.n_seeds = 1}, three = {.n_seeds = 3};
    struct studied one = make_small(&none, 2), many = make_small(&three, 2);
    ck_assert(isnan(study_number(&one, half)));
    ck_assert_double_eq(study_number(&many, "SELECT count(*) FROM run"), 24);
    ck_assert_double_eq(study_number(&many, "SELECT max(point) FROM run"), 7);
    double values[3], sum = 0;
    for (int seed = 0; seed < 3; seed++) {
        char query[96];
        snprintf(query, sizeof query,
                 "SELECT latency_s_mean FROM run WHERE point = 0 AND seed = %d", seed + 1);
        values[seed] = study_number(&many, query);
        sum += values[seed];
    }
    ck_assert(values[0] == study_number(&one, mean) && values[1] != values[0]);
    ck_assert_double_eq_tol(study_number(&many, mean), sum / 3, 1e-9 * sum);
    struct spread spread = spread_of(values, 3);
    ck_assert_double_eq_tol(study_number(&many, half), spread.high - spread.mean, 1e-9 * sum);
    studied_fini(&one);
    studied_fini(&many);
}

TEST(a_study_is_drawn_as_svg_png_pdf_and_csv_and_a_table_as_csv_alone) {
    static const char *const suffixes[] = {"csv", "svg", "png", "pdf"};
    char folder[] = "/tmp/unmask-figure-XXXXXX", path[128], stem[64], line[128];
    struct err err = {0};
    const struct study_changes none = {.n_seeds = 1};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(stem, sizeof stem, "%s/figure", folder);
    for (int table = 0; table < 2; table++) {
        struct studied made;
        char text[320];
        snprintf(text, sizeof text,
                 "[figure]\ntitle = t\nkind = %s\nquery = SELECT 'a, b' AS panel, 's' AS series,\n"
                 "  canvas AS x, par AS y FROM lmax ORDER BY canvas\n"
                 "[lmax]\nsystem = mosaic\ngpu = a100-40g\nmodel = llada-8b\n"
                 "prompt_share = 0.5\ncanvas = 2048, 1024\n",
                 table == 1 ? "table" : "bars");
        ck_assert_msg(study_try(study_file(text, path), &none, 1, &made, &err) == 0, "%s",
                      err.text);
        remove(path);
        ck_assert_msg(study_draw(&made.study, made.tables, stem, FIGURE_ALL, &err) == 0, "%s",
                      err.text);
        snprintf(path, sizeof path, "%s.csv", stem);
        FILE *file = fopen(path, "r");
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        ck_assert_str_eq(line,
                         table == 1 ? "panel,series,x,y\n" : "panel,series,x,y,low,high,paper\n");
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        ck_assert_int_eq(strncmp(line, "\"a, b\",s,1024,", 14), 0);
        fclose(file);
        for (size_t i = 0; i < (table == 1 ? 1 : 4); i++) {
            snprintf(path, sizeof path, "%s.%s", stem, suffixes[i]);
            ck_assert_msg(remove(path) == 0, "%s", path);
        }
        studied_fini(&made);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

/* Of two GPUs both profiles, and each workload once; also where the figure says something else. */
TEST(a_note_names_every_profile_and_each_workload_once) {
    static const char two[] =
        "[figure]\ntitle = t\nkind = lines\nquery = SELECT gpu AS series, rate AS x, "
        "latency_s_mean AS y\n  FROM run\n[run]\nsystem = dllm-serve\ngpu = l40s, h20\n"
        "workload = burst, osc\nrate = 0.2\nrequests = 4\n";
    char path[64], *note = NULL;
    size_t size;
    struct studied made;
    struct err err = {0};
    const struct study_changes none = {.n_seeds = 1};
    ck_assert_msg(study_try(study_file(two, path), &none, 1, &made, &err) == 0, "%s", err.text);
    remove(path);
    made.study.note = "";
    FILE *out = open_memstream(&note, &size);
    study_print_note(&made.study, made.tables, out);
    fclose(out);
    ck_assert_str_eq(note, "caption      profile l40s: imported and transferred, h20: roofline; "
                           "burst: generated arrivals, real inputs, fixed outputs; osc: generated "
                           "arrivals, assumed inputs, fixed outputs\n");
    free(note);
    studied_fini(&made);
}

/* The highest tick of two panels that compare: of a stack it is one of the sum. */
TEST(panels_that_compare_share_the_range_of_the_highest) {
    static const struct {
        const char *kind, *of_both;
        int n;
    } rows[] = {{"bars", " 400<", 2}, {"bars", " 700<", 0}, {"stacked", " 700<", 2}};
    char path[64], text[640];
    const struct study_changes none = {.n_seeds = 1};
    struct err err = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct studied made;
        snprintf(
            text, sizeof text,
            "[figure]\ntitle = t\nkind = %s\nsame_y = on\nquery = SELECT panel, series, 1 AS x,\n"
            "  CASE panel WHEN 'small' THEN 30 ELSE 300 + 100 * (series = 's') END AS y\n"
            "  FROM (SELECT 'small' AS panel UNION SELECT 'tall'),\n"
            "  (SELECT 's' AS series UNION SELECT 't') ORDER BY panel, series DESC\n"
            "[lmax]\nsystem = mosaic\ngpu = a100-40g\nmodel = llada-8b\n"
            "prompt_share = 0.5\ncanvas = 1024\n",
            rows[i].kind);
        ck_assert_msg(study_try(study_file(text, path), &none, 1, &made, &err) == 0, "%s",
                      err.text);
        remove(path);
        ck_assert_msg(
            study_draw(&made.study, made.tables, scratch_path("drawn"), FIGURE_ALL, &err) == 0,
            "%s", err.text);
        char *svg = scratch_read(scratch_path("drawn.svg"));
        int n = 0;
        for (const char *at = svg; (at = strstr(at, rows[i].of_both)) != NULL; at++) {
            n++;
        }
        ck_assert_int_eq(n, rows[i].n);
        free(svg);
        studied_fini(&made);
    }
}

/* Readings stay in the order of the answer; a printed row of which nothing speaks is not hidden. */
TEST(every_printed_row_is_in_the_comparison) {
    char path[64];
    struct studied made;
    struct err err = {0};
    struct paper_result *rows;
    size_t n;
    const struct study_changes none = {.n_seeds = 1};
    const struct config calibrated = {0};
    const char *text =
        "[figure]\ntitle = t\nkind = bars\nquery = SELECT 1 AS x, 2 AS y\n"
        "paper = mosaic.csv\nrows = source IN ('Fig 13', 'Sec 3 Fig 5')\n"
        "declared = second\ncompare = SELECT id, y * 10.0 AS ours, 'first' AS reading\n"
        "  FROM printed JOIN drawn WHERE quantity = 'inflation_max'\n"
        "  UNION ALL SELECT id, NULL, 'second' FROM printed\n"
        "  WHERE quantity = 'inflation_max'\n";
    ck_assert_msg(study_try(study_file(text, path), &none, 1, &made, &err) == 0, "%s", err.text);
    remove(path);
    ck_assert_int_eq(
        study_compare(&made.study, made.tables, &made.paper, &calibrated, &rows, &n, &err), 0);
    ck_assert_uint_eq(n, 5);
    static const double ours[] = {NAN, NAN, NAN, 20, NAN};
    for (size_t i = 0; i < 5; i++) {
        ck_assert(isnan(ours[i]) ? isnan(rows[i].ours) : rows[i].ours == ours[i]);
        ck_assert_int_eq(rows[i].role, i == 3 ? PAPER_APPENDIX : PAPER_COUNTED);
    }
    ck_assert_str_eq(rows[3].row->quantity, "inflation_max");
    ck_assert_str_eq(rows[4].reading, "second");
    free(rows);
    studied_fini(&made);
}

#define FIGURE "[figure]\ntitle = t\nkind = lines\nquery = SELECT 1 AS x, 2 AS y\n"

TEST(a_bad_study_is_refused_with_its_line) {
    study_refuses("[figure]\ntitel = x\n",
                  ":2: unknown key 'titel' in [figure]; did you mean 'title'?");
    study_refuses("[figure]\ntitle = t\nquery = SELECT 1\nkind = line\n",
                  ":4: 'line' is not lines, bars, stacked or table; did you mean 'lines'?");
    study_refuses("[figure]\ntitle = x\n", "[figure] lacks 'query'");
    study_refuses("[figure]\nquery = SELECT 1\n", "[figure] lacks 'title'");
    study_refuses(FIGURE "log_x = maybe\n", ":5: log_x is on or off, not 'maybe'");
    study_refuses(FIGURE "y_max = high\n", ":5: 'high' is not a number for y_max");
    study_refuses(FIGURE "[runs]\nsystem = a\n", ":6: found 'system' in [runs], expected");
    study_refuses(FIGURE "[run]\nsystems = a\n", ":6: unknown key 'systems' in [run]; did you "
                                                 "mean 'system'?");
    study_refuses(FIGURE "[run]\nsystem = a, b\nlabel of system = A\n",
                  "'label of system' in [run] has 1 values, 'system' has 2");
    study_refuses(FIGURE "[run]\nsystem = a\ngpu = g\n", "[run] lacks 'workload'");
    study_refuses(FIGURE "[run]\nsystem = a\ngpu = g\nworkload = w\nx = rate\n",
                  "[run] has no key 'rate' for x");
    study_refuses(FIGURE "[run]\nsystem = dllm-serve\ngpu = l40s\nworkload = osc\nrate = -1\n",
                  "rate: '-1' is not a number above 0");
    study_refuses(FIGURE "[run]\nsystem = nobody\ngpu = l40s\nworkload = osc\nrate = 1\n",
                  "unknown system 'nobody'");
}

TEST(a_question_that_makes_no_sense_is_refused_by_its_job) {
    static const char lmax[] = FIGURE "[lmax]\nsystem = mosaic\ngpu = a100-40g\nmodel = llada-8b\n";
    static const struct {
        const char *rest, *sentence;
    } wrong[] = {{"", "[lmax] lacks 'prompt_share'"},
                 {"prompt_share = 1\n", "prompt_share: of the canvas it is below 1"},
                 {"prompt_share = 0.5\nshare_of = prompt\n",
                  "share_of: 'prompt' is neither canvas nor output"},
                 {"prompt_share = 0.5\nmultiple_of = 1048577\n",
                  "multiple_of: '1048577' is not a whole number of at most 1048576"},
                 {"prompt_share = 0.5\ncanvas = many\n", "canvas: 'many' is not a whole number"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s", lmax, wrong[i].rest);
        study_refuses(text, wrong[i].sentence);
    }
    study_refuses(FIGURE "[live]\nmodel = llada-8b\ncontext = 64\nmasked = 1.5\n",
                  "masked: '1.5' is not a number from 0 to 1");
    study_refuses(FIGURE "[layer]\nmodel = llada-moe\nqueries = 1\ncontext = 64\n",
                  "is a mixture of experts");
}

/* SQLite's complaint, in its words, behind the line of the query; a query reads tables and nothing
 * else. */
TEST(a_query_that_is_wrong_or_writes_is_refused_with_its_line) {
    static const struct {
        const char *query, *sentence;
    } wrong[] = {
        {"SELECT y FROM nowhere", ":4: "},     {"SELEC 1", ":4: "},
        {"SELECT \"nothing\"", ":4: "},        {"SELECT 1; SELECT 2", ":4: expected one SELECT"},
        {"CREATE TABLE t (a)", ":4: "},        {"ATTACH '/tmp/x.db' AS x", ":4: "},
        {"PRAGMA user_version = 3", ":4: "},   {"DELETE FROM sqlite_master", ":4: "},
        {"SELECT load_extension('x')", ":4: "}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "[figure]\ntitle = t\nkind = lines\nquery = %s\n",
                 wrong[i].query);
        study_refuses(text, wrong[i].sentence);
    }
    study_refuses(FIGURE "[select t]\nquery = SELECT x\n  FROM nowhere\n", ":6: ");
}

/* A query of the program's own that fails is told, the first of several, and answers no row. */
TEST(a_query_of_our_own_that_fails_is_told) {
    struct tables *tables = tables_open();
    struct err err = {0};
    json_t *rows = json_pack("[{s:i, s:f}]", "seed", 3, "y", 2.5);
    ck_assert_int_eq(tables_add(tables, "run", rows, &err), 0);
    json_decref(rows);
    ck_assert(tables_have(tables, "run", "seed,y"));
    ck_assert(!tables_have(tables, "run", "seed,x"));
    ck_assert(!tables_have(tables, "nowhere", "seed"));
    ck_assert(!tables_have(tables, NULL, ""));
    rows = tables_own(tables, "SELECT seed FROM run");
    ck_assert_uint_eq(json_array_size(rows), 1);
    json_decref(rows);
    ck_assert_int_eq(tables_failed(tables, &err), 0);
    for (int i = 0; i < 2; i++) {
        rows = tables_own(tables, i == 0 ? "SELECT first FROM run" : "SELECT second FROM run");
        ck_assert_uint_eq(json_array_size(rows), 0);
        json_decref(rows);
    }
    ck_assert_int_eq(tables_failed(tables, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "first") != NULL, "%s", err.text);
    tables_close(tables);
}

/* Whatever SQLite was compiled with. */
TEST(queries_can_calculate) {
    struct tables *tables = tables_open();
    json_t *rows = tables_own(
        tables, "SELECT exp(0) + ln(1) + log(100) + log10(10) + log2(8) + log(2, 16) AS a, "
                "pow(2, 3) + sqrt(4) + mod(7, 4) + degrees(radians(90)) AS b, typeof(floor(7)) AS "
                "c, ceil(1.5) AS d, ln(0) AS e, exp('word') AS f, exp(NULL) AS g");
    struct err err = {0};
    ck_assert_msg(tables_failed(tables, &err) == 0, "%s", err.text);
    const json_t *row = json_array_get(rows, 0);
    ck_assert_double_eq(json_number_value(json_object_get(row, "a")), 11);
    ck_assert_double_eq_tol(json_number_value(json_object_get(row, "b")), 103, 1e-12);
    ck_assert_str_eq(json_string_value(json_object_get(row, "c")), "integer");
    ck_assert_double_eq(json_number_value(json_object_get(row, "d")), 2);
    for (const char *key = "efg"; *key != '\0'; key++) {
        ck_assert(json_is_null(json_object_get(row, (char[]){*key, '\0'})));
    }
    json_decref(rows);
    tables_close(tables);
}

SUITE("study")
