/* Every shipped system recorded and played again; live runs with and without the trace they wrote,
 * and carried out once more. */
#include <jansson.h>
#include <stdbool.h>

#include "tests/support/cli.h"

static struct output run_words(const char *const *first, const char *const *second) {
    const char *words[CLI_MOST_ARGS];
    size_t n = 0;
    for (size_t i = 0; first[i] != NULL; i++) {
        words[n++] = first[i];
    }
    for (size_t i = 0; second[i] != NULL; i++) {
        words[n++] = second[i];
    }
    words[n] = NULL;
    return cli_run(&(const struct child){0}, words);
}

#define RUN(first, ...) run_words(first, (const char *const[]){__VA_ARGS__, NULL})

/* A number of a summary. */
static double number(const json_t *summary, const char *key) {
    return json_number_value(json_object_get(summary, key));
}

static void check_replay(const char *db, const char *system, const json_t *recorded) {
    char *text = PRINTS("replay", "--db", db, "--run", "1", "--json");
    json_t *replayed = json_loads(text, 0, NULL);
    ck_assert_msg(replayed != NULL, "%s: %s", system, text);
    ck_assert_int_eq(json_object_del(replayed, "replay"), 0);
    ck_assert_msg(json_equal(replayed, (json_t *)(uintptr_t)recorded), "%s: %s", system, text);
    json_decref(replayed);
    free(text);
}

/* What is played again of one system: 1; what cannot be, in words: 0. */
static int check_system(const char *system, const char *const *words) {
    const char *db = scratch_path("matrix.db");
    (void)remove(db);
    struct output run = RUN(words, "--system", system, "--db", db, "--levels", "steps", "--json");
    if (run.status != 0) {
        ck_assert_msg(run.status == 2 && strstr(run.err, "allocator") != NULL, "%s: %s", system,
                      run.err); /* those that only compute */
        output_free(&run);
        return 0;
    }
    json_t *recorded = json_loads(run.out, 0, NULL);
    ck_assert_ptr_nonnull(recorded);
    ck_assert_msg(number(recorded, "completed") > 0, "%s", system);
    struct output replay = CLI("replay", "--db", db, "--run", "1");
    bool is_refused = strstr(replay.err, " cannot be played again: ") != NULL;
    ck_assert_msg(replay.status == is_refused, "%s: %s", system, replay.err);
    if (!is_refused) {
        check_replay(db, system, recorded);
    }
    json_decref(recorded);
    output_free(&replay);
    output_free(&run);
    return !is_refused;
}

/* All of the shipped file; at least `least` of them are played again. */
static void check_systems(int least, const char *const *words) {
    char *text = PRINTS("list", "systems", "--json");
    json_t *list = json_loads(text, 0, NULL);
    const json_t *rows = json_object_get(json_object_get(list, "systems"), "rows");
    json_t *row;
    size_t i;
    int n_played = 0;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        n_played += check_system(json_string_value(json_object_get(row, "name")), words);
    }
    ck_assert_int_ge(n_played, least);
    json_decref(list);
    free(text);
}

#define TRAFFIC "--requests", "24", "--rate", "2", "--input-tokens", "96", "--output-tokens", "96"

TEST(every_system_is_played_again) {
    check_systems(40, (const char *const[]){"run", "--roofline", TRAFFIC, NULL});
}

TEST(small_blocks_are_played_under_every_scheduler) {
    static const char *const schedulers[] = {"static", "continuous", "chunked"};
    for (size_t i = 0; i < sizeof schedulers / sizeof schedulers[0]; i++) {
        const char *const words[] = {"run",  "--requests",  "20",          "--gpu",
                                     "h200", "--scheduler", schedulers[i], NULL};
        ck_assert_int_eq(check_system("fast-dllm-v2", words), 1);
    }
}

/* Of a system on a small model; `alone`: the record suffices, positions need not be known. */
struct live {
    const char *system, *model;
};

static const struct live lives[] = {
    {"vanilla", "llada-tiny"},   {"fast-dllm", "llada-tiny"}, {"dllm-serve", "llada-tiny"},
    {"dkv-cache", "llada-tiny"}, {"lmdeploy", "sdar-tiny"},   {"fast-dllm-v2", "sdar-tiny"},
    {"focus", "sdar-tiny"},
};

static void check_live(const struct live *live) {
    const char *db = scratch_path("live.db");
    (void)remove(db);
    const char *const words[] = {"run", "--backend", "cpu", "--clock", "virtual", NULL};
    struct output run =
        RUN(words, "--system", live->system, "--model", live->model, "--requests", "4", "--rate",
            "50", "--input-tokens", "24", "--output-tokens", "24", "--db", db, "--levels", "steps");
    ck_assert_msg(run.status == 0, "%s: %s", live->system, run.err);
    output_free(&run);
    struct output played = CLI("replay", "--db", db, "--run", "1");
    ck_assert_msg(played.status == 0, "%s: %s", live->system, played.err);
    output_free(&played);
    struct output again = CLI("replay", "--db", db, "--run", "1", "--backend", "cpu");
    ck_assert_msg(again.status == 0, "%s: %s", live->system, again.err);
    output_free(&again);
}

TEST(live_runs_are_played_again_by_their_records_alone) {
    for (size_t i = 0; i < sizeof lives / sizeof lives[0]; i++) {
        check_live(&lives[i]);
    }
}

/* A trace of what a decoder counts changes nothing, the number of submissions included. */
TEST(a_trace_of_counted_steps_gives_the_same_run) {
    const char *trace = scratch_path("counted.csv");
    static const char *const keys[] = {"submissions", "steps", "makespan_s", "tokens_processed",
                                       "request_steps"};
    char *text =
        PRINTS("run", "--system", "fast-dllm", "--requests", "30", "--decode-out", trace, "--json");
    json_t *drawn = json_loads(text, 0, NULL);
    free(text);
    text = PRINTS("run", "--system", "fast-dllm", "--requests", "30", "--decode", trace, "--json");
    json_t *played = json_loads(text, 0, NULL);
    free(text);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        ck_assert_double_eq(number(drawn, keys[i]), number(played, keys[i]));
    }
    json_decref(drawn);
    json_decref(played);
}

SUITE("replay")
