/* Tables for papers and for programs: --format markdown, latex and csv. */
#include <jansson.h>
#include <string.h>

#include "tests/support/cli.h"

#define TWO "compare", "--gpu", "l40s", "--requests", "6", "--systems", "fast-dllm,dllm-serve"

static size_t count(const char *text, const char *words) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at += strlen(words)) {
        n++;
    }
    return n;
}

/* The lines of a text begin so, in this order, and there are no others. */
static void has_lines(const char *text, const char *const *begin) {
    for (; *begin != NULL; begin++) {
        ck_assert_msg(strncmp(text, *begin, strlen(*begin)) == 0, "'%s' begins '%s'", *begin, text);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    ck_assert_str_eq(text, "");
}
#define LINES(text, ...) has_lines(text, (const char *const[]){__VA_ARGS__, NULL})

TEST(a_table_is_alone_on_standard_output) {
    struct output text = CLI(TWO), markdown = CLI(TWO, "--format", "markdown");
    ck_assert_int_eq(markdown.status, 0);
    LINES(markdown.out, "| system | tok/s |", "|---|--:|", "| fast-dllm | ", "| dllm-serve | ");
    /* What people are told besides is not lost. */
    ASSERT_SAYS(markdown.err, "cautions: ");
    ASSERT_SAYS(text.out, "cautions: ");
    output_free(&text);
    output_free(&markdown);
}

TEST(latex_is_a_tabular_whose_characters_are_escaped) {
    struct output latex = CLI(TWO, "--format", "latex");
    LINES(latex.out, "\\begin{tabular}{lr", "\\toprule", "system & tok/s & ", "\\midrule",
          "fast-dllm & ", "dllm-serve & ", "\\bottomrule", "\\end{tabular}");
    ASSERT_SAYS(latex.out, " & GPU\\_\\% & ");
    ck_assert_uint_eq(count(latex.out, " \\\\\n"), 3);
    output_free(&latex);
    latex = CLI(TWO, "--seeds", "2", "--format", "latex");
    ck_assert(strstr(latex.out, "$\\pm$") != NULL && strstr(latex.out, "±") == NULL);
    output_free(&latex);
    /* Signs that the first fonts of TeX have others for, minus and what there is not. */
    latex = CLI("capacity", "--slo", "p95 ttft<2s", "--rate", "3", "--requests", "50",
                "--output-tokens", "32", "--format", "latex");
    ASSERT_SAYS(latex.out, " & p95 ttft$<$2s");
    ck_assert_ptr_null(strstr(latex.out, "ttft<"));
    output_free(&latex);
    latex = CLI(TWO, "--seeds", "3", "--against", "system=dllm-serve", "--format", "latex");
    ck_assert(strstr(latex.out, "$-$") != NULL && strstr(latex.out, "& -- &") != NULL);
    ck_assert_ptr_null(strstr(latex.out, "(-"));
    output_free(&latex);
}

/* Numbers are those of JSON; two tables have an empty line between them. */
TEST(csv_has_the_numbers_of_json) {
    struct output csv = CLI("list", "gpus", "--format", "csv"),
                  json = CLI("list", "gpus", "--json");
    json_t *root = json_loads(json.out, 0, NULL);
    const json_t *gpus = json_object_get(json_object_get(root, "gpus"), "rows");
    ck_assert_ptr_nonnull(gpus);
    ck_assert_uint_eq(count(csv.out, "\n"), json_array_size(gpus) + 1);
    const char *h100 = strstr(csv.out, "\nh100,");
    ck_assert_ptr_nonnull(h100);
    ASSERT_SAYS(csv.out, "name,title,memory,");
    ASSERT_SAYS(csv.out, ",\"transferred from a100-80g (products off by");
    ASSERT_SAYS(csv.out, "\nb200,NVIDIA B200 SXM 180 GB,1.92265847e+11,2250,4500,8000,148,");
    json_decref(root);
    output_free(&csv);
    output_free(&json);
    csv = CLI(TWO, "--seeds", "2", "--format", "csv");
    const char *second = strstr(csv.out, "\n\n");
    ck_assert_ptr_nonnull(second);
    ASSERT_SAYS(second, "\n\ndifference,tok/s,");
    output_free(&csv);
}

/* Also where a command has one row, which people read as lines. */
TEST(one_row_is_a_table_as_well) {
    static const char *const asked[][8] = {
        {"run", "--requests", "4", NULL},
        {"plan", "lmax", "--system", "mosaic", "--gpu", "rtx3090", NULL},
        {"explain", "--refresh", "1", NULL},
        {"capacity", "--requests", "60", "--no-curve", "--slo", "p99 latency<60s", NULL},
        {"bound", "--requests", "20", NULL},
        {"trace", "info", "burst", NULL}};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const char *words[12];
        size_t n = 0;
        for (; asked[i][n] != NULL; n++) {
            words[n] = asked[i][n];
        }
        words[n] = "--format";
        words[n + 1] = "csv";
        words[n + 2] = NULL;
        struct output csv = cli_run(&(const struct child){0}, words);
        ck_assert_int_eq(csv.status, 0);
        const size_t line = strcspn(csv.out, "\n"), comma = strcspn(csv.out, ",");
        ck_assert_msg(line > 0 && comma < line && csv.out[line] != '\0', "%s: %s", words[0],
                      csv.out);
        output_free(&csv);
    }
}

TEST(a_format_that_cannot_be_is_refused) {
    REFUSES(2, "--format takes text, markdown, latex or csv, not 'html'", TWO, "--format", "html");
    REFUSES(2, "--format does nothing here", TWO, "--format", "csv", "--json");
    REFUSES(2, "unknown option '--format'", "merge", "--format", "csv");
    struct output full = CLI_AS(&(const struct child){.stdout_path = "/dev/full"}, "list", "gpus",
                                "--format", "csv");
    ck_assert_int_eq(full.status, 1);
    ASSERT_SAYS(full.err, "cannot write the output: No space left on device");
    output_free(&full);
    struct output text = CLI("list", "gpus"), same = CLI("list", "gpus", "--format", "text");
    ck_assert_str_eq(text.out, same.out);
    output_free(&text);
    output_free(&same);
}

TEST(a_figure_prints_its_table_and_draws_in_the_width_that_was_asked_for) {
    const char *folder = scratch_path("drawn");
    struct output csv = CLI("figure", "dllm-serve-fig2", "--format", "csv", "--width", "5",
                            "--font", "Utopia", "--out", folder);
    ck_assert_int_eq(csv.status, 0);
    LINES(csv.out, "source,row,quantity,unit,printed,ours,", "");
    output_free(&csv);
    char *svg = scratch_read(scratch_path("drawn/dllm-serve-fig2.svg"));
    ASSERT_SAYS(svg, "width=\"480\"");
    ASSERT_SAYS(svg, "Utopia");
    free(svg);
    REFUSES(2, "1.5 to 40 inches, not '99'", "figure", "dllm-serve-fig3", "--width", "99", "--out",
            folder);
    REFUSES(2, "--width does nothing here", "figure", "dllm-serve-fig3", "--width", "5");
}

TEST(what_is_fitted_is_a_table_too) {
    struct output fit = CLI("fit", "edits", "--format", "csv");
    ASSERT_SAYS(fit.out, "constant,fitted,stored\nedit_location,");
    ASSERT_SAYS(fit.out, "\n\nbenchmark,mode,printed,");
    ASSERT_SAYS(fit.err, "rows that nothing was fitted to");
    /* Two tables, of a constant and of a row a line, with headings and the empty line between. */
    const size_t n_constants = count(fit.out, "\nedit_"), n_rows = count(fit.out, ",S,");
    ck_assert_uint_eq(n_constants, 4);
    ck_assert_uint_ge(n_rows, 8);
    ck_assert_uint_eq(count(fit.out, ",Q,"), n_rows);
    ck_assert_uint_eq(count(fit.out, "\n"), n_constants + 2 * n_rows + 3);
    output_free(&fit);
}

/* One row of a run, and one of each of its times; what people read is not lost. */
TEST(a_run_is_a_table_too) {
    struct output csv = CLI("run", "--gpu", "l40s", "--requests", "6", "--set",
                            "workload.tenant=uniform", "--format", "csv");
    LINES(csv.out, "system,model,gpu,offered req/s,tok/s,mean_s,", "dllm-serve,llada-8b,l40s,", "",
          "time_s,mean,p50,", "latency,", "ttft,", "queue,", "tpot,", "", "tenant,requests,", "0,",
          "1,");
    ASSERT_SAYS(csv.err, "throughput  ");
    output_free(&csv);
    const char *db = scratch_path("formats.db");
    struct output made = CLI("run", "--gpu", "l40s", "--requests", "6", "--levels", "steps", "--db",
                             db, "--slo-latency", "10s", "--bound", "--format", "markdown");
    ASSERT_SAYS(made.out, " | goodput req/s | attain_% | ");
    output_free(&made);
    struct output replay = CLI("replay", "--db", db, "--run", "1", "--format", "csv");
    ASSERT_SAYS(replay.out, "\ndllm-serve,llada-8b,l40s,");
    output_free(&replay);
    struct output cite = CLI("cite", db, "--format", "csv");
    ASSERT_SAYS(cite.out, "what,is\nProgram,");
    ASSERT_SAYS(cite.out, "\nModels and GPUs,llada-8b on l40s\n");
    ASSERT_SAYS(cite.err, "Methodology");
    output_free(&cite);
}

TEST(what_a_plug_in_was_tried_in_is_a_table) {
    struct output csv = CLI("check-plugin", suite_plugin("template_scheduler"), "--format", "csv");
    ASSERT_SAYS(csv.out, "situation,promises,calls\none request alone,ok,");
    ASSERT_SAYS(csv.err, "every promise kept");
    output_free(&csv);
    csv = CLI("check-plugin", suite_plugin("bad_crowded"), "--format", "csv");
    ck_assert_int_eq(csv.status, 1);
    ck_assert_uint_eq(count(csv.out, ",broken,\n"), 1);
    output_free(&csv);
}

/* The commands that have no --format print no table. */
TEST(every_command_that_prints_a_table_has_a_format) {
    static const char *const without[] = {"report",        "profile pack", "profile add",
                                          "trace convert", "generate",     "merge"};
    struct output help = CLI("--help");
    size_t n = 0;
    for (char *rest = NULL, *line = strtok_r(help.out, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char name[20] = "";
        if (strncmp(line, "  ", 2) != 0 || strlen(line) < 20) {
            continue;
        }
        snprintf(name, sizeof name, "%.18s", line + 2);
        for (size_t end = strlen(name); end > 0 && name[end - 1] == ' ';) {
            name[--end] = '\0';
        }
        bool is_without = false;
        for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
            is_without = is_without || strcmp(without[i], name) == 0;
        }
        char *space = strchr(name, ' ');
        if (space != NULL) {
            *space = '\0';
        }
        struct output one = space != NULL ? CLI(name, space + 1, "--help") : CLI(name, "--help");
        ck_assert_int_eq(one.status, 0);
        ck_assert_msg((strstr(one.out, "--format FORMAT") == NULL) == is_without, "%s", line);
        output_free(&one);
        n++;
    }
    ck_assert_uint_ge(n, 30);
    output_free(&help);
}

SUITE("formats")
