/* Comparisons: rows of their own model, seeds, paired differences, the same requests, warnings. */
#include <jansson.h>
#include <math.h>

#include "analysis/spread.h"
#include "experiments/run/cli/table.h"
#include "experiments/run/sweep/sample.h"
#include "tests/support/cli.h"
#include "tests/support/outputs.h"

#define PAIR      "--systems", "dllm-serve,fast-dllm"
#define FEW       "--requests", "20", "--rate", "1", "--gpu", "rtx4090"
#define JSON(...) json_parsed(PRINTS(__VA_ARGS__, "--json"))

/* a.b.c of an object. */
static const json_t *at(const json_t *json, const char *path) {
    char key[64];
    for (const char *rest = path; *rest != '\0'; rest += *rest == '/') {
        size_t length = strcspn(rest, "/");
        snprintf(key, sizeof key, "%.*s", (int)length, rest);
        json = json_is_array(json) ? json_array_get(json, strtoul(key, NULL, 10))
                                   : json_object_get(json, key);
        rest += length;
    }
    ck_assert_msg(json != NULL, "nothing at %s", path);
    return json;
}

static double number(const json_t *json, const char *path) {
    return json_number_value(at(json, path));
}

static bool warns(const json_t *object, const char *code) {
    size_t i;
    json_t *warning;
    json_array_foreach(json_object_get(object, "warnings"), i, warning) {
        if (strcmp(json_string_value(json_object_get(warning, "code")), code) == 0) {
            return true;
        }
    }
    return false;
}

TEST(the_interval_of_one_to_five_is_students) {
    const double values[] = {1, 2, 3, 4, 5};
    struct spread spread = spread_of(values, 5);
    double half = 2.7764451051977987 * sqrt(2.5) / sqrt(5); /* t of 4 degrees at 97.5 % */
    ck_assert_double_eq_tol(spread.mean, 3, 1e-12);
    ck_assert_double_eq_tol(spread.low, 3 - half, 1e-9);
    ck_assert_double_eq_tol(spread.high, 3 + half, 1e-9);
    spread = spread_of(values, 1);
    ck_assert(spread.mean == 1 && isnan(spread.low) && isnan(spread.high));
    const double holes[] = {1, NAN};
    ck_assert(isnan(spread_of(holes, 2).mean) && isnan(spread_of(NULL, 0).mean));
}

/* Wilson's interval of 8 of 10 is 0.4902 to 0.9433 (Newcombe, Statistics in Medicine 17, 1998,
 * gives 81 of 263 as 0.2553 to 0.3662); where seeds vary as much as independent requests do, that
 * of shares is of as many requests, with Student's t. */
TEST(intervals_of_shares_stay_within_0_and_1) {
    struct spread spread = spread_of_count(81, 263);
    ck_assert_double_eq_tol(spread.low, 0.2553, 5e-5);
    ck_assert_double_eq_tol(spread.high, 0.3662, 5e-5);
    const double all[] = {1, 1, 1}, none[] = {0, 0}, wide[] = {0, 1}, high[] = {1, 0.98, 0.9, 1, 1};
    spread = spread_of_shares(all, 3, 0);
    ck_assert(spread.mean == 1 && spread.low == 1 && spread.high == 1);
    spread = spread_of_shares(all, 3, 60);
    struct spread count = spread_of_count(60, 60);
    ck_assert(spread.low == count.low && spread.high == 1 && count.low > 0.9 && count.low < 1);
    spread = spread_of_shares(none, 2, 40);
    ck_assert(spread.low == 0 && spread.high > 0 && spread.high < 0.1);
    spread = spread_of_shares(wide, 2, 0);
    ck_assert(spread.low > 0 && spread.low < 0.01 && spread.high > 0.99 && spread.high < 1);
    spread = spread_of_shares(high, 5, 250);
    ck_assert(spread_of(high, 5).high > 1 && spread.high < 1 && spread.low > 0.8);
    ck_assert(spread.low < spread.mean && spread.mean < spread.high);
    ck_assert(isnan(spread_of_shares(high, 1, 50).low));
    const double percent[] = {98, 100}; /* no shares of 1 */
    ck_assert(spread_of_shares(percent, 2, 0).high == spread_of(percent, 2).high);
    ck_assert(spread_of_kind(true, high, 5, 250).high == spread.high);
    ck_assert(spread_of_kind(false, high, 5, 250).high > 1);
    const double low[] = {0, 0.02, 0.01, 0, 0};
    spread = spread_of_share_differences(high, low, 5);
    ck_assert(spread.low > -1 && spread.high < 1 && spread_differs(&spread));
    spread = spread_of_share_differences(all, none, 2);
    ck_assert(spread.mean == 1 && spread.low == 1 && spread.high == 1);
}

TEST(a_column_has_three_digits_and_the_unit_of_its_largest) {
    char text[THREE_CHARS];
    const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},        {0.02134, "0.0213"}, {9.996, "10.0"},
                 {30.14, "30.1"}, {1234.56, "1235"},   {-0.5, "-0.500"},
                 {99.96, "100"},  {0.9996, "1.00"},    {1e-5, "0.0000100"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_str_eq(three_digits(cases[i].value, text), cases[i].text);
    }
    char *table = PRINTS("compare", "--gpu", "h100", "--model", "sdar-1.7b", "--systems",
                         "sdar,lmdeploy", "--rate", "0.1", "--requests", "20", "--input-tokens",
                         "64", "--output-tokens", "16");
    ck_assert(strstr(table, " mean_ms ") != NULL && strstr(table, " 0.0 ") == NULL);
    free(table);
    table = PRINTS("compare", PAIR, FEW);
    ck_assert(strstr(table, " mean_s ") != NULL);
    free(table);
}

/* Nothing is drawn: three seeds are one run, without an interval, in tables and in JSON. */
TEST(seeds_that_draw_nothing_are_one_run) {
    static const char *const systems[] = {"dllm-serve,fast-dllm", "dllm-serve"};
    for (size_t i = 0; i < 2; i++) {
        char *text = PRINTS("compare", "--gpu", "l40s", "--workload", "azure", "--rate", "0.4",
                            "--requests", "30", "--seeds", "3", "--slo-latency", "20s", "--systems",
                            systems[i], "--verbose");
        ck_assert_ptr_null(strstr(text, "±"));
        ck_assert_ptr_nonnull(strstr(text, "3 seeds are one run"));
        free(text);
    }
    json_t *json = JSON("compare", "--gpu", "l40s", "--workload", "azure", "--rate", "0.4",
                        "--requests", "30", "--seeds", "3", PAIR);
    ck_assert(isfinite(number(json, "0/spread/latency_s.mean/mean")));
    ck_assert(json_is_null(at(json, "0/spread/latency_s.mean/low")));
    ck_assert(json_is_null(at(json, "1/differences/latency_s.mean/low")));
    ck_assert(json_is_null(at(json, "1/differences/latency_s.mean/differs")));
    json_decref(json);
    char *text = PRINTS("compare", PAIR, FEW, "--seeds", "2");
    ck_assert(strstr(text, "±") != NULL && strstr(text, "take five or more") != NULL);
    free(text);
}

/* Two runs of one sample that are of other contents of a file have no mean. */
TEST(runs_of_other_files_have_no_mean) {
    json_t *runs[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = json_pack("{s:b, s:f, s:{s:{s:s, s:s}, s:[{s:s, s:s, s:s}]}}", "is_drawn", 1,
                            "throughput_tok_s", 10.0 + i, "identity", "build", "version", "1",
                            "sources", "a", "inputs", "role", "trace", "path", "t.csv", "sha256",
                            i == 0 ? "x" : "y");
    }
    struct sample sample = {.n = 2, .runs = {runs[0], runs[0]}};
    ck_assert_double_eq(sample_spread(&sample, Q_THROUGHPUT).mean, 10);
    sample.runs[1] = runs[1];
    ck_assert(isnan(sample_spread(&sample, Q_THROUGHPUT).mean));
    struct warnings warnings = sample_warnings(&sample);
    ck_assert_int_eq(warnings.items[0].code, WARNING_RUNS_DIFFER);
    json_decref(runs[0]);
    json_decref(runs[1]);
}

/* A pipe cannot be read twice: of one run that does not matter, two of them may be of anything. */
TEST(a_run_is_like_itself_whatever_it_was_read_from) {
    json_t *runs[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = json_pack("{s:b, s:f, s:{s:{s:s, s:s}, s:[{s:s, s:s, s:n}]}}", "is_drawn", 1,
                            "throughput_tok_s", 10.0, "identity", "build", "version", "1",
                            "sources", "a", "inputs", "role", "trace", "path", "pipe", "sha256");
    }
    struct sample sample = {.n = 1, .runs = {runs[0], runs[1]}};
    ck_assert_double_eq(sample_spread(&sample, Q_THROUGHPUT).mean, 10);
    ck_assert_uint_eq(sample_differs(&sample, true, (char[200]){""}, 200), 0);
    sample.n = 2;
    ck_assert(isnan(sample_spread(&sample, Q_THROUGHPUT).mean));
    json_decref(runs[0]);
    json_decref(runs[1]);
}

TEST(pairs_tell_apart_what_their_own_spread_does_not) {
    const double base[] = {10, 20, 30, 40}, ours[] = {11, 21.2, 30.9, 41.1};
    struct spread differences = spread_of_differences(ours, base, 4);
    struct spread both[] = {spread_of(base, 4), spread_of(ours, 4)};
    ck_assert(spread_differs(&differences));
    ck_assert_double_eq_tol(differences.mean, 1.05, 1e-9);
    ck_assert(both[0].high > both[1].low);
    const double mixed[] = {11, 19, 31, 39};
    differences = spread_of_differences(mixed, base, 4);
    ck_assert(!spread_differs(&differences));
    differences = spread_of_differences(ours, base, 1);
    ck_assert(!spread_differs(&differences));
}

TEST(every_row_carries_its_own_model_and_price_kind) {
    char *text = PRINTS("compare", "--gpu", "h200", "--systems", "vllm-ar,dllm-serve,focus",
                        "--requests", "40", "--rate", "0.5");
    const char *header = strstr(text, "\nsystem ");
    ck_assert_ptr_nonnull(header);
    static const char *const models[] = {"llama-3.1-8b", "llada-8b", "sdar-8b"};
    static const char *const systems[] = {"\nvllm-ar ", "\ndllm-serve ", "\nfocus "};
    for (size_t i = 0; i < 3; i++) {
        const char *row = strstr(header, systems[i]);
        ck_assert_ptr_nonnull(row);
        const char *end = strchr(row + 1, '\n'), *model = strstr(row, models[i]);
        ck_assert(model != NULL && model < end);
        const char *kind = strstr(row, "measured");
        ck_assert(kind != NULL && kind < end);
    }
    for (const char *c = text; c < header; c++) { /* what stands above holds for all */
        ck_assert(strncmp(c, "llama", 5) != 0 && strncmp(c, "measured", 8) != 0);
    }
    free(text);
}

TEST(an_objective_shows_its_goodput) {
    char *without = PRINTS("compare", "--systems", "dllm-serve", "--requests", "20");
    char *with =
        PRINTS("compare", "--systems", "dllm-serve", "--requests", "20", "--slo-ttft", "30s");
    ck_assert_ptr_null(strstr(without, "goodput"));
    ck_assert(strstr(with, "goodput") != NULL && strstr(with, "attain_%") != NULL);
    free(without);
    free(with);
    json_t *json = JSON("run", "--requests", "60", "--rate", "2", "--slo-ttft", "4s");
    json_t *other = JSON("run", "--requests", "60", "--rate", "2", "--slo-ttfb", "4s");
    ck_assert(json_equal(json, other));
    ck_assert(json_equal(at(json, "ttft_s"), at(json, "ttfb_s")));
    ck_assert_double_eq(number(json, "slo/ttft_s"), 4);
    ck_assert(number(json, "attainment") > 0 && number(json, "attainment") < 1);
    json_decref(json);
    json_decref(other);
    REFUSES(2, "--slo-ttft is given twice", "run", "--slo-ttft", "4s", "--slo-ttfb", "4s");
}

#define SEEDS                                                                                      \
    "compare", "--gpu", "rtx4090", "--systems", "fast-dllm,dllm-serve", "--rate", "0.25",          \
        "--requests", "200", "--seeds", "4"

TEST(seeds_give_means_with_intervals_and_paired_differences) {
    json_t *json = JSON(SEEDS);
    for (size_t s = 0; s < 2; s++) {
        const json_t *row = json_array_get(json, s);
        double sum = 0;
        for (int i = 0; i < 4; i++) {
            char path[64];
            snprintf(path, sizeof path, "runs/%d/latency_s/mean", i);
            sum += number(row, path);
            snprintf(path, sizeof path, "runs/%d/seed", i);
            ck_assert_double_eq(number(row, path), i + 1);
            /* Common random numbers: the same arrivals for both. */
            snprintf(path, sizeof path, "runs/%d/offered/rate_req_s", i);
            ck_assert(number(row, path) == number(json_array_get(json, 0), path));
        }
        double mean = number(row, "spread/latency_s.mean/mean");
        ck_assert_double_eq_tol(mean, sum / 4, 1e-6 * mean);
        ck_assert(number(row, "spread/latency_s.mean/low") < mean);
        ck_assert(!warns(row, "few-seeds"));
    }
    const json_t *ours = json_array_get(json, 1);
    double difference =
        number(json, "1/spread/latency_s.mean/mean") - number(json, "0/spread/latency_s.mean/mean");
    ck_assert_double_eq_tol(number(ours, "differences/latency_s.mean/mean"), difference, 1e-6);
    ck_assert(json_is_true(at(ours, "differences/latency_s.mean/differs")));
    ck_assert(number(ours, "latency_ratio") > 1);
    json_decref(json);
}

TEST(threads_change_nothing_of_many_seeds) {
    char *one = PRINTS(SEEDS, "--json", "-j", "1"), *four = PRINTS(SEEDS, "--json", "-j", "4");
    ck_assert_str_eq(one, four);
    free(one);
    free(four);
}

TEST(a_system_is_not_distinguishable_from_itself) {
    json_t *json = JSON("compare", "--systems", "dllm-serve,dllm-serve", "--requests", "100",
                        "--rate", "0.2", "--seeds", "3");
    ck_assert(json_is_false(at(json, "1/differences/latency_s.mean/differs")));
    ck_assert(warns(json_array_get(json, 1), "not-distinguishable"));
    ck_assert(!warns(json_array_get(json, 0), "few-seeds"));
    json_decref(json);
}

TEST(one_seed_warns_where_something_is_drawn) {
    json_t *drawn = JSON("compare", "--systems", "dllm-serve,fast-dllm", "--requests", "40");
    json_t *played = JSON("compare", "--systems", "dllm-serve,fast-dllm", "--trace",
                          "tests/golden/cli/trace.csv");
    ck_assert(warns(json_array_get(drawn, 0), "few-seeds"));
    ck_assert(!warns(json_array_get(played, 0), "few-seeds"));
    ck_assert(json_is_true(at(drawn, "0/is_drawn")) && json_is_false(at(played, "0/is_drawn")));
    json_decref(drawn);
    json_decref(played);
}

/* Two readings of one system, of which one refuses long requests: that makes its percentiles look
 * better, unless both are measured by the same requests. */
TEST(the_same_requests_take_away_what_rejections_gain) {
    const char *systems = scratch_write("picky.ini", "[whole]\nscheduler = static\ncache = dual\n"
                                                     "kv = slab\nruntime = hf-eager\n[picky]\n"
                                                     "base = whole\ncontext_tokens = 520\n");
    json_t *plain = JSON("compare", "--systems-file", systems, "--systems", "picky,whole",
                         "--requests", "300", "--rate", "0.2");
    json_t *same = JSON("compare", "--systems-file", systems, "--systems", "picky,whole",
                        "--requests", "300", "--rate", "0.2", "--same-requests");
    double served = number(plain, "0/completed");
    ck_assert(served < 300 && number(plain, "1/completed") == 300);
    ck_assert(warns(json_array_get(plain, 0), "rejected"));
    ck_assert(warns(json_array_get(plain, 1), "rejected")); /* its ratios are to other requests */
    ck_assert(!warns(json_array_get(same, 1), "rejected"));
    ck_assert_double_eq(number(same, "0/same_requests/completed"), served);
    ck_assert_double_eq(number(same, "1/same_requests/completed"), served);
    ck_assert_double_eq_tol(number(same, "0/same_requests/latency_s/mean"),
                            number(plain, "0/latency_s/mean"), 1e-9);
    ck_assert(number(same, "1/same_requests/latency_s/mean") != number(plain, "1/latency_s/mean"));
    json_decref(plain);
    json_decref(same);
    char *text = PRINTS("compare", "--systems-file", systems, "--systems", "picky,whole",
                        "--requests", "300", "--rate", "0.2");
    const char *row = strstr(text, "\npicky ");
    ck_assert(row != NULL && memchr(row + 1, '*', strcspn(row + 1, "\n")) != NULL);
    free(text);
}

/* Each policy is what it is with --set, and a plug-in has its own name. */
TEST(policies_are_compared_over_a_key) {
    char over[1024];
    const char *plugin = suite_plugin("state_scheduler"), *other = suite_plugin("static_scheduler");
    snprintf(over, sizeof over, "scheduler=%s,look-ahead,%s", plugin,
             suite_plugin("template_scheduler"));
    REFUSES(2, "--system and --systems exclude each other", "compare", "--system", "sdar",
            "--systems", "sdar");
    json_t *all = JSON("compare", "--roofline", "--system", "sdar", "--requests", "20");
    ck_assert_uint_eq(json_array_size(all), 1);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(all, 0), "system")), "sdar");
    json_decref(all);
    all = JSON("compare", "--roofline", "--systems", "dllm-serve,sdar", "--over", over,
               "--requests", "20", "--rate", "2");
    ck_assert_uint_eq(json_array_size(all), 6);
    static const char *const names[] = {"dllm-serve, counting",       "dllm-serve, look-ahead",
                                        "dllm-serve, shortest-first", "sdar, counting",
                                        "sdar, look-ahead",           "sdar, shortest-first"};
    for (size_t i = 0; i < 6; i++) {
        const json_t *one = json_array_get(all, i), *at = json_object_get(one, "over");
        ck_assert_str_eq(json_string_value(json_object_get(at, "name")), names[i]);
        ck_assert_str_eq(json_string_value(json_object_get(one, "system")),
                         i < 3 ? "dllm-serve" : "sdar");
    }
    json_t *alone = JSON("run", "--roofline", "--system", "sdar", "--scheduler", "look-ahead",
                         "--requests", "20", "--rate", "2");
    ck_assert_double_eq(number(all, "4/makespan_s"), number(alone, "makespan_s"));
    ck_assert_double_ne(number(all, "4/makespan_s"), number(all, "5/makespan_s"));
    json_decref(alone);
    json_decref(all);
    snprintf(over, sizeof over, "scheduler=%s,%s", plugin,
             other); /* both call themselves counting */
    char *text = PRINTS("compare", "--roofline", "--systems", "dllm-serve", "--over", over,
                        "--requests", "20");
    ck_assert_msg(strstr(text, "\ncounting (") != NULL &&
                      strstr(text, "static_scheduler.so)") != NULL,
                  "%s", text);
    free(text);
    text = PRINTS("compare", "--roofline", "--systems", "dllm-serve", "--over", "max_requests=2,4",
                  "--requests", "20");
    ck_assert_msg(strstr(text, "\nmax_requests=4 ") != NULL, "%s", text);
    free(text);
    /* Names that hold commas are told apart, and lines about the same stand together. */
    text = PRINTS("compare", "--roofline", PAIR, "--over", "max_requests=2,4", "--requests", "6");
    ASSERT_SAYS(text, "max_requests=2 (dllm-serve, max_requests=2; fast-dllm, max_requests=2)\n"
                      "settings     max_requests=4 (dllm-serve, max_requests=4; ");
    free(text);
    /* Without --systems the one that serves the model. */
    all = JSON("compare", "--roofline", "--model", "sdar-8b", "--over", "max_requests=2,4",
               "--requests", "4");
    ck_assert_uint_eq(json_array_size(all), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(all, 1), "system")), "sdar");
    json_decref(all);
    text = PRINTS("compare", "--requests", "4", "--over", "gpu=l40s,h100");
    ck_assert_msg(strstr(text, " on several GPUs") != NULL && strstr(text, "\nh100 ") != NULL, "%s",
                  text);
    free(text);
    REFUSES(2, "is not KEY=A,B,...", "compare", "--systems", "sdar", "--over", "scheduler");
    REFUSES(2, "expected KEY=A,B,...", "compare", "--systems", "sdar", "--over", "scheduler=a,,b");
    REFUSES(2, "--over: '2' is there twice", "compare", "--over", "max_requests=2,4,2");
    REFUSES(2, "the workload is one for all", "compare", "--systems", "sdar", "--over",
            "workload.rate=1,2");
    REFUSES(2, "unknown scheduler 'nosuch'", "compare", "--systems", "sdar", "--over",
            "scheduler=static,nosuch");
}

/* In tables, not in what a point is found again by; the same words as those of compare. */
TEST(plug_ins_are_called_by_their_own_names_in_grids_and_capacities) {
    char over[1024], grid[1024];
    const char *mine = suite_plugin("template_scheduler"),
               *counting = suite_plugin("state_scheduler");
    snprintf(grid, sizeof grid, "[sweep]\nrequests = 4\nset.scheduler = %s, look-ahead\n", mine);
    const char *file = scratch_write("names.ini", grid);
    char *text = PRINTS("sweep", file);
    ck_assert_msg(strstr(text, " shortest-first ") != NULL && strstr(text, mine) == NULL, "%s",
                  text);
    free(text);
    json_t *all = JSON("sweep", file);
    const json_t *point = json_object_get(json_array_get(all, 0), "point");
    ck_assert_str_eq(json_string_value(json_object_get(point, "scheduler")), mine);
    json_decref(all);
    snprintf(over, sizeof over, "scheduler=%s,%s,%s", mine, counting,
             suite_plugin("static_scheduler"));
    const char *plain = scratch_write("plain.ini", "[sweep]\nrequests = 4\n");
    text = PRINTS("sweep", plain, "--over", over, "--over", "max_requests=2");
    ck_assert_msg(strstr(text, " shortest-first ") != NULL && strstr(text, " counting (/") != NULL,
                  "%s", text);
    free(text);
    text = PRINTS("capacity", "--roofline", "--requests", "20", "--no-curve", "--slo",
                  "mean latency<100s", "--over", over);
    ck_assert_msg(strstr(text, " shortest-first ") != NULL && strstr(text, " counting (/") != NULL,
                  "%s", text);
    free(text);
    REFUSES(2, "lists values of scheduler already", "sweep", file, "--over", over);
    REFUSES(2, "--over: systems are listed by --systems", "sweep", plain, "--over", "system=sdar");
}

/* Bursts that overload an L40S, in the run of `make demo`. */
TEST(bursty_overload_is_saturated_and_no_latencies_are_compared) {
    json_t *json = JSON("compare", "--gpu", "l40s", "--workload", "burst-replay", "--rate", "1",
                        "--systems", "dllm-serve,fast-dllm");
    for (size_t s = 0; s < 2; s++) {
        const json_t *row = json_array_get(json, s);
        ck_assert(warns(row, "saturated") && !warns(row, "saturation-unknown"));
        ck_assert_str_eq(json_string_value(at(row, "offered/state")), "saturated");
        ck_assert(number(row, "offered/load_low") > 1.2);
    }
    ck_assert(json_is_null(at(json, "1/latency_ratio")) && number(json, "1/speedup") > 1);
    json_decref(json);
}

/* Each row with the one that differs from it in the key alone. */
TEST(policies_are_compared_with_the_one_that_is_named) {
#define OVER "--over", "max_requests=1,2,4", "--requests", "20", "--rate", "0.5", "--seeds", "3"
    json_t *json = JSON("compare", PAIR, OVER, "--against", "max_requests=2");
    ck_assert_uint_eq(json_array_size(json), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *one = json_array_get(json, i), *base = json_array_get(json, i / 3 * 3 + 1);
        const double mean = number(one, "spread/latency_s.mean/mean"),
                     of_base = number(base, "spread/latency_s.mean/mean");
        ck_assert_double_eq_tol(number(one, "differences/latency_s.mean/mean"), mean - of_base,
                                1e-6);
        ASSERT_SAYS(json_string_value(at(one, "against")), "max_requests=2");
        ASSERT_SAYS(json_string_value(at(one, "against")), i < 3 ? "dllm-serve" : "fast-dllm");
        ck_assert(mean != of_base || i % 3 == 1);
    }
    json_decref(json);
    json = JSON("compare", PAIR, OVER, "--against", "system=fast-dllm");
    for (size_t i = 0; i < 6; i++) {
        const json_t *one = json_array_get(json, i), *base = json_array_get(json, 3 + i % 3);
        ck_assert_double_eq_tol(number(one, "differences/latency_s.mean/mean"),
                                number(one, "spread/latency_s.mean/mean") -
                                    number(base, "spread/latency_s.mean/mean"),
                                1e-6);
    }
    json_decref(json);
    char *text = PRINTS("compare", PAIR, OVER, "--against", "max_requests=2");
    ASSERT_SAYS(text, "paired differences to max_requests=2, 95 % intervals");
    ASSERT_SAYS(text, "~: not distinguishable from max_requests=2");
    ck_assert_ptr_null(strstr(strstr(text, "paired differences"), "dllm-serve, max_requests=2 "));
    free(text);
    REFUSES(2, "they differ in system, max_requests", "compare", PAIR, OVER, "--against",
            "scheduler=knee");
    REFUSES(2, "no run has max_requests = 3; there is 1, 2, 4", "compare", PAIR, OVER, "--against",
            "max_requests=3");
    REFUSES(2, "'fast-dllm' is not KEY=VALUE, such as scheduler=look-ahead or system=fast-dllm",
            "compare", PAIR, OVER, "--against", "fast-dllm");
    REFUSES(2, "'=2' is not KEY=VALUE", "compare", PAIR, OVER, "--against", "=2");
    REFUSES(2, "no run has max_requests = 3", "compare", PAIR, OVER, "--against",
            " max_requests = 3 ");
    REFUSES(2, "runs of the same seed are compared", "compare", PAIR, OVER, "--against", "seed=1");
    REFUSES(2, "more than one run has system = dllm-serve", "compare", "--systems",
            "dllm-serve,dllm-serve", "--against", "system=dllm-serve");
}

/* Whether a dozen requests keep up is not told, and neither printed nor compared as if they did. */
TEST(what_cannot_be_told_is_not_taken_for_steady) {
#define DOZEN "--gpu", "l40s", "--requests", "12", "--rate", "3"
    json_t *json = JSON("compare", DOZEN, "--systems", "dllm-serve,fast-dllm");
    ck_assert_str_eq(json_string_value(at(json, "0/offered/state")), "cannot tell");
    ck_assert(warns(json_array_get(json, 0), "saturation-unknown"));
    ck_assert(json_is_null(at(json, "1/latency_ratio")) && json_is_number(at(json, "1/speedup")));
    json_decref(json);
    char *text = PRINTS("run", DOZEN);
    ASSERT_SAYS(text, "saturation unknown");
    free(text);
}

/* Forty requests do not tell it of a rate a little above capacity; the bound proves it. */
TEST(a_rate_above_the_bound_is_saturated_by_proof) {
#define NEAR "--gpu", "l40s", "--requests", "40", "--rate", "0.83"
    json_t *without = JSON("run", NEAR), *with = JSON("run", NEAR, "--bound");
    double most = number(with, "bound/saturated_req_s");
    ck_assert(number(with, "offered/rate_req_s") > most);
    ck_assert_str_eq(json_string_value(at(without, "offered/state")), "cannot tell");
    ck_assert_str_eq(json_string_value(at(with, "offered/state")), "saturated");
    json_decref(without);
    json_decref(with);
}

TEST(latencies_of_a_saturated_system_are_not_compared) {
    json_t *json =
        JSON("compare", "--systems", "fast-dllm,dllm-serve", "--requests", "400", "--rate", "1.5");
    ck_assert(warns(json_array_get(json, 1), "saturated"));
    ck_assert(json_is_null(at(json, "1/latency_ratio")));
    ck_assert(json_is_real(at(json, "1/speedup")));
    json_decref(json);
    json =
        JSON("compare", "--systems", "fast-dllm,dllm-serve", "--requests", "400", "--rate", "0.3");
    ck_assert(json_is_real(at(json, "1/latency_ratio")));
    json_decref(json);
}

TEST(a_sweep_has_seeds_objectives_and_rows_of_their_own_model) {
    const char *file =
        scratch_write("seeds.ini", "[sweep]\nsystems = fast-dllm, dllm-serve, focus\n"
                                   "gpus = h200\nrates = 0.3, 6\nrequests = 150\n");
    json_t *json = JSON("sweep", file, "--seeds", "3", "--slo-latency", "60s", "-j", "2");
    char *again =
        PRINTS("sweep", file, "--seeds", "3", "--slo-latency", "60s", "-j", "1", "--json");
    json_t *other = json_parsed(again);
    ck_assert(json_equal(json, other));
    json_decref(other);
    ck_assert_uint_eq(json_array_size(json), 6);
    /* Points: system, rate; the base of a point has its rate. */
    double ours = number(json, "2/spread/latency_s.mean/mean");
    double base = number(json, "0/spread/latency_s.mean/mean");
    ck_assert_double_eq_tol(number(json, "2/differences/latency_s.mean/mean"), ours - base, 1e-6);
    ck_assert(json_is_true(at(json, "2/differences/latency_s.mean/differs")));
    ck_assert(json_is_real(at(json, "2/spread/goodput_req_s/low")));
    ck_assert(warns(json_array_get(json, 1), "saturated"));
    ck_assert(!warns(json_array_get(json, 0), "saturated"));
    json_decref(json);
    char *text = PRINTS("sweep", file, "--slo-latency", "60s");
    ck_assert(strstr(text, "goodput") != NULL && strstr(text, "sdar-8b") != NULL);
    /* What all rows warn of stands in the last line alone, what some do also in their notes. */
    ck_assert(strstr(text, "few seeds;") != NULL && strstr(text, "llada-8b") != NULL);
    ck_assert(strstr(text, "few-seeds") == NULL && strstr(text, "saturated,") != NULL);
    ck_assert(strstr(text, "note: cautions that not all rows have") != NULL);
    free(text);
    text = PRINTS("sweep", file, "--slo-latency", "60s", "--format", "csv");
    ck_assert(strstr(text, "few-seeds") != NULL);
    free(text);
    const char *listed = scratch_write("listed.ini", "[sweep]\nsystems = dllm-serve\nseeds = 1, 2\n"
                                                     "requests = 20\n");
    struct output output = CLI("sweep", listed, "--seeds", "2");
    ck_assert_int_eq(output.status, 2);
    output_free(&output);
    json = JSON("sweep", listed);
    ck_assert(!warns(json_array_get(json, 0), "few-seeds"));
    json_decref(json);
}

/* A shipped profile with a card's power. */
static const char *with_power(void) {
    FILE *file = fopen("kernels/profiles/rtx4090.csv", "r");
    ck_assert(file != NULL);
    char *rows = scratch_rest(file), *text = NULL;
    fclose(file);
    memcpy(strstr(rows, "# rows"), "# were", 6);
    ck_assert_int_gt(
        asprintf(&text,
                 "%spower,idle_w,60\npower,limit_w,450\npower,busy_w,150\npower,active_w,80\n"
                 "power,flop_pj,0.5\n"
                 "power,byte_pj,80\npower,exponent,1.2\npower,lag_ms,50\n",
                 rows),
        0);
    const char *path = scratch_write("with-power.csv", text);
    free(rows);
    free(text);
    return path;
}

TEST(systems_of_two_profiles_of_one_gpu_are_warned_of) {
    static const char code[] =
        "caution      prices-differ: fast-dllm-published is priced by profile "
        "h200, dllm-serve by h200/llada-8b: ";
    char *two = PRINTS("compare", "--gpu", "h200", "--requests", "4", "--systems",
                       "dllm-serve,fast-dllm-published", "--verbose");
    char *one = PRINTS("compare", "--gpu", "h200", "--requests", "4", "--systems",
                       "dllm-serve,fast-dllm", "--verbose");
    char *given = PRINTS("compare", "--gpu", "h200", "--requests", "4", "--systems",
                         "dllm-serve,fast-dllm-published", "--profile", "kernels/profiles/h200.csv",
                         "--verbose");
    ck_assert_ptr_nonnull(strstr(two, code));
    ck_assert_ptr_null(strstr(one, "prices-differ"));
    ck_assert_ptr_null(strstr(given, "prices-differ"));
    free(two);
    free(one);
    free(given);
}

TEST(joules_stand_beside_throughput_where_the_profile_knows_power) {
    const char *profile = with_power(), *key = "energy.joules_per_answer_token";
    json_t *json = JSON("compare", PAIR, FEW, "--seeds", "2", "--profile", profile);
    double first = number(json, "0/spread/energy.joules_per_answer_token/mean");
    double second = number(json, "1/spread/energy.joules_per_answer_token/mean");
    ck_assert(first > 0 && second > 0 && first != second);
    ck_assert_double_eq_tol(number(json, "1/differences/energy.joules_per_answer_token/mean"),
                            second - first, 1e-6);
    json_decref(json);
    static const char *const seeds[] = {"1", "2"};
    double sum = 0;
    for (size_t i = 0; i < 2; i++) {
        json = JSON("run", "--system", "dllm-serve", FEW, "--seed", seeds[i], "--profile", profile);
        sum += number(json, "energy/joules") / number(json, "answer_tokens");
        json_decref(json);
    }
    ck_assert_double_eq_tol(first, sum / 2, 1e-6);
    char *text = PRINTS("compare", PAIR, FEW, "--seeds", "2", "--profile", profile);
    ck_assert(strstr(strstr(text, "J/token") + 1, "J/token") != NULL); /* and the differences' */
    free(text);
    json = JSON("compare", PAIR, FEW, "--seeds", "2");
    ck_assert(json_object_get(at(json, "0/spread"), key) == NULL);
    ck_assert(json_object_get(at(json, "1/differences"), key) == NULL);
    json_decref(json);
    text = PRINTS("compare", PAIR, FEW);
    ck_assert(strstr(text, "J/token") == NULL);
    free(text);
    const char *file = scratch_write("joules.ini", "[sweep]\nsystems = dllm-serve\nrequests = 20\n"
                                                   "rates = 1\ngpus = rtx4090\n");
    text = PRINTS("sweep", file, "--profile", profile);
    ck_assert(strstr(text, "J/token") != NULL);
    free(text);
    json = JSON("capacity", "--requests", "20", "--gpu", "rtx4090", "--system", "dllm-serve",
                "--slo", "p99 latency<20s", "--no-curve", "--profile", profile);
    ck_assert(number(json, "configurations/0/by_seed/0/at_capacity/joules_per_answer_token") > 0);
    json_decref(json);
}

/* The steps after the first, which runs a shared prefix alone, are larger. */
TEST(leading_layers_are_refused_where_a_batch_is_as_large_as_its_first_steps) {
    static const char *const by[] = {"scheduler=static", "scheduler=chunked"};
    for (size_t i = 0; i < sizeof by / sizeof by[0]; i++) {
        REFUSES(2,
                "unmask: cache bicache shares prefixes of bidirectional models, each run by itself "
                "in one piece: set scheduler = continuous",
                "run", "--system", "bicache", "--rate", "1", "--requests", "2", "--set", by[i]);
    }
}

SUITE("compare")
