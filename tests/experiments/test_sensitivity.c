/* Rankings over a setting that was inferred. */
#include <jansson.h>

#include "sim/base/input/config.h"
#include "tests/support/cli.h"

/* Fast-dLLM serves more than Sparse-dLLM with as many layers, and less than with far fewer. */
static const char ranking[] = "[layers]\n"
                              "claim = a test\n"
                              "systems = fast-dllm, sparse-dllm\n"
                              "gpu = l40s\n"
                              "workloads = burst\n"
                              "rate = 1\n"
                              "printed = -\n"
                              "key = layers\n"
                              "of = second\n"
                              "values = 8, 32\n"
                              "why = a test\n";

static const char *written(const char *text) {
    return scratch_write("ranking.ini", text);
}

TEST(a_ranking_that_turns_round_is_bracketed_by_neighbouring_whole_numbers) {
    char *text = PRINTS("sensitivity", "--file", written(ranking), "--json");
    json_t *claims = json_loads(text, 0, NULL);
    const json_t *row = json_array_get(json_object_get(json_array_get(claims, 0), "ratios"), 0);
    double shipped = json_number_value(json_object_get(row, "as shipped"));
    ck_assert_double_gt(shipped, 1);
    ck_assert_double_eq(json_number_value(json_object_get(row, "32")), shipped);
    ck_assert_double_lt(json_number_value(json_object_get(row, "8")), 1);
    int low, high;
    const char *turns = json_string_value(json_object_get(row, "turns at"));
    ck_assert_int_eq(sscanf(turns, "%d to %d", &low, &high), 2);
    ck_assert_int_eq(high, low + 1);
    ck_assert(low >= 8 && high <= 32);
    json_decref(claims);
    free(text);
    /* One wins below and the other above. */
    char lines[sizeof ranking + 16], asked[2][16];
    const int at[] = {low, high};
    const char *values = strstr(ranking, "8, 32");
    snprintf(lines, sizeof lines, "%.*s%d, %d%s", (int)(values - ranking), ranking, low, high,
             values + strlen("8, 32"));
    text = PRINTS("sensitivity", "--file", written(lines), "--json");
    claims = json_loads(text, 0, NULL);
    row = json_array_get(json_object_get(json_array_get(claims, 0), "ratios"), 0);
    double ratios[2];
    for (int i = 0; i < 2; i++) {
        snprintf(asked[i], sizeof asked[i], "%d", at[i]);
        ratios[i] = json_number_value(json_object_get(row, asked[i]));
    }
    ck_assert(ratios[0] < 1 && ratios[1] > 1);
    json_decref(claims);
    free(text);
}

TEST(a_ranking_that_keeps_its_winner_never_turns) {
    char lines[sizeof ranking + 16], *values;
    snprintf(lines, sizeof lines, "%s", ranking);
    values = strstr(lines, "8, 32");
    memcpy(values, "31,32", 5);
    char *text = PRINTS("sensitivity", "--file", written(lines), "--json");
    json_t *claims = json_loads(text, 0, NULL);
    const json_t *row = json_array_get(json_object_get(json_array_get(claims, 0), "ratios"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(row, "turns at")), "never");
    json_decref(claims);
    free(text);
}

/* With the first of their values alone: where a ranking turns is searched above. */
TEST(the_shipped_rankings_all_have_results) {
    char *shipped = scratch_read("experiments/study/sensitivity.ini");
    for (char *line = strstr(shipped, "\nvalues = "); line != NULL;
         line = strstr(line + 1, "\nvalues = ")) {
        size_t length = strcspn(line + 1, "\n"), first = strcspn(line + 1, ",\n");
        memset(line + 1 + first, ' ', length - first);
    }
    char *text = PRINTS("sensitivity", "--file", written(shipped), "--json");
    free(shipped);
    json_t *claims = json_loads(text, 0, NULL), *claim, *row;
    size_t i, j;
    ck_assert_uint_gt(json_array_size(claims), 1);
    json_array_foreach(claims, i, claim) {
        json_array_foreach(json_object_get(claim, "ratios"), j, row) {
            ck_assert_double_gt(json_number_value(json_object_get(row, "as shipped")), 0);
        }
    }
    json_decref(claims);
    free(text);
}

static const char *line_of(const struct config *config, const char *section, const char *key) {
    return config_find(config, section, key)->value;
}

/* One run of two requests with the setting at this value, of the last system that gets it. */
static void run_at(const struct config *config, const char *section, const char *value) {
    const char *key = line_of(config, section, "key"),
               *systems = line_of(config, section, "systems");
    const char *second = strchr(systems, ',') + 2,
               *workloads = line_of(config, section, "workloads");
    bool of_first = line_of(config, section, "of")[0] == 'f', is_gpu = strcmp(key, "gpu") == 0;
    char system[64], workload[64], setting[128];
    snprintf(system, sizeof system, "%.*s", (int)strcspn(systems, ","), systems);
    snprintf(workload, sizeof workload, "%.*s", (int)strcspn(workloads, ","), workloads);
    snprintf(setting, sizeof setting, "%s=%s", is_gpu ? "skip_ahead" : key, is_gpu ? "on" : value);
    free(PRINTS("run", "--system", of_first ? system : second, "--gpu",
                is_gpu ? value : line_of(config, section, "gpu"), "--workload", workload,
                "--requests", "2", "--set", setting));
}

/* Where the rankings turn is searched above, and all of them are run once: what is left is that
 * every value can be set and run. */
TEST(every_value_of_the_shipped_rankings_runs) {
    struct config config;
    struct err err = {0};
    size_t n = 0;
    char *text = scratch_read("experiments/study/sensitivity.ini");
    ck_assert_int_eq(config_parse("sensitivity.ini", text, strlen(text), &config, &err), 0);
    for (size_t i = 0; i < config.n_entries; i++) {
        const struct config_entry *entry = &config.entries[i];
        if (strcmp(entry->key, "values") != 0) {
            continue;
        }
        for (char *rest = entry->value, *value; (value = strsep(&rest, ",")) != NULL; n++) {
            run_at(&config, entry->section, value + strspn(value, " "));
        }
    }
    ck_assert_uint_gt(n, 40);
    config_fini(&config);
    free(text);
}

TEST(a_ranking_without_a_setting_is_refused) {
    struct output output = CLI("sensitivity", "--file", written("[x]\nclaim = a\ngpu = l40s\n"));
    ck_assert_int_eq(output.status, 2);
    ck_assert_ptr_nonnull(strstr(output.err, "[x] lacks 'key'"));
    output_free(&output);
}

TEST(a_run_that_fails_is_told_and_no_dash_in_the_table) {
    const char *lines = "[x]\nclaim = a test\nsystems = dllm-serve, fast-dllm\ngpu = l40s\n"
                        "workloads = burst\nrate = 1\nprinted = -\nkey = cache\nof = second\n"
                        "values = dual, ./none.so\nwhy = a test\n";
    REFUSES(1, "fast-dllm has no result: ", "sensitivity", "--file", written(lines));
}

static const char assuming[] = "[mine]\n"
                               "cache = dual\n"
                               "scheduler = static\n"
                               "kv = slab\n"
                               "max_requests = 3\n"
                               "assumed.max_requests = nobody printed it\n";

/* Warnings of a run with this code. */
static size_t n_warnings(struct output output, const char *code) {
    char *text = cli_text(output);
    json_t *run = json_loads(text, 0, NULL), *warning;
    size_t i, n = 0;
    json_array_foreach(json_object_get(run, "warnings"), i, warning) {
        n += strcmp(json_string_value(json_object_get(warning, "code")), code) == 0;
    }
    json_decref(run);
    free(text);
    return n;
}

#define RUN_MINE(setting)                                                                          \
    CLI("run", "--json", "--gpu", "l40s", "--workload", "burst", "--requests", "4", "--systems",   \
        written(assuming), "--system", "mine", "--set", setting)

TEST(a_setting_that_was_inferred_is_a_warning_until_it_is_set_otherwise) {
    ck_assert_uint_eq(n_warnings(RUN_MINE("skip_ahead=off"), "setting-assumed"), 1);
    ck_assert_uint_eq(n_warnings(RUN_MINE("max_requests=2"), "setting-assumed"), 0);
}

TEST(an_assumption_without_its_setting_is_refused) {
    const char *path = written("[mine]\ncache = dual\nassumed.max_requests = why\n");
    struct output output = CLI("run", "--gpu", "l40s", "--workload", "burst", "--requests", "4",
                               "--systems", path, "--system", "mine");
    ck_assert_int_eq(output.status, 2);
    output_free(&output);
}

/* The largest batch of Fast-dLLM as released under a load that fills every batch. */
static double largest_batch(const char *workload, const char *setting) {
    char *text = PRINTS("run", "--json", "--gpu", "l40s", "--workload", workload, "--requests",
                        "200", "--rate", "5", "--system", "fast-dllm-published", "--set", setting);
    json_t *run = json_loads(text, 0, NULL);
    double batch = json_number_value(json_object_get(run, "max_batch"));
    json_decref(run);
    free(text);
    return batch;
}

TEST(the_longest_request_of_a_workload_sizes_a_static_batch) {
    double of_short = largest_batch("osc", "profile_canvas=workload");
    double of_long = largest_batch("burst", "profile_canvas=workload");
    ck_assert_double_gt(of_short, of_long);
    ck_assert_double_gt(of_long, largest_batch("burst", "profile_canvas=context"));
    ck_assert_double_eq(largest_batch("osc", "profile_canvas=context"),
                        largest_batch("burst", "profile_canvas=context"));
}

SUITE("sensitivity")
