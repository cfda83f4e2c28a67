/* What people read of commands: words for what programs know by keys, and nothing twice. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/paper/paper.h"
#include "sim/base/mem.h"
#include "tests/support/cli.h"

static size_t lines_of(const char *text) {
    size_t n = 0;
    for (const char *at = strchr(text, '\n'); at != NULL; at = strchr(at + 1, '\n')) {
        n++;
    }
    return n;
}

static bool has(const char *text, const char *words) {
    return strstr(text, words) != NULL;
}

TEST(list_alone_is_an_overview_of_its_kinds) {
    char *text = PRINTS("list"), *help = PRINTS("list", "--help");
    ck_assert_uint_lt(lines_of(text), 30);
    ck_assert(has(text, "\nsystems ") && has(text, "\nfeatures ") && has(text, "unmask list KIND"));
    ck_assert(!has(text, "dllm-serve"));
    char *json = PRINTS("list", "--json");
    json_t *all = json_loads(json, 0, NULL), *listing;
    const char *kind;
    free(json);
    json_object_foreach(all, kind, listing) {
        ck_assert_msg(has(text, kind) && has(help, kind), "%s", kind);
    }
    json_decref(all);
    free(text);
    text = PRINTS("list", "systems");
    ck_assert(has(text, "no: padded batches") && !has(text, "no: runtime."));
    free(text);
    free(help);
}

TEST(a_price_is_explained_without_the_table_of_all_operators) {
    char *table = PRINTS("explain", "--reuse", "4"),
         *why = PRINTS("explain", "--reuse", "4", "--why", "gate and up");
    ck_assert(has(table, "/down ") && has(table, "\nof the time"));
    ck_assert(!has(why, "/down ") && !has(why, "\nof the time"));
    ck_assert(has(why, "\nwhy ") && has(why, " % of the step: ") && has(why, "why the step takes"));
    free(table);
    free(why);
}

TEST(a_step_that_is_not_measured_has_no_columns_of_what_was) {
    const char *csv = scratch_path("latency.csv");
    char *text = PRINTS("plan", "latency", "--gpu", "rtx3090", "--canvases", "1024", "--csv", csv);
    ck_assert(has(text, "priced_ms") && has(text, "roofline_%") && !has(text, "step_ms"));
    free(text);
    FILE *file = fopen(csv, "r");
    ck_assert_ptr_nonnull(file);
    text = scratch_rest(file);
    fclose(file);
    ck_assert(has(text, ",priced_ms,step_ms,spread_%,attention_ms,ffn_ms,logits_ms,roofline_%\n"));
    free(text);
}

TEST(the_longest_canvas_says_what_the_next_one_lacks) {
    char *text = PRINTS("plan", "lmax", "--system", "mosaic", "--model", "llada-8b", "--gpu",
                        "rtx3090", "--breakdown");
    ck_assert(has(text, " tokens take ") && has(text, " too much\n"));
    ck_assert(has(text, ": does not fit") && has(text, "a peak is the most"));
    free(text);
}

/* Programs that read CSV find columns by their names. */
static void has_own_names(char *csv) {
    csv[strcspn(csv, "\n")] = '\0';
    char *rest = NULL;
    const char *seen[64];
    size_t n = 0;
    for (char *name = strtok_r(csv, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        for (size_t i = 0; i < n; i++) {
            ck_assert_str_ne(seen[i], name);
        }
        ck_assert_uint_lt(n, 64);
        seen[n++] = name;
    }
    ck_assert_uint_gt(n, 3);
    free(csv);
}

TEST(no_two_columns_of_a_table_have_one_name) {
    has_own_names(PRINTS("bound", "--requests", "20", "--slo-latency", "20s", "--format", "csv"));
    has_own_names(PRINTS("compare", "--systems", "dllm-serve,fast-dllm", "--requests", "20",
                         "--slo-latency", "20s", "--format", "csv"));
    has_own_names(PRINTS("capacity", "--slo", "p99 latency<60s", "--requests", "20", "--no-curve",
                         "--format", "csv"));
    has_own_names(PRINTS("profile", "check", "rtx-pro-6000", "--format", "csv"));
    char *text = PRINTS("bound", "--requests", "20");
    ck_assert(has(text, " selecting refresh passes at ") && !has(text, ", selecting"));
    free(text);
}

TEST(all_that_can_be_drawn_has_a_meaning) {
    const char *db = scratch_path("words.db");
    const char *file = scratch_write("words.ini", "[sweep]\nsystems = dllm-serve, sparse-dllm\n"
                                                  "rates = 0.2, 0.4\nrequests = 5\n"
                                                  "set.cache.retention = 0.3, 0.5\n");
    free(PRINTS("sweep", file, "--db", db));
    char *text = PRINTS("plot", db, "--json");
    json_t *fields = json_loads(text, 0, NULL);
    size_t i;
    json_t *field;
    ck_assert_uint_gt(json_array_size(fields), 40);
    json_array_foreach(fields, i, field) {
        ck_assert_msg(json_is_string(json_object_get(field, "meaning")), "%s",
                      json_string_value(json_object_get(field, "field")));
    }
    json_decref(fields);
    free(text);
    text = PRINTS("plot", db);
    ck_assert(has(text, "share of the context") || has(text, "rows of a canvas"));
    free(text);
}

TEST(figures_of_the_engine_are_labelled) {
    char *text = PRINTS("run", "--backend", "cpu", "--model", "llada-tiny", "--requests", "1",
                        "--input-tokens", "8", "--output-tokens", "8", "--set", "block_tokens=8");
    const char *engine = strstr(text, "\nengine       device at work ");
    ck_assert_ptr_nonnull(engine);
    ck_assert(!has(engine, "_bytes") && !has(engine, "_s ") && has(engine, "memory, metered"));
    free(text);
}

TEST(runs_steps_and_lists_say_what_is_a_design) {
    static const char *const asked[][4] = {{"run", "--requests", "3"},
                                           {"explain"},
                                           {"plan"},
                                           {"plan", "latency"},
                                           {"bound", "--requests", "3"}};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const char *const *words = asked[i];
        char *text = words[1] == NULL   ? PRINTS(words[0])
                     : words[2] == NULL ? PRINTS(words[0], words[1])
                                        : PRINTS(words[0], words[1], words[2]);
        ck_assert_msg(has(text, "\ndesigns      "), "%s %zu", words[0], i);
        free(text);
    }
    char *text = PRINTS("list", "systems", "--format", "csv");
    ck_assert(has(text, "\nnative,published,") && has(text, "\ndllm-serve,design,"));
    free(text);
}

TEST(tables_tell_designs_from_what_was_published) {
    char *text = PRINTS("compare", "--systems", "dllm-serve,dllm-serve-published,vanilla", "--rate",
                        "0.1", "--requests", "5");
    ck_assert(has(text, "\ndesigns      dllm-serve, vanilla: ") &&
              has(text, "; nearest released: dllm-serve-published, vanilla-published\n"));
    ck_assert(has(text, "\npublished    dllm-serve-published: "));
    free(text);
    text = PRINTS("capacity", "--system", "dllm-serve-published", "--slo", "p99 latency<60s",
                  "--requests", "20", "--no-curve");
    ck_assert(!has(text, "\ndesigns ") && has(text, "\npublished    dllm-serve-published: "));
    free(text);
    const char *file = scratch_write("own.ini", "[mine]\nbase = dllm-serve\n");
    text = PRINTS("compare", "--systems", "mine", "--systems-file", file, "--requests", "5");
    ck_assert(!has(text, "\ndesigns ") && !has(text, "\npublished "));
    free(text);
}

TEST(help_of_a_command_is_the_command_with_help) {
    char *run = PRINTS("run", "--help"), *same = PRINTS("help", "run");
    ck_assert_str_eq(run, same);
    free(same);
    free(run);
    run = PRINTS("plan", "lmax", "--help");
    same = PRINTS("help", "plan", "lmax");
    ck_assert_str_eq(run, same);
    free(same);
    free(run);
    run = PRINTS("trace", "--help");
    same = PRINTS("help", "trace");
    ck_assert_str_eq(run, same);
    free(same);
    free(run);
    REFUSES(2, "unknown command 'rnu'", "help", "rnu");
}

TEST(scores_come_in_every_format_of_tables) {
    char *text = PRINTS("figure", "dllm-serve-fig2", "mosaic-fig9", "--format", "csv");
    ck_assert(has(text, "paper,counted,within 15 %,share,") && has(text, "\nall,"));
    ck_assert(has(text, "\npaper,cause,class,rows,"));
    free(text);
}

/* The score of a paper leaves out some of the rows that a figure counts. */
TEST(a_figure_says_that_causes_may_take_rows_out_of_the_score) {
    const struct paper_row row = {.source = "Table 1",
                                  .system = "a",
                                  .quantity = "x",
                                  .unit = "s",
                                  .value = 1,
                                  .gpu = "",
                                  .model = "",
                                  .dataset = "",
                                  .setting = "",
                                  .cause = "dllm-cache"},
                           plain = {.source = "Table 1",
                                    .system = "b",
                                    .quantity = "x",
                                    .unit = "s",
                                    .value = 1,
                                    .gpu = "",
                                    .model = "",
                                    .dataset = "",
                                    .setting = "",
                                    .cause = ""};
    const struct paper_result results[] = {{.row = &row, .ours = 1}, {.row = &plain, .ours = 2}};
    for (size_t n = 1; n <= 2; n++) {
        char *text = NULL;
        size_t size;
        FILE *memory = mem_stream(&text, &size);
        paper_print(&results[2 - n], n, PAPER_TEXT, memory);
        mem_stream_close(memory);
        ck_assert(has(text, n == 1 ? "0 of 1 rows within" : "1 of 2 rows within"));
        ck_assert(has(text, "\nof these 1 has a cause in brackets") == (n == 2));
        ck_assert(has(text, "figure --scores") == (n == 2));
        free(text);
    }
}

SUITE("words")
