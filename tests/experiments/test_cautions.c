/* Warnings for people: one line that counts, or every sentence. */
#include "experiments/run/cli/cautions.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "tests/support/cli.h"

static char *printed(struct cautions *cautions) {
    char *text = NULL;
    size_t size;
    FILE *memory = mem_stream(&text, &size);
    cautions_print(cautions, memory);
    mem_stream_close(memory);
    return text;
}

/* Of three results the second alone is saturated, twice; all have hosts that are assumed. */
static struct cautions of_three(void) {
    static const char *const names[] = {"a", "b", "c"};
    struct cautions cautions = {0};
    for (size_t i = 0; i < 3; i++) {
        struct warnings warnings = {0};
        if (i == 1) {
            warnings_add(&warnings, WARNING_SATURATED, 0.5, "half");
            warnings_add(&warnings, WARNING_SATURATED, 0.4, "less");
        }
        warnings_add(&warnings, WARNING_HOST_ASSUMED, 1, "a host");
        cautions_add(&cautions, names[i], &warnings);
    }
    return cautions;
}

TEST(one_line_counts_the_results_of_each_warning) {
    struct cautions cautions = of_three();
    char *text = printed(&cautions);
    ck_assert_str_eq(text, "2 cautions: saturated (1 of 3), host assumed; --verbose explains\n");
    free(text);
    cautions = (struct cautions){.n = 4, .n_none = 1};
    cautions_count(&cautions, WARNING_FEW_SEEDS, 0);
    text = printed(&cautions);
    ck_assert_str_eq(text, "1 caution: no result (1 of 4); --verbose explains\n");
    free(text);
    cautions = (struct cautions){.n = 4};
    text = printed(&cautions);
    ck_assert_str_eq(text, "");
    free(text);
}

TEST(verbose_prints_each_sentence_once_with_the_names_of_some) {
    cautions_verbose();
    struct cautions cautions = of_three();
    struct warnings of_all = {0};
    warnings_add(&of_all, WARNING_FEW_SEEDS, 1, "one seed");
    cautions_of_all(&cautions, &of_all);
    cautions_count(&cautions, WARNING_REJECTED, 2);
    char *text = printed(&cautions);
    ck_assert_str_eq(text, "caution      host-assumed: a host\n"
                           "caution      saturated: half (b)\n"
                           "caution      saturated: less (b)\n"
                           "caution      few-seeds: one seed\n"
                           "caution      rejected: 2 of 3 runs\n");
    free(text);
}

TEST(many_names_are_cut_short) {
    struct cautions cautions = {0};
    const struct warnings none = {0};
    cautions_verbose();
    for (int i = 0; i < 9; i++) {
        char name[8];
        struct warnings warnings = {0};
        warnings_add(&warnings, WARNING_REJECTED, 1, "some");
        snprintf(name, sizeof name, "n%d", i);
        cautions_add(&cautions, name, &warnings);
    }
    cautions_add(&cautions, "without", &none);
    char *text = printed(&cautions);
    ck_assert_str_eq(text, "caution      rejected: some (n0; n1; n2; n3; n4 and 4 others)\n");
    free(text);
}

/* The number of lines that begin so. */
static size_t lines_with(const char *text, const char *start) {
    size_t n = strncmp(text, start, strlen(start)) == 0;
    for (const char *line = text; (line = strchr(line, '\n')) != NULL; line++) {
        n += strncmp(line + 1, start, strlen(start)) == 0;
    }
    return n;
}

/* A code that a table prints can be looked up. */
TEST(every_code_has_a_meaning_in_the_list) {
    char *text = PRINTS("list", "cautions", "--format", "csv");
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        char start[64];
        ck_assert_ptr_nonnull(warning_meanings[code]);
        snprintf(start, sizeof start, "%s,", warning_words[code]);
        ck_assert_msg(lines_with(text, start) == 1, "%s", start);
    }
    free(text);
}

#define SMALL "--requests", "3", "--roofline"

/* Of every command that warns: one line, or with --verbose as many as JSON has warnings. */
TEST(every_command_has_one_line_of_warnings_or_all_of_them) {
    static const char *const of[][10] = {
        {"run", SMALL},
        {"compare", "--systems", "dllm-serve,sdar", SMALL},
        {"bound", SMALL},
        {"capacity", "--slo", "p95 latency<90s", "--no-curve", "--within", "50", SMALL},
        {"explain", "--roofline"},
        {"plan", "lmax", "--set", "runtime.batch_invariant=on"},
        {"plan", "latency", "--canvases", "1024", "--set", "runtime.batch_invariant=on"},
        {"figure", "dllm-serve-table4"},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        const char *words[12] = {NULL};
        size_t n = 0;
        for (; of[i][n] != NULL; n++) {
            words[n] = of[i][n];
        }
        char *text = cli_text(cli_run(&(const struct child){0}, words));
        ck_assert_uint_eq(lines_with(text, "caution "), 0);
        ck_assert_msg(strstr(text, "; --verbose explains\n") != NULL, "%s: %s", words[0], text);
        free(text);
        words[n] = "--verbose";
        text = cli_text(cli_run(&(const struct child){0}, words));
        ck_assert_uint_gt(lines_with(text, "caution "), 0);
        ck_assert_ptr_null(strstr(text, "--verbose explains"));
        free(text);
    }
    REFUSES(2, "--verbose does nothing here", "run", SMALL, "--json", "--verbose");
}

SUITE("cautions")
