/* The command line: golden outputs, replays, threads, resuming, interrupts. */
#include <sqlite3.h>

#include "tests/support/cli.h"

/* UNMASK_GOLDEN=write in the environment renews the files instead of comparing with them. */
static void same_as_golden(const char *name, char *text) {
    cli_drop_identity(text);
    char path[128];
    snprintf(path, sizeof path, "tests/golden/cli/%s", name);
    const char *mode = getenv("UNMASK_GOLDEN");
    if (mode != NULL && strcmp(mode, "write") == 0) {
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs(text, file);
        fclose(file);
    }
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "there is no %s", path);
    char *expected = cli_read(file);
    fclose(file);
    ck_assert_str_eq(text, expected);
    free(expected);
    free(text);
}

/* The files of tests/golden/cli/systems.ini and trace.csv; prices by the data sheet. Kept commands
 * plot both outputs. */
TEST(json_is_as_it_was) {
    same_as_golden("run.json",
                   PRINTS("run", "--systems", "tests/golden/cli/systems.ini", "--roofline",
                          "--system", "eager", "--trace", "tests/golden/cli/trace.csv", "--json",
                          "--slo-latency", "20s"));
    same_as_golden("lmax.json", PRINTS("plan", "lmax", "--systems-file",
                                       "tests/golden/cli/systems.ini", "--system", "asking",
                                       "--memory", "40GiB", "--share-of", "output", "--json"));
}

TEST(the_same_words_print_the_same_bytes) {
    char *first = PRINTS("run", "--requests", "300", "--seed", "5", "--decoder", "threshold");
    char *second = PRINTS("run", "--requests", "300", "--seed", "5", "--decoder=threshold");
    char *other = PRINTS("run", "--requests", "300", "--seed", "6", "--decoder", "threshold");
    ck_assert_str_eq(first, second);
    ck_assert_str_ne(first, other);
    free(first);
    free(second);
    free(other);
}

/* Record with `words`, replay, and compare the JSON byte for byte up to what a replay adds. */
static void replays(const char *run, const char *const *words) {
    const char *all[CLI_MOST_ARGS] = {"run",      "--db",  scratch_path("replay.db"),
                                      "--levels", "steps", "--json"};
    size_t n = 6;
    for (size_t i = 0; words[i] != NULL; i++) {
        all[n++] = words[i];
    }
    char *recorded = cli_text(cli_run(&(const struct child){0}, all));
    char *replayed = PRINTS("replay", "--db", scratch_path("replay.db"), "--run", run, "--json");
    size_t length = strlen(recorded) - strlen("\n}\n");
    ck_assert_msg(strncmp(recorded, replayed, length) == 0, "%s%s", recorded, replayed);
    static const char added[] = ",\n  \"replay\": {\n    \"submissions\": ";
    ck_assert_int_eq(strncmp(replayed + length, added, sizeof added - 1), 0);
    ck_assert_ptr_nonnull(strstr(replayed + length, "\"measured\": null"));
    free(recorded);
    free(replayed);
}

#define REPLAYS(run, ...) replays(run, (const char *const[]){__VA_ARGS__, NULL})

TEST(a_replay_prints_the_json_of_the_run_byte_for_byte) {
    REPLAYS("1", "--requests", "120");
    REPLAYS("2", "--requests", "60", "--system", "fast-dllm-published", "--slo-ttfb", "30s");
    REPLAYS("3", "--requests", "90", "--replicas", "3", "--decoder", "threshold", "--gpu", "h200");
    REPLAYS("4", "--requests", "90", "--arrivals", "closed-loop", "--set",
            "workload.arrivals.clients=20");
    REPLAYS("5", "--requests", "40", "--roofline", "--set", "context_tokens=700");
    REPLAYS("6", "--requests", "40", "--scheduler", "continuous", "--seed", "9");
    REPLAYS("7", "--requests", "40", "--system", "dllm-serve-published", "--gpu", "a100-80g");
}

TEST(a_replay_of_a_changed_record_says_where_it_diverges) {
    const char *db = scratch_path("changed.db");
    free(PRINTS("run", "--requests", "30", "--db", db, "--levels", "steps"));
    sqlite3 *sqlite = NULL;
    ck_assert_int_eq(sqlite3_open(db, &sqlite), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(sqlite,
                                  "UPDATE requests SET arrival_ns = arrival_ns + 3000000000 "
                                  "WHERE id = 7; UPDATE runs SET sha256 = NULL, "
                                  "rows_sha256 = NULL",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(sqlite);
    struct output output = CLI("replay", "--db", db, "--run", "1");
    ck_assert_int_eq(output.status, 1);
    ck_assert_msg(strstr(output.err, "unmask: the replay diverges at submission ") != NULL, "%s",
                  output.err);
    output_free(&output);
}

TEST(a_replay_needs_a_run_that_kept_its_steps) {
    const char *db = scratch_path("levels.db");
    free(PRINTS("run", "--requests", "5", "--db", db));
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "run 1 of %s was recorded without its steps; a replay needs --levels steps", db);
    REFUSES(2, sentence, "replay", "--db", db, "--run", "1");
    snprintf(sentence, sizeof sentence, "'%s' has no run 2", db);
    REFUSES(2, sentence, "replay", "--db", db, "--run", "2");
}

static char *bytes_of(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    char *bytes = cli_read(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    fclose(file);
    return bytes;
}

static void same_files(const char *a, const char *b) {
    size_t size_a, size_b;
    char *bytes_a = bytes_of(a, &size_a), *bytes_b = bytes_of(b, &size_b);
    ck_assert_uint_eq(size_a, size_b);
    ck_assert_int_eq(memcmp(bytes_a, bytes_b, size_a), 0);
    free(bytes_a);
    free(bytes_b);
}

TEST(threads_change_neither_table_nor_database) {
    const char *systems = "vanilla,fast-dllm-published,dllm-serve-published,dllm-serve";
    char *one = PRINTS("compare", "--systems", systems, "--requests", "60", "-j", "1", "--db",
                       scratch_path("one.db"), "--levels", "events");
    char *two = PRINTS("compare", "--systems", systems, "--requests", "60", "-j2", "--db",
                       scratch_path("two.db"), "--levels", "events");
    ck_assert_str_eq(one, two);
    same_files(scratch_path("one.db"), scratch_path("two.db"));
    free(one);
    free(two);
}

TEST(compare_records_what_run_records) {
    free(PRINTS("run", "--system", "vanilla", "--requests", "40", "--db", scratch_path("run.db"),
                "--levels", "events"));
    free(PRINTS("compare", "--systems", "vanilla", "--requests", "40", "--db",
                scratch_path("compare.db"), "--levels", "events"));
    same_files(scratch_path("run.db"), scratch_path("compare.db"));
}

TEST(a_sweep_resumes_where_it_stopped) {
    const char *half = scratch_write("half.ini", "[sweep]\nsystems = dllm-serve\nrates = 0.5, 1\n"
                                                 "requests = 60\n");
    const char *whole =
        scratch_write("whole.ini", "[sweep]\nsystems = dllm-serve, vanilla\nrates = 0.5, 1\n"
                                   "requests = 60\nset.memory_utilization = 0.95, 0.2\n");
    const char *db = scratch_path("sweep.db");
    char *fresh = PRINTS("sweep", whole, "-j", "1");
    free(PRINTS("sweep", half, "--db", db));
    struct output resumed = CLI("sweep", whole, "-j", "2", "--db", db);
    ck_assert_str_eq(resumed.out, fresh);
    ck_assert_ptr_nonnull(strstr(resumed.err, "unmask: 2 points were in "));
    output_free(&resumed);
    struct output again = CLI("sweep", whole, "--db", db);
    ck_assert_str_eq(again.out, fresh);
    ck_assert_ptr_nonnull(strstr(again.err, "unmask: 4 points were in "));
    output_free(&again);
    free(fresh);
}

TEST(a_sweep_that_was_interrupted_keeps_its_whole_runs) {
    const char *file =
        scratch_write("long.ini", "[sweep]\nsystems = dllm-serve\nrequests = 20, 1000000000\n"
                                  "set.workload.arrivals = closed-loop\n");
    const char *db = scratch_path("long.db");
    struct output output = CLI_AS(&(const struct child){.interrupt_after = 700000}, "sweep", file,
                                  "--db", db, "-j", "1");
    ck_assert_msg(strstr(output.err, "1 of 2 points have no result; the first: interrupted") !=
                      NULL,
                  "%s", output.err);
    ck_assert_ptr_nonnull(strstr(output.err, "unmask: 1 of 2 runs in "));
    ck_assert_ptr_nonnull(strstr(output.err, "; the same command goes on where this one "));
    ck_assert_int_eq(output.status, 1);
    output_free(&output);
    struct output later = CLI("replay", "--db", db, "--run", "2");
    ck_assert_int_eq(later.status, 2);
    output_free(&later);
    free(PRINTS("report", db, "--out", scratch_path("report.html")));
}

TEST(an_interrupted_run_says_what_was_kept) {
    const char *db = scratch_path("interrupted.db");
    free(PRINTS("run", "--requests", "20", "--db", db, "--levels", "steps"));
    struct output output =
        CLI_AS(&(const struct child){.interrupt_after = 700000}, "run", "--db", db, "--arrivals",
               "closed-loop", "--requests", "1000000000", "--timeline", scratch_path("i.json"));
    ck_assert_int_eq(output.status, 1);
    ck_assert_ptr_nonnull(strstr(output.err, "unmask: interrupted: "));
    ck_assert_ptr_nonnull(strstr(output.err, ", rejected ones that waited or ran 8, "));
    ck_assert_ptr_nonnull(strstr(output.err, ". It was not recorded, and earlier runs are as they "
                                             "were\n"));
    ck_assert_ptr_nonnull(strstr(output.out, "shutdown 8"));
    output_free(&output);
    free(PRINTS("replay", "--db", db, "--run", "1"));
    char sentence[256];
    snprintf(sentence, sizeof sentence, "'%s' has no run 2", db);
    REFUSES(2, sentence, "replay", "--db", db, "--run", "2");
}

TEST(rejected_requests_are_counted_and_listed) {
    const char *trace =
        scratch_write("long.csv", "arrival_us,input_tokens,output_tokens\n"
                                  "0,100,64\n10,40000,64\n20,100,64\n30,50000,64\n");
    char *text = PRINTS("run", "--trace", trace);
    ck_assert_ptr_nonnull(strstr(text, "2 completed of 4; 2 rejected"));
    ck_assert_ptr_nonnull(strstr(text, "2 for context: request 1, 3\n"));
    free(text);
}

TEST(provenance_is_in_every_output) {
    char *text = PRINTS("run", "--gpu", "a100-40g", "--workload", "osc", "--requests", "20");
    ck_assert_ptr_nonnull(strstr(text, "a100-40g: transferred"));
    ck_assert_ptr_nonnull(strstr(text, "assumed inputs"));
    free(text);
    text = PRINTS("run", "--system", "dllm-serve-published", "--requests", "20", "--set",
                  "scheduler.stop_at_misfit=off");
    ck_assert_ptr_nonnull(strstr(text, "(dLLM-Serve Table 4"));
    ck_assert_ptr_nonnull(strstr(text, "scheduler.stop_at_misfit=off"));
    free(text);
    text = PRINTS("compare", "--systems", "vanilla,dllm-serve", "--roofline", "--requests", "5");
    ck_assert_ptr_nonnull(strstr(text, "prices roofline"));
    free(text);
    text = PRINTS("list", "gpus");
    ck_assert_ptr_nonnull(strstr(text, "transferred from rtx4090"));
    ck_assert_ptr_nonnull(strstr(text, "imported"));
    free(text);
    text = PRINTS("explain", "--gpu", "rtx3090", "--model", "llada-8b");
    ck_assert_ptr_nonnull(strstr(text, "transferred"));
    free(text);
}

TEST(every_section_of_list_names_something) {
    static const char *const sections[] = {
        "systems",  "schedulers",  "caches",    "decoders", "routers", "planners", "runtimes",
        "models",   "gpus",        "workloads", "arrivals", "lengths", "traces",   "experiments",
        "profiles", "confidences", "hosts",     "fields",   "marks"};
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        char *text = PRINTS("list", sections[i]);
        ck_assert_msg(strchr(text, '\n') != NULL && strchr(strchr(text, '\n') + 1, '\n') != NULL,
                      "%s: %s", sections[i], text);
        free(text);
    }
    char *all = PRINTS("list", "--json");
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        char key[64];
        snprintf(key, sizeof key, "\n  \"%s\": {", sections[i]);
        ck_assert_msg(strstr(all, key) != NULL, "%s", sections[i]);
    }
    free(all);
}

TEST(the_host_is_an_option_and_part_of_the_output) {
    char *text = PRINTS("run", "--system", "dllm-serve-published", "--requests", "5");
    ck_assert_ptr_nonnull(strstr(text, "\nhost         dllm-serve-l40s: calibrated, factor 0.4"));
    free(text);
    text = PRINTS("run", "--system", "dllm-serve-published", "--requests", "5", "--host",
                  "dllm-serve-rtx4090", "--json");
    ck_assert_ptr_nonnull(strstr(text, "\"name\": \"dllm-serve-rtx4090\""));
    free(text);
    text = PRINTS("compare", "--systems", "dllm-serve,dllm-serve-published", "--requests", "5");
    ck_assert_ptr_nonnull(strstr(text, "\nhost         default: assumed, "));
    ck_assert_ptr_nonnull(strstr(text, "\nhost         dllm-serve-l40s: calibrated, "));
    free(text);
    struct output none = CLI("figure", "mosaic-fig3", "--host", "reference");
    ck_assert_int_eq(none.status, 2);
    output_free(&none);
}

TEST(figures_end_with_the_score_of_their_papers) {
    char *text = PRINTS("figure", "mosaic-fig5", "mosaic-fig11");
    const char *score = strstr(text, "score by paper");
    ck_assert_ptr_nonnull(score);
    ck_assert_msg(strstr(score, "\nMosaic            1       1  100 %          3       1   33 %    "
                                "        0        2      1") != NULL,
                  "%s", score);
    ck_assert_ptr_nonnull(strstr(score, "mosaic-lengths              cannot be known"));
    free(text);
    text = PRINTS("figure", "mosaic-fig16"); /* one has its table */
    ck_assert_ptr_null(strstr(text, "score by paper"));
    free(text);
}

/* Anywhere, without a paper, over any key, by any field; the command line replaces its lists. */
TEST(a_figure_of_ones_own_is_a_file_with_a_query) {
    const char *figure =
        scratch_write("mine.ini", "[figure]\ntitle = tokens over retention\nkind = table\n"
                                  "query = SELECT gpu, cache_retention AS x, tpf AS y,\n"
                                  "  round(kv_pool_bytes / 1e9) AS pool FROM run\n"
                                  "[run]\nsystem = dllm-serve\ngpu = l40s\nworkload = osc\n"
                                  "rate = 0.5\nrequests = 5\nset cache.retention = 0.25, 0.5\n");
    char *text = PRINTS("figure", figure);
    ck_assert_ptr_nonnull(strstr(text, "tokens over retention\ngpu      x"));
    ck_assert_ptr_nonnull(strstr(text, "\nl40s  0.25"));
    ck_assert_ptr_nonnull(strstr(text, "\nl40s   0.5"));
    ck_assert_ptr_null(strstr(text, "paper"));
    free(text);
    text = PRINTS("figure", figure, "--gpu", "a100-80g,h100", "--set", "cache.retention=0.4");
    const char *changed = strstr(text, "\nchanged:\n"), *before = strstr(text, "\nunchanged:\n");
    ck_assert(before != NULL && changed > before); /* it and the figure as it is */
    ck_assert_ptr_nonnull(strstr(before, "\nl40s  0.25"));
    ck_assert_ptr_null(strstr(changed, "l40s"));
    ck_assert_ptr_nonnull(strstr(text, " (changed: gpu=a100-80g,h100, cache.retention=0.4)\n"));
    ck_assert_ptr_nonnull(strstr(text, "\na100-80g  0.4"));
    ck_assert_ptr_nonnull(strstr(text, "\nh100      0.4"));
    free(text);
    struct output none = CLI("figure", "./nowhere.ini");
    ck_assert_int_eq(none.status, 1);
    output_free(&none);
}

/* What ranks exchange goes over links, each model's own prices are listed, and a folder that is not
 * there is what is wrong, not another model's size. */
TEST(sentences_name_what_is_so) {
    char *text = PRINTS("explain", "--set", "tensor_parallel=4");
    const char *row = strstr(text, "dense layers/attention all-reduce");
    ck_assert_ptr_nonnull(row);
    const char *end = strchr(row, '\n'), *link = strstr(row, "  link  ");
    ck_assert(link != NULL && link < end);
    free(text);
    text = PRINTS("list", "gpus");
    ck_assert_ptr_nonnull(strstr(text, "imported; measured for "));
    free(text);
    struct output missing =
        CLI("generate", "--backend", "cpu", "--weights", "./nosuch", "--text", "hi");
    ck_assert_int_eq(missing.status, 1);
    ck_assert_ptr_nonnull(strstr(missing.err, "--weights: cannot open './nosuch'"));
    output_free(&missing);
}

/* The paper's numbers stand beside the figure as it is, whatever was changed. */
TEST(a_changed_figure_has_both_next_to_what_was_printed) {
    char *text = PRINTS("figure", "mosaic-fig16", "--gpu", "a100-80g");
    ck_assert_ptr_nonnull(strstr(text, " (changed: gpu=a100-80g)\nprinted values are of the "
                                       "unchanged figure\n"));
    ck_assert_ptr_nonnull(strstr(text, "ours unchanged  ours changed  changed/unchanged  printed"));
    ck_assert_ptr_null(strstr(text, "prints no number"));
    free(text);
}

TEST(a_system_that_does_not_fit_is_a_row_with_the_reason) {
    char *text = PRINTS("compare", "--systems", "vanilla,dllm-serve", "--gpu", "rtx3090", "--set",
                        "memory_utilization=0.3", "--requests", "5");
    ck_assert_ptr_nonnull(strstr(text, "no result    vanilla: LLaDA-8B"));
    ck_assert_ptr_nonnull(strstr(text, " does not fit into NVIDIA GeForce RTX 3090"));
    free(text);
    struct output alone =
        CLI("run", "--system", "vanilla", "--gpu", "rtx3090", "--set", "memory_utilization=0.3");
    ck_assert_int_eq(alone.status, 1);
    ck_assert_ptr_nonnull(strstr(alone.err, " does not fit into NVIDIA GeForce RTX 3090"));
    output_free(&alone);
}

/* What a sentence says of a file's name is not what happened. */
static int says(const char *json, const char *code) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"code\": \"%s\"", code);
    return strstr(json, wanted) != NULL;
}

TEST(a_run_carries_the_codes_of_what_makes_it_easy_to_misread) {
    char *abroad = PRINTS("run", "--system", "dllm-serve-published", "--gpu", "a100-80g",
                          "--requests", "300", "--rate", "2", "--json");
    char *alone = PRINTS("run", "--system", "fast-dllm", "--requests", "60", "--rate", "0.1",
                         "--json", "--set", "context_tokens=600", "--roofline");
    ck_assert(says(abroad, "host-of-another-machine") && says(abroad, "saturated"));
    ck_assert(!says(abroad, "rejected"));
    ck_assert(!says(alone, "host-of-another-machine") && !says(alone, "saturated"));
    ck_assert(says(alone, "rejected") && says(alone, "prices-roofline"));
    free(abroad);
    free(alone);
    char *step = PRINTS("explain", "--system", "fast-dllm", "--roofline", "--json");
    /* A product with its activation goes by the product's rows, where it has none of its own. */
    char *product = PRINTS("explain", "--system", "lmdeploy", "--gpu", "a100-80g", "--requests",
                           "256", "--step", "3", "--json", "--set", "block_tokens=32");
    ck_assert(!says(product, "prices-roofline"));
    free(product);
    char *measured = PRINTS("explain", "--gpu", "h200", "--json");
    ck_assert(says(step, "prices-roofline") && !says(measured, "prices-roofline"));
    free(step);
    free(measured);
}

TEST(only_a_system_without_room_is_a_result_without_numbers) {
    struct output output = CLI("compare", "--systems", "dllm-serve", "--trace",
                               "/nowhere/this does not fit into it.csv");
    ck_assert_int_ne(output.status, 0);
    output_free(&output);
}

SUITE("cli")
