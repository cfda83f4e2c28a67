/* What `unmask cite` says of recorded runs. */
#include <jansson.h>
#include <string.h>

#include "sim/base/warning.h"
#include "tests/support/cli.h"
#include "tests/support/outputs.h"
#include "tests/support/says.h"

static const char *made(void) {
    const char *db = scratch_path("cite.db");
    free(PRINTS("sweep",
                scratch_write("cite.ini", "[sweep]\nsystems = dllm-serve, sdar\nrates = 0.2, 0.4\n"
                                          "gpus = h200, h800\nrequests = 5\n"),
                "--seeds", "2", "--db", db));
    return db;
}

TEST(a_database_says_how_its_numbers_were_made) {
    const char *db = made();
    char *text = PRINTS("cite", db);
    ASSERT_SAYS(text, "16 runs of ");
    ASSERT_SAYS(text, "seeds 1 to 2.");
    ASSERT_SAYS(text, "Program: unmask ");
    ASSERT_SAYS(text, ", sources ");
    ASSERT_SAYS(
        text,
        "sdar (a design, scheduler chunked, cache exact, decoder threshold with threshold=0.85,");
    ASSERT_SAYS(text, "Models and GPUs: llada-8b on h200; llada-8b on h800; sdar-8b on h200;");
    ASSERT_SAYS(text, "5 requests at 0.2 a second; ");
    ASSERT_SAYS(text, "profile h200/sdar-8b, measured: ");
    ASSERT_SAYS(text, "Host times: ");
    ASSERT_SAYS(text, "Decisions: drawn by ");
    /* A reader of the text does not know our codes. */
    ck_assert_ptr_nonnull(strstr(text, warning_meanings[WARNING_SATURATION_UNKNOWN]));
    ck_assert_ptr_nonnull(strstr(text, " (saturation-unknown, "));
    free(text);
    json_t *json = json_loads(text = PRINTS("cite", db, "--json"), 0, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "identities")), 16);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "systems")), 2);
    json_decref(json);
    free(text);
    text = PRINTS("cite", db, "--run", "3");
    ASSERT_SAYS(text, "1 run of ");
    free(text);
}

/* Of the system and of the traffic, whether a command or a list of a sweep set it. */
TEST(what_was_set_is_said) {
    const char *db = scratch_path("set.db");
    free(PRINTS("run", "--requests", "5", "--rate", "0.2", "--gpu", "h200", "--set",
                "max_requests=8", "--replicas", "2", "--arrivals", "gamma", "--set",
                "workload.arrivals.cv=3", "--input-tokens", "100", "--db", db));
    free(PRINTS("sweep",
                scratch_write("set.ini", "[sweep]\nsystems = sdar\nrates = 0.2\ngpus = h200\n"
                                         "requests = 5\nset.tensor_parallel = 1, 2\n"),
                "--db", db));
    char *text = PRINTS("cite", db);
    ck_assert_ptr_nonnull(strstr(text, "\nSettings: dllm-serve: max_requests=8, replicas=2; sdar: "
                                       "tensor_parallel=2.\n"));
    ck_assert_ptr_nonnull(strstr(text, ", arrivals=gamma, arrivals.cv=3, input_tokens=100"));
    free(text);
    ck_assert_ptr_null(strstr(text = PRINTS("cite", made()), "Settings: "));
    free(text);
}

/* The errors that are cited stand in the page that they name. */
TEST(errors_are_those_of_the_page) {
    char *text = PRINTS("cite", made(), "--json");
    json_t *json = json_loads(text, 0, NULL), *error;
    FILE *file = fopen("docs/validation.md", "r");
    ck_assert_ptr_nonnull(file);
    char *page = cli_read(file);
    fclose(file);
    size_t i, n_ranges = 0;
    json_array_foreach(json_object_get(json, "errors"), i, error) {
        const char *sentence = json_string_value(error);
        for (const char *at = sentence; (at = strpbrk(at, "+-")) != NULL; at++) {
            char range[32];
            const char *end = strstr(at, " %");
            if (end == NULL || (size_t)(end - at) > 20 || strstr(at, " to ") > end) {
                continue;
            }
            snprintf(range, sizeof range, "%.*s", (int)(end - at), at);
            ck_assert_msg(strstr(page, range) != NULL, "%s", range);
            n_ranges += strstr(range, " to ") != NULL;
        }
    }
    ck_assert_uint_ge(n_ranges, 4);
    json_decref(json);
    free(page);
    free(text);
}

TEST(what_is_not_recorded_is_not_cited) {
    REFUSES(2, "cite needs a database", "cite");
    REFUSES(1, "No such file", "cite", scratch_path("nothing.db"));
    REFUSES(2, "has no run 99", "cite", made(), "--run", "99");
}

SUITE("cite")
