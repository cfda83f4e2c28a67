/* unmask plot: points over seeds, distributions, courses, and what is not drawn together. */
#include <jansson.h>
#include <math.h>
#include <sqlite3.h>
#include <string.h>

#include "analysis/field.h"
#include "analysis/spread.h"
#include "sim/base/mem.h"
#include "tests/support/cli.h"
#include "tests/support/outputs.h"
#include "tests/support/says.h"

static const char grid[] = "[sweep]\nsystems = dllm-serve, sparse-dllm\nworkloads = burst\n"
                           "gpus = l40s\nrates = 0.2, 0.4\nrequests = 30\n";

/* Eight runs of two seeds with their steps, and what the sweep printed of them. */
static const char *make_runs(const char **json) {
    const char *db = scratch_path("grid.db");
    *json = scratch_path("grid.json");
    if (access(*json, R_OK) != 0) { /* the suite's first test that needs them */
        char *text = PRINTS("sweep", scratch_write("grid.ini", grid), "--seeds", "2", "--db", db,
                            "--levels", "steps", "--json");
        *json = scratch_write("grid.json", text);
        free(text);
    }
    return db;
}

static json_t *rows_of(char *text) {
    json_t *rows = json_loads(text, 0, NULL);
    ck_assert_msg(json_is_array(rows), "%.300s", text);
    free(text);
    return rows;
}

static double number(const json_t *rows, size_t i, const char *key) {
    const json_t *value = json_object_get(json_array_get(rows, i), key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *word(const json_t *rows, size_t i, const char *key) {
    return json_string_value(json_object_get(json_array_get(rows, i), key));
}

/* The p99 latencies of a point's runs in what a sweep printed. */
static struct spread printed_p99(const char *path, size_t point) {
    json_error_t error;
    json_t *all = json_load_file(path, 0, &error);
    const json_t *runs = json_object_get(json_array_get(all, point), "runs");
    double values[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *latency = json_object_get(json_array_get(runs, i), "latency_s");
        values[i] = json_number_value(json_object_get(latency, "p99"));
    }
    json_decref(all);
    return spread_of(values, 2);
}

/* The mean of what a point's runs were offered. */
static double offered(const char *path, size_t point) {
    json_error_t error;
    json_t *all = json_load_file(path, 0, &error);
    const json_t *runs = json_object_get(json_array_get(all, point), "runs");
    double sum = 0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *rates = json_object_get(json_array_get(runs, i), "offered");
        sum += json_number_value(json_object_get(rates, "rate_req_s"));
        ck_assert_double_eq(json_number_value(json_object_get(rates, "asked_req_s")),
                            point % 2 == 0 ? 0.2 : 0.4);
    }
    json_decref(all);
    return sum / 2;
}

TEST(seeds_are_one_point_with_the_interval_of_their_mean) {
    const char *json, *db = make_runs(&json);
    char *of_db =
        PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--by", "system", "--json");
    char *of_json =
        PRINTS("plot", json, "-x", "rate", "-y", "latency_s_p99", "--by", "system", "--json");
    ck_assert_str_eq(of_db, of_json);
    free(of_json);
    json_t *rows = rows_of(of_db);
    ck_assert_uint_eq(json_array_size(rows), 4);
    for (size_t i = 0; i < 4; i++) {
        struct spread spread = printed_p99(json, i);
        ck_assert_str_eq(word(rows, i, "series"), i < 2 ? "dllm-serve" : "sparse-dllm");
        ck_assert_double_eq_tol(number(rows, i, "x"), offered(json, i), 1e-6);
        ck_assert_double_eq_tol(number(rows, i, "y"), spread.mean, 1e-6);
        ck_assert_double_eq_tol(number(rows, i, "low"), spread.low, 1e-6);
        ck_assert_double_eq_tol(number(rows, i, "high"), spread.high, 1e-6);
    }
    json_decref(rows);
}

TEST(runs_that_differ_in_more_than_the_seed_are_not_averaged) {
    const char *json, *db = make_runs(&json);
    REFUSES(2, "runs that differ in 'system' would be one point: give --by system", "plot", db,
            "-x", "rate", "-y", "tpf");
    REFUSES(2, "runs that differ in 'system' would be one point", "plot", json, "-x", "rate", "-y",
            "tpf");
    REFUSES(2, "runs that differ in 'rate' would be one curve of 'dllm-serve': give --by rate",
            "plot", db, "--cdf", "latency_s", "--by", "system");
    REFUSES(2, "runs that differ in 'run' would be one curve of 'dllm-serve'", "plot", db,
            "--over-time", "running", "--by", "system");
    json_t *rows =
        rows_of(PRINTS("plot", db, "-x", "rate", "-y", "tpf", "--look", "points", "--json"));
    ck_assert_uint_eq(json_array_size(rows), 4);
    json_decref(rows);
    rows = rows_of(PRINTS("plot", db, "-x", "rate", "-y", "tpf", "--where",
                          "system = 'dllm-serve' AND seed = 2", "--json"));
    ck_assert_uint_eq(json_array_size(rows), 2);
    ck_assert(isnan(number(rows, 0, "low")));
    json_decref(rows);
}

/* Every request is a step of the curve, those of both seeds together; who is rejected is missing.
 */
TEST(a_distribution_is_of_all_requests) {
    const char *json, *db = make_runs(&json);
    json_t *rows = rows_of(PRINTS("plot", db, "--cdf", "latency_s", "--by", "system", "--where",
                                  "rate = 0.4", "--json"));
    size_t n = json_array_size(rows);
    ck_assert_uint_eq(n, 2 * 2 * 30);
    for (size_t i = 0; i < n; i++) {
        ck_assert_double_eq_tol(number(rows, i, "y"), 100 * (double)(i % 60 + 1) / 60, 1e-6);
        ck_assert(i % 60 == 0 || number(rows, i, "x") >= number(rows, i - 1, "x"));
    }
    json_decref(rows);
    db = scratch_path("rejects.db");
    const char *svg = scratch_path("rejects.svg");
    free(
        PRINTS("run", "--requests", "40", "--rate", "20", "--set", "max_in_system=10", "--db", db));
    rows = rows_of(PRINTS("plot", db, "--cdf", "ttft_s", "--json"));
    n = json_array_size(rows);
    ck_assert(n >= 10 && n < 40);
    ck_assert_double_eq_tol(number(rows, n - 1, "y"), 100.0 * (double)n / 40, 1e-6);
    json_decref(rows);
    free(PRINTS("plot", db, "--cdf", "ttft_s", "--out", svg));
    FILE *file = fopen(svg, "r");
    ck_assert_ptr_nonnull(file);
    char *text = scratch_rest(file);
    fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "1 of 1 runs"));
    free(text);
}

/* Of summaries alone nobody knows which differ in the seed. */
TEST(summaries_without_a_sweep_are_runs_of_their_own) {
    char *one = PRINTS("run", "--requests", "3", "--json"), *text;
    char *other = PRINTS("run", "--requests", "4", "--json");
    ck_assert_int_ge(asprintf(&text, "[%s, %s, %s]", one, other, one), 0);
    free(other); /* one of them is there twice and counts once */
    const char *path = scratch_write("two.json", text);
    REFUSES(2, "runs that differ in 'run' would be one point", "plot", path, "-x", "seed", "-y",
            "tpf");
    json_t *rows = rows_of(PRINTS("plot", path, "-x", "run", "-y", "tpf", "--json"));
    ck_assert_uint_eq(json_array_size(rows), 2);
    json_decref(rows);
    free(one);
    free(text);
}

/* How the runs are to be read stands in the caption. */
TEST(a_caption_counts_saturated_and_rejecting_runs) {
    const char *db = scratch_path("caption.db");
    const char *file =
        scratch_write("caption.ini", "[sweep]\nsystems = dllm-serve\ngpus = l40s\nrates = 0.1, 3\n"
                                     "requests = 200\nset.max_in_system = 20\n");
    free(PRINTS("sweep", file, "--seeds", "2", "--db", db));
    char *text = PRINTS("plot", db, "-x", "rate", "-y", "latency_s.mean");
    static const char *const said[] = {"2 of 4 runs saturated", "2 of 4 runs rejected requests",
                                       "means over 2 seeds"};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        ck_assert_msg(strstr(text, said[i]) != NULL, "%s", text);
    }
    free(text);
}

static const char *const tenants_sql =
    "UPDATE runs SET summary = json_remove(summary, '$.tenants', '$.fairness', '$.classes', "
    "'$.fairness_of_classes'), sha256 = NULL";

static const char *const groups_said[][3] = {
    {"tenant", "tenants      2; fairness 0.", "tenant = 2"},
    {"priority", "classes      2; fairness 0.", "priority = 2"}};

/* Of runs, of single requests and of distributions; also of what an older program recorded. */
static void tells_apart(const char *by, const char *said, const char *where) {
    char name[64], rows_text[256], both[64];
    snprintf(name, sizeof name, "%s.db", by);
    const char *db = scratch_path(name);
    snprintf(rows_text, sizeof rows_text,
             "arrival_us,input_tokens,output_tokens,%s\n0,100,64,1\n0,2000,64,2\n"
             "9000000,100,64,1\n9000000,2000,64,2\n9000000,100,64,2\n",
             by);
    snprintf(name, sizeof name, "%s.csv", by);
    const char *trace = scratch_write(name, rows_text);
    free(PRINTS("run", "--workload", trace, "--rate", "1", "--db", db));
    free(PRINTS("run", "--workload", trace, "--rate", "4", "--db", db));
    char *text = PRINTS("run", "--workload", trace, "--slo-latency", "5s");
    ck_assert_msg(strstr(text, said) != NULL, "%s", text);
    free(text);
    char *before = NULL;
    for (int is_old = 0; is_old < 2; is_old++) {
        char *now = PRINTS("plot", db, "-x", "rate", "-y", "latency_s.mean,service_share", "--by",
                           by, "--json");
        ck_assert(before == NULL || strcmp(before, now) == 0);
        json_t *rows = rows_of(mem_text(now));
        ck_assert_uint_eq(json_array_size(rows), 8);
        ck_assert_double_gt(number(rows, 2, "y"), number(rows, 0, "y"));
        json_decref(rows);
        free(before);
        before = now;
        sqlite3 *handle;
        ck_assert_int_eq(sqlite3_open(db, &handle), SQLITE_OK);
        ck_assert_int_eq(sqlite3_exec(handle, tenants_sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(handle);
    }
    free(before);
    json_t *rows = rows_of(PRINTS("plot", db, "-x", "prompt_tokens", "-y", "latency_s",
                                  "--each-request", "--by", by, "--where", where, "--json"));
    ck_assert_uint_eq(json_array_size(rows), 6);
    json_decref(rows);
    snprintf(both, sizeof both, "rate,%s", by);
    rows = rows_of(PRINTS("plot", db, "--cdf", "latency_s", "--by", both, "--json"));
    ck_assert_uint_eq(json_array_size(rows), 10);
    ck_assert_double_eq_tol(number(rows, 9, "y"), 100, 1e-9);
    json_decref(rows);
    snprintf(both, sizeof both, "not told apart by %s", by);
    REFUSES(2, "a run has no field 'mfu'", "plot", db, "-x", "rate", "-y", "mfu", "--by", by);
    REFUSES(2, both, "plot", db, "--over-time", "running", "--by", by);
    REFUSES(2, "not by both at once", "plot", db, "-x", "rate", "-y", "ttft_s.mean", "--by",
            "tenant,priority");
    const char *page = scratch_path("groups.html");
    free(PRINTS("report", db, "--out", page));
    char *text_of_page = scratch_read(page);
    snprintf(both, sizeof both, "\"%s\":[[1,2,2,0,", said[0] == 't' ? "tenants" : "classes");
    ck_assert_msg(strstr(text_of_page, both) != NULL, "%s", both);
    free(text_of_page);
}

TEST(plots_tell_tenants_and_priorities_apart) {
    for (size_t i = 0; i < sizeof groups_said / sizeof groups_said[0]; i++) {
        tells_apart(groups_said[i][0], groups_said[i][1], groups_said[i][2]);
    }
    const char *db = scratch_path("tenant.db");
    REFUSES(2, "runs that differ in 'tenant' would be one point", "plot", db, "-x", "rate", "-y",
            "service_share");
    char *text = PRINTS("plot", db, "-x", "rate", "-y", "latency_s.mean", "--where",
                        "scheduler != 'tenant' AND system <> 'it''s priority'", "--json");
    json_t *rows = rows_of(text); /* texts name no group */
    ck_assert_uint_eq(json_array_size(rows), 2);
    json_decref(rows);
}

/* A plug-in is called by its own name, wherever its file lies. */
TEST(plots_call_a_plug_in_by_its_name) {
    const char *db = scratch_path("own.db");
    free(PRINTS("run", "--requests", "4", "--db", db, "--scheduler",
                suite_plugin("template_scheduler")));
    free(PRINTS("run", "--requests", "4", "--db", db, "--scheduler",
                suite_plugin("state_scheduler")));
    free(PRINTS("run", "--requests", "4", "--db", db, "--scheduler",
                suite_plugin("static_scheduler")));
    char *text = PRINTS("plot", db, "-x", "scheduler", "-y", "tpf", "--json");
    ck_assert_msg(strstr(text, "\"shortest-first\"") != NULL &&
                      strstr(text, "\"counting (/") != NULL,
                  "%s", text);
    free(text);
}

/* Copies of a database are no further samples, and shares keep within 0 and 1. */
TEST(doubles_of_one_identity_count_once) {
    const char *db = scratch_path("once.db"), *copy = scratch_path("copy.db");
    const char *file = scratch_write("once.ini", "[sweep]\nsystems = dllm-serve\ngpus = l40s\n"
                                                 "rates = 0.3\nrequests = 30\n");
    free(PRINTS("sweep", file, "--seeds", "3", "--db", db, "--slo-latency", "11500ms"));
    free(PRINTS("merge", copy, db));
    char *once = PRINTS("plot", db, "-x", "rate", "-y", "attainment,latency_s.p99", "--json");
    char *twice =
        PRINTS("plot", db, copy, "-x", "rate", "-y", "attainment,latency_s.p99", "--json");
    ck_assert_str_eq(once, twice);
    free(twice);
    twice = PRINTS("plot", db, copy, "-x", "rate", "-y", "attainment");
    ck_assert_ptr_nonnull(strstr(twice, "3 runs are on record more than once and count once"));
    free(twice);
    json_t *rows = rows_of(once);
    ck_assert_uint_eq(json_array_size(rows), 2);
    double low = number(rows, 0, "low"), high = number(rows, 0, "high");
    ck_assert(low >= 0 && low < number(rows, 0, "y") && high <= 1 && high > number(rows, 0, "y"));
    json_decref(rows);
    const char *page = scratch_path("once.html");
    free(PRINTS("report", db, "--out", page));
}

/* One path, two contents: never one point, until they are told apart. */
TEST(runs_of_other_contents_are_not_averaged) {
    static const char *const lengths[] = {"100,64", "1000,256"};
    const char *db = scratch_path("contents.db");
    for (size_t i = 0; i < 2; i++) {
        char text[160];
        snprintf(text, sizeof text, "arrival_us,input_tokens,output_tokens\n0,%s\n1000000,100,64\n",
                 lengths[i]);
        const char *trace = scratch_write("contents.csv", text);
        free(PRINTS("run", "--gpu", "l40s", "--workload", trace, "--db", db, "--seed",
                    i == 0 ? "1" : "2"));
    }
    REFUSES(2, "runs that differ in 'inputs' would be one point: give --by inputs", "plot", db,
            "-x", "system", "-y", "latency_s.mean");
    json_t *rows = rows_of(
        PRINTS("plot", db, "-x", "system", "-y", "latency_s.mean", "--by", "inputs", "--json"));
    ck_assert_uint_eq(json_array_size(rows), 2);
    json_decref(rows);
    char study[512];
    snprintf(study, sizeof study,
             "[figure]\ntitle = t\nkind = lines\nquery = SELECT 1 AS x, mean(latency_s_mean) AS y "
             "FROM recorded\n[recorded]\nfile = %s\n",
             db);
    REFUSES(2, "differ in 'inputs'", "figure", scratch_write("contents.ini", study));
    REFUSES(1, "cannot open 'nosuch.db'", "plot", "nosuch.db");
}

/* Real arrivals and lengths, nothing drawn: seeds are one run without an interval. */
TEST(seeds_that_draw_nothing_have_no_interval) {
    const char *db = scratch_path("real.db");
    const char *file = scratch_write("real.ini", "[sweep]\nsystems = dllm-serve\ngpus = l40s\n"
                                                 "workloads = azure\nrates = 0.3\nrequests = 20\n");
    free(PRINTS("sweep", file, "--seeds", "3", "--db", db));
    json_t *rows = rows_of(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--json"));
    ck_assert_uint_eq(json_array_size(rows), 1);
    ck_assert(isnan(number(rows, 0, "low")) && isfinite(number(rows, 0, "y")));
    ck_assert_double_eq(number(rows, 0, "x"), 0.3); /* a trace meets its rate */
    json_decref(rows);
    rows =
        rows_of(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--by", "seed", "--json"));
    ck_assert_uint_eq(json_array_size(rows), 3);
    json_decref(rows);
}

/* A point each, of every run that is drawn. */
TEST(single_requests_are_points) {
    const char *json, *db = make_runs(&json);
    json_t *rows = rows_of(PRINTS("plot", db, "-x", "prompt_tokens", "-y", "latency_s",
                                  "--each-request", "--by", "system", "--json"));
    ck_assert_uint_eq(json_array_size(rows), 2 * 2 * 2 * 30);
    ck_assert_double_gt(number(rows, 0, "x"), 1);
    ck_assert_double_gt(number(rows, 0, "y"), 1);
    json_decref(rows);
    REFUSES(2, "a request has no field 'tpf'", "plot", db, "-x", "prompt_tokens", "-y", "tpf",
            "--each-request");
    REFUSES(2, "--each-request goes with", "plot", db, "--cdf", "ttft_s", "--each-request");
}

TEST(a_course_has_a_panel_for_each_field_in_the_order_asked_for) {
    const char *json, *db = make_runs(&json);
    json_t *rows = rows_of(PRINTS("plot", db, "--over-time", "running,batch,tokens_per_s", "--by",
                                  "system", "--where", "seed = 1 AND rate = 0.2", "--json"));
    ck_assert_str_eq(word(rows, 0, "panel"), "running requests");
    ck_assert_str_eq(word(rows, 400, "panel"), "batch (requests)");
    size_t n = json_array_size(rows);
    ck_assert_str_eq(word(rows, n - 1, "panel"), "committed tokens (tokens/s)");
    double tokens = 0;
    for (size_t i = n - 400; i < n - 200; i++) {
        tokens += number(rows, i, "y") * 2 * number(rows, n - 400, "x");
    }
    ck_assert_double_eq_tol(tokens, 30 * 256, 1); /* of the first system, whole */
    json_decref(rows);
    const char *bare = scratch_path("bare.db");
    free(PRINTS("run", "--requests", "3", "--db", bare));
    REFUSES(2, "no run has steps on record", "plot", bare, "--over-time", "batch");
    REFUSES(2, "is no database", "plot", json, "--over-time", "batch");
}

TEST(files_are_drawn_by_their_endings_with_units_on_the_axes) {
    const char *json, *db = make_runs(&json), *svg = scratch_path("p.svg"),
                      *csv = scratch_path("p.csv"), *pdf = scratch_path("p.pdf");
    free(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--by", "system", "--log", "xy",
                "--out", svg, "--out", csv, "--out", pdf));
    FILE *file = fopen(svg, "r");
    ck_assert_ptr_nonnull(file);
    char *text = scratch_rest(file);
    fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "p99 latency (s)"));
    ck_assert_ptr_nonnull(strstr(text, "rate (requests/s)"));
    ck_assert_ptr_nonnull(strstr(text, "over 2 seeds"));
    free(text);
    ck_assert_int_eq(access(pdf, R_OK), 0);
    ck_assert_int_eq(access(csv, R_OK), 0);
    REFUSES(2, "does not end with .svg, .png, .pdf or .csv", "plot", db, "-x", "rate", "-y", "tpf",
            "--out", "p.gif");
    json_t *rows =
        rows_of(PRINTS("plot", db, "-x", "system", "-y", "tpf", "--by", "rate", "--json"));
    ck_assert_str_eq(word(rows, 0, "x"), "dllm-serve");
    ck_assert_str_eq(word(rows, 0, "series"), "rate=0.2");
    json_decref(rows);
}

TEST(what_cannot_be_drawn_is_one_sentence) {
    const char *json, *db = make_runs(&json);
    REFUSES(2, "a run has no field 'rat'; did you mean 'rate'?", "plot", db, "-x", "rat", "-y",
            "tpf");
    REFUSES(2, "a request has no field 'latency'; did you mean 'latency_s'?", "plot", db, "--cdf",
            "latency");
    REFUSES(2, "a run has no field 'latency'; did you mean 'latency_s.mean', 'latency_s.p50', ",
            "plot", db, "-x", "rate", "-y", "latency");
    REFUSES(2, "a run has no field 'p99'; did you mean 'latency_s.p99', 'ttft_s.p99', ", "plot", db,
            "-x", "rate", "-y", "p99");
    REFUSES(2, "a run has no field 'latency.p99'; did you mean 'latency_s.p99'?", "plot", db, "-x",
            "rate", "-y", "latency.p99");
    REFUSES(2, "--where: no run is so that", "plot", db, "-x", "rate", "-y", "tpf", "--where", "0");
    REFUSES(2, "--where: ", "plot", db, "-x", "rate", "-y", "tpf", "--where", "rate <");
    REFUSES(2, "-y needs -x", "plot", db, "-y", "tpf");
    REFUSES(2, "-x goes with -y", "plot", db, "-x", "tpf", "--cdf", "latency_s");
    REFUSES(2, "a plot has one", "plot", db, "--cdf", "latency_s", "--over-time", "running");
    REFUSES(2, "is neither what", "plot", scratch_write("x.json", "[{}]"), "-x", "a", "-y", "b");
    REFUSES(2, "no run has a number", "plot",
            scratch_write("x.json", "[{\"point\":{\"a\":[1]},\"summary\":5},{\"point\":{}}]"), "-x",
            "a", "-y", "run");
    REFUSES(1, "x.json:1", "plot", scratch_write("x.json", "[{]"), "-x", "a", "-y", "b");
    REFUSES(1, "found a NUL byte", "plot", "/dev/zero", "-x", "a", "-y", "b");
    REFUSES(1, "cannot open", "plot", "/nowhere.db", "-x", "a", "-y", "b");
    REFUSES(2, "no run has a number", "plot", db, "-x", "rate", "-y", "goodput_req_s");
}

/* Without fields to draw, those that there are. */
TEST(the_fields_are_listed_with_their_units) {
    const char *json, *db = make_runs(&json);
    json_t *rows = rows_of(PRINTS("plot", db, "--json"));
    size_t found = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (strcmp(word(rows, i, "field"), "latency_s.p99") == 0) {
            ck_assert_str_eq(word(rows, i, "unit"), "s");
            ck_assert_double_eq(number(rows, i, "values"), 8);
            found++;
        }
        found += strcmp(word(rows, i, "field"), "rate") == 0;
    }
    ck_assert_uint_eq(found, 2);
    json_decref(rows);
}

static void check_known(const char *prefix, json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char name[FIELD_CHARS];
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
        if (json_is_object(value)) {
            check_known(name, value);
        } else if (json_is_number(value)) {
            ck_assert_msg(field_find(name) != NULL || field_unit(name)[0] != '\0',
                          "analysis/field.c has no entry for %s", name);
        }
    }
}

TEST(every_number_of_a_run_is_a_field_with_a_label) {
    json_t *run = json_parsed(PRINTS("run", "--requests", "3", "--json"));
    ck_assert_ptr_nonnull(run);
    check_known("", run);
    json_decref(run);
    char text[FIELD_CHARS];
    ck_assert_str_eq(field_label("latency_s.p99", text), "p99 latency (s)");
    ck_assert_str_eq(field_label("latency_s_p99", text), "p99 latency (s)");
    ck_assert_str_eq(field_spelled("latency_s_p99", text), "latency_s.p99");
    ck_assert_str_eq(field_spelled("offered_rate_req_s", text), "offered.rate_req_s");
    ck_assert_str_eq(field_label("cache.retention", text), "cache.retention");
    ck_assert_str_eq(field_label("max_batched_tokens", text), "max batched (tokens)");
    ck_assert_str_eq(field_label("latency_sum", text), "latency sum");
}

/* What a sweep prints of point `point` less the one it is compared with, of p99. */
static const json_t *printed_difference(const json_t *sweep, size_t point) {
    const json_t *all = json_object_get(json_array_get(sweep, point), "differences");
    return json_object_get(all, "latency_s.p99");
}

static double part(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* Sweep, plot and the runs themselves have the same differences, paired by seed. */
TEST(a_plot_against_a_value_shows_the_differences_that_a_sweep_prints) {
    const char *json, *db = make_runs(&json), *file = scratch_path("grid.ini");
    json_t *sweep = rows_of(PRINTS("sweep", file, "--seeds", "2", "--db", db, "--json", "--against",
                                   "system=sparse-dllm"));
    json_t *rows = rows_of(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--against",
                                  "system=sparse-dllm", "--json"));
    ck_assert_uint_eq(json_array_size(sweep), 4);
    ck_assert_uint_eq(json_array_size(rows), 4);
    size_t n_others = 0;
    for (size_t i = 0; i < 4; i++) {
        const bool is_base = strcmp(word(rows, i, "series"), "sparse-dllm") == 0;
        const double x = number(rows, i, "x");
        size_t point = 0; /* its runs were offered that rate */
        while (point < 4 && (fabs(offered(json, point) - x) > 1e-4 || is_base != (point >= 2))) {
            point++;
        }
        ck_assert_uint_lt(point, 4);
        const json_t *difference = printed_difference(sweep, point);
        const json_t *to = json_object_get(json_array_get(sweep, point), "against");
        ck_assert_str_eq(json_string_value(json_object_get(to, "system")), "sparse-dllm");
        ck_assert_double_eq_tol(number(rows, i, "y"), part(difference, "mean"), 1e-6);
        if (is_base) {
            ck_assert_double_eq(number(rows, i, "y"), 0);
            ck_assert(isnan(number(rows, i, "low")));
            ck_assert_str_eq(word(rows, i, "verdict"), "equal");
            continue;
        }
        const struct spread ours = printed_p99(json, point), base = printed_p99(json, point + 2);
        ck_assert_double_eq_tol(number(rows, i, "y"), ours.mean - base.mean, 1e-6);
        ck_assert_double_eq_tol(number(rows, i, "low"), part(difference, "low"), 1e-5);
        ck_assert_double_eq_tol(number(rows, i, "high"), part(difference, "high"), 1e-5);
        ck_assert_str_eq(word(rows, i, "verdict"),
                         json_is_true(json_object_get(difference, "differs"))
                             ? "differs"
                             : "not distinguishable");
        n_others++;
    }
    ck_assert_uint_eq(n_others, 2);
    json_decref(sweep);
    json_decref(rows);
}

TEST(shares_are_compared_within_their_range) {
    const char *json, *db = make_runs(&json);
    json_t *rows = rows_of(PRINTS("plot", db, "-x", "rate", "-y", "gpu_busy", "--against",
                                  "system=dllm-serve", "--json"));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (strcmp(word(rows, i, "series"), "sparse-dllm") == 0) {
            ck_assert(number(rows, i, "low") >= -1 && number(rows, i, "high") <= 1);
            ck_assert(number(rows, i, "low") < number(rows, i, "y"));
        }
    }
    json_decref(rows);
}

/* Right answers of one run have the interval of as many answers (Wilson, 15 of 16), and panels of
 * several fields an axis that names the field alone. */
TEST(right_answers_are_drawn_with_the_interval_of_their_number) {
    json_t *run = json_parsed(PRINTS("run", "--requests", "16", "--rate", "0.2", "--json"));
    json_object_set_new(run, "quality",
                        json_pack("{s:i, s:i, s:f, s:f, s:f}", "judged", 16, "right", 15,
                                  "accuracy", 0.9375, "accuracy_low", 0.7167, "accuracy_high",
                                  0.9889));
    char *text = json_dumps(run, 0);
    const char *path = scratch_write("right.json", text), *svg = scratch_path("right.svg");
    json_t *rows = rows_of(PRINTS("plot", path, "-x", "tpf", "-y", "quality.accuracy", "--json"));
    ck_assert_double_eq(number(rows, 0, "y"), 0.9375);
    ck_assert_double_eq(number(rows, 0, "low"), 0.7167);
    ck_assert_double_eq(number(rows, 0, "high"), 0.9889);
    json_decref(rows);
    free(text);
    free(PRINTS("plot", path, "-x", "tpf", "-y", "quality.accuracy,latency_s.mean", "--facet",
                "gpu", "--out", svg));
    text = scratch_read(svg);
    const char *title = strstr(text, "l40s: right answers (share)");
    ck_assert_ptr_nonnull(title);
    ck_assert_ptr_null(strstr(title + 1, "l40s: right answers"));
    ck_assert_ptr_nonnull(strstr(text, ">right answers (share)"));
    free(text);
    json_decref(run);
}

TEST(fields_have_one_name_in_every_option) {
    const char *json, *db = make_runs(&json);
    json_t *rows = rows_of(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--by",
                                  "system,cache.retention", "--where",
                                  "cache.retention = 0.5 AND latency_s.p99 > 0 AND gpu = 'l40s' "
                                  "AND workload <> 'a.b'",
                                  "--json"));
    ck_assert_uint_gt(json_array_size(rows), 0);
    ASSERT_SAYS(word(rows, 0, "series"), "cache.retention=0.5");
    json_decref(rows);
    char *text = PRINTS("sweep", scratch_path("grid.ini"), "--over", "seed=1,2");
    ck_assert_ptr_nonnull(strstr(text, "  seed"));
    free(text);
    REFUSES(2, "lists values of rate already", "sweep", scratch_path("grid.ini"), "--over",
            "rate=0.2,0.4");
}

TEST(who_is_compared_with_must_be_there) {
    const char *json, *db = make_runs(&json), *file = scratch_path("grid.ini");
#define P99 "plot", db, "-x", "rate", "-y", "latency_s.p99", "--against"
    REFUSES(2, "there is dllm-serve, sparse-dllm", P99, "system=nobody");
    REFUSES(2, "did you mean 'system'?", P99, "sytem=dllm-serve");
    REFUSES(2, "'system' is not KEY=VALUE", P99, "system");
    REFUSES(2, "no run of another workload", P99, "workload=burst", "--by", "system");
    REFUSES(2, "goes with -x and -y of runs", "plot", db, "--cdf", "latency_s", "--against",
            "system=dllm-serve");
    REFUSES(2, "they differ in system, rate", "sweep", file, "--against", "scheduler=knee");
    REFUSES(2, "there is dllm-serve, sparse-dllm", "sweep", file, "--against", "system=nobody");
    REFUSES(2, "is not KEY=VALUE", "sweep", file, "--against", "system=");
}

/* Each of several panels says that it shows differences. */
TEST(panels_of_differences_say_so) {
    const char *json, *db = make_runs(&json);
    json_t *rows = rows_of(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99,ttft_s.mean",
                                  "--against", "system=sparse-dllm", "--json"));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        ck_assert_int_eq(strncmp(word(rows, i, "panel"), "difference of ", 14), 0);
    }
    ck_assert_uint_eq(json_array_size(rows), 8);
    json_decref(rows);
}

/* In inches as printed, with text of one size in every format; lines by their names and in order.
 */
TEST(a_figure_has_the_width_font_names_and_labels_that_were_asked_for) {
    const char *json, *db = make_runs(&json), *svg = scratch_path("w.svg"),
                      *pdf = scratch_path("w.pdf");
    free(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--by", "system", "--width", "4",
                "--font", "Utopia", "--title", "", "--x-label", "load it", "--y-label", "late s",
                "--name", "sparse-dllm=Theirs's", "--name", "dllm-serve", "--out", svg, "--out",
                pdf));
    char *text = scratch_read(svg);
    ASSERT_SAYS(text, "width=\"384\"");
    ASSERT_SAYS(text, "Utopia");
    ASSERT_SAYS(text, "load it");
    ASSERT_SAYS(text, "late s");
    const char *first = strstr(text, "Theirs&apos;s");
    first = first != NULL ? first : strstr(text, "Theirs's");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(strstr(first, "dllm-serve"));
    ck_assert_ptr_null(strstr(text, "sparse-dllm"));
    free(text);
    char bytes[65536]; /* 4 inches are 288 points */
    FILE *file = fopen(pdf, "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    ck_assert_ptr_nonnull(memmem(bytes, n, "[ 0 0 288 ", 10));
    json_t *rows = rows_of(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--by", "system",
                                  "--name", "sparse-dllm", "--json"));
    ck_assert_str_eq(word(rows, 0, "series"), "sparse-dllm");
    json_decref(rows);
    REFUSES(2, "begins with no line's name; there is dllm-serve; sparse-dllm", P99,
            "system=dllm-serve", "--name", "x=y");
    REFUSES(2, "1.5 to 40 inches, not '0.1'", P99, "system=dllm-serve", "--width", "0.1", "--out",
            svg);
    REFUSES(2, "is not the name of a font", P99, "system=dllm-serve", "--font", "a,3", "--out",
            svg);
}

/* Panels stand below each other where beside each other their labels would be cut, and numbers over
 * bars are left out where they would run into each other. */
TEST(a_narrow_figure_is_read_at_its_width) {
    const char *json, *db = make_runs(&json), *svg = scratch_path("narrow.svg");
    double heights[2];
    for (int wide = 0; wide < 2; wide++) {
        free(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99,ttft_s.p99", "--by", "system",
                    "--width", wide ? "7" : "3.3", "--out", svg));
        char *text = scratch_read(svg);
        const char *at = strstr(text, " height=\"");
        ck_assert_ptr_nonnull(at);
        heights[wide] = atof(at + strlen(" height=\""));
        free(text);
    }
    ck_assert_double_gt(heights[0], 1.6 * heights[1]);
#define NARROW                                                                                     \
    "plot", db, "-x", "rate", "-y", "throughput_tok_s", "--look", "bars", "--by", "system"
    json_t *rows = rows_of(PRINTS(NARROW, "--json"));
    char value[32];
    snprintf(value, sizeof value, ">%.3g<", number(rows, 0, "y"));
    json_decref(rows);
    for (int wide = 0; wide < 2; wide++) {
        free(PRINTS(NARROW, "--width", wide ? "7" : "1.5", "--out", svg));
        char *text = scratch_read(svg);
        ck_assert_int_eq(strstr(text, value) != NULL, wide);
        free(text);
    }
}

/* What no scheduler beats stands beside what was reached, under its line's name. */
TEST(bounds_are_drawn_beside_what_they_bound) {
    const char *db = scratch_path("bounded.db"), *svg = scratch_path("bounded.svg"), *json,
               *bare = make_runs(&json);
    json_t *summaries = rows_of(PRINTS("sweep", scratch_write("bounded.ini", grid), "--seeds", "2",
                                       "--db", db, "--bound", "--json"));
    double bound = 0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *runs = json_object_get(json_array_get(summaries, 0), "runs");
        const json_t *of = json_object_get(json_array_get(runs, i), "bound");
        bound += json_number_value(json_object_get(of, "throughput_tok_s")) / 2;
    }
    json_decref(summaries);
#define BOUNDED "-x", "rate", "-y", "throughput_tok_s,ttft_s.p99", "--by", "system", "--bound"
    json_t *rows = rows_of(PRINTS("plot", db, BOUNDED, "--name", "dllm-serve=Ours", "--json"));
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (strcmp(word(rows, i, "series"), "Ours: bound") == 0 && n++ == 0) {
            ck_assert_double_eq_tol(number(rows, i, "y"), bound, 1e-6 * bound);
            ck_assert(isnan(number(rows, i, "low")));
            ck_assert_double_ge(number(rows, i, "y"), number(rows, i - 2, "y"));
        }
    }
    ck_assert_uint_eq(n, 2); /* of throughput alone: of the time to the first block none is known */
    ck_assert_uint_eq(json_array_size(rows), 12);
    json_decref(rows);
    free(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--bound", "--where",
                "system = 'dllm-serve'", "--out", svg));
    char *text = scratch_read(svg);
    ASSERT_SAYS(text, "runs");
    ASSERT_SAYS(text, "bound");
    free(text);
    REFUSES(2, "`unmask sweep --bound` records it", "plot", bare, BOUNDED);
    REFUSES(2, "-y names none of them", "plot", db, "-x", "rate", "-y", "ttft_s.p99", "--bound");
    REFUSES(2, "--bound goes with -x and -y of runs", "plot", db, "--cdf", "latency_s", "--bound");
}

/* A note that is left out of the figure is printed for its caption, with each source once. */
TEST(a_note_can_be_left_to_the_caption) {
    const char *json, *db = make_runs(&json), *svg = scratch_path("note.svg");
    char *text = PRINTS(P99, "system=dllm-serve", "--out", svg), *drawn = scratch_read(svg);
    ck_assert_ptr_null(strstr(text, "caption"));
    ASSERT_SAYS(drawn, "profile l40s");
    free(drawn);
    free(text);
    text = PRINTS(P99, "system=dllm-serve", "--note", "", "--out", svg);
    drawn = scratch_read(svg);
    ASSERT_SAYS(text, "caption      profile l40s: ");
    const char *source = strstr(text, "generated arrivals");
    ck_assert_ptr_nonnull(source);
    ck_assert_ptr_null(strstr(source + 1, "generated arrivals"));
    ck_assert_ptr_null(strstr(drawn, "profile l40s"));
    free(drawn);
    free(text);
    free(PRINTS(P99, "system=dllm-serve", "--note", "seen by eye", "--out", svg));
    drawn = scratch_read(svg);
    ASSERT_SAYS(drawn, "seen by eye");
    free(drawn);
}

/* A label that is wider than its panel takes several lines. */
TEST(a_label_is_read_below_a_narrow_panel) {
    const char *json, *db = make_runs(&json), *svg = scratch_path("label.svg");
    for (int wide = 0; wide < 2; wide++) {
        free(PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99,ttft_s.p99", "--by", "workload",
                    "--facet", "system", "--x-label", "load that each system was offered",
                    "--width", wide ? "8" : "2", "--out", svg));
        char *text = scratch_read(svg);
        ck_assert_int_eq(strstr(text, "load that each system was offered") != NULL, wide);
        ASSERT_SAYS(text, "offered");
        ck_assert_int_eq(strstr(text, "sparse-dllm: p99 time to first token (s)") != NULL, wide);
        free(text);
    }
}

/* Heads are of what stands below them; programs read x and y. What is the same with every seed is
 * equal, which has no interval. */
TEST(a_table_of_points_names_its_columns) {
    const char *json, *db = make_runs(&json);
#define AGAINST                                                                                    \
    "plot", db, "-x", "rate", "-y", "latency_s.p99", "--by", "system", "--against",                \
        "system=dllm-serve"
    char *text = PRINTS(AGAINST, "--format", "markdown");
    ASSERT_SAYS(text, "requests/s) | difference of p99 latency (s) | low | high | verdict |");
    ASSERT_SAYS(text, "| 0 | - | - | equal |");
    free(text);
    text = PRINTS(AGAINST, "--format", "csv");
    ASSERT_SAYS(text, "panel,series,x,y,low,high,verdict\n");
    free(text);
}

SUITE("plot command")
