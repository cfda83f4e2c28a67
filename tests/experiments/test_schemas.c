/* Databases that older unmasks recorded: played as they are, after they were changed to today's
 * schema, and merged with runs of today; and what no older schema has. */
#include "tests/support/cli.h"
#include "tests/support/outputs.h"

/* A golden database, to be changed. */
static void copy_of_schema(int version, char copy[512]) {
    char name[64], command[600];
    snprintf(name, sizeof name, "schema-%d.db", version);
    snprintf(copy, 512, "%s", scratch_path(name));
    snprintf(command, sizeof command, "cp tests/golden/databases/%s '%s'", name, copy);
    ck_assert_int_eq(system(command), 0);
}

/* Made when steps knew one outcome of a position, that it is committed: focus and dllm-serve
 * simulated, entropy-cache on the processor. */
TEST(runs_of_schema_7_are_played) {
    char copy[512];
    copy_of_schema(7, copy);
    for (int change = 0; change < 2; change++) {
        free(PRINTS("replay", "--db", copy, "--run", "1"));
        free(PRINTS("replay", "--db", copy, "--run", "2"));
        free(PRINTS("replay", "--db", copy, "--run", "3"));
        free(PRINTS("replay", "--db", copy, "--run", "3", "--backend", "cpu"));
        free(PRINTS("run", "--system", "sdar", "--requests", "2", "--db", copy));
    }
}

/* Both runs play, before and after a new one changes the schema; in JSON of one something is not.
 */
static void plays_two_runs_without(int schema, const char *run, const char *word) {
    char copy[512];
    copy_of_schema(schema, copy);
    for (int change = 0; change < 2; change++) {
        free(PRINTS("replay", "--db", copy, "--run", "1"));
        free(PRINTS("replay", "--db", copy, "--run", "2"));
        free(PRINTS("run", "--system", "sdar", "--requests", "2", "--db", copy));
    }
    char *json = PRINTS("replay", "--db", copy, "--run", run, "--json");
    ck_assert_ptr_null(strstr(json, word));
    free(json);
}

/* Made by the first program, by one that knew who waits for whom, and by the last in which a
 * request was ten numbers of one block: dllm-serve, and in the last sdar, too. They take the same
 * steps; what summaries say of prices has changed since. */
TEST(runs_of_schemas_1_4_and_5_take_the_same_steps) {
    static const struct {
        int schema;
        const char *run;
    } runs[] = {{1, "1"}, {4, "1"}, {5, "1"}, {5, "2"}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char copy[512], sentence[96];
        copy_of_schema(runs[i].schema, copy);
        snprintf(sentence, sizeof sentence,
                 "unmask: the replay of run %s took the same steps but its summary differs",
                 runs[i].run);
        for (int change = 0; change < 2; change++) {
            REFUSES(1, sentence, "replay", "--db", copy, "--run", runs[i].run);
            free(PRINTS("run", "--system", "sdar", "--requests", "2", "--db", copy));
        }
    }
}

/* Made when requests had no deadlines: dllm-serve, and sdar on two replicas. */
TEST(runs_of_schema_8_are_played) {
    plays_two_runs_without(8, "1", "\"late\"");
}

/* Made when nothing was swapped out: dllm-serve with deadlines, and vllm-ar, which preempts. */
TEST(runs_of_schema_9_are_played) {
    plays_two_runs_without(9, "2", "\"swap\"");
}

/* Made when no record had what requests asked of their tokens' draws: ar, which swaps, and
 * fast-dllm of prompts with temperatures of their own, whose steps are on record. */
TEST(runs_of_schema_10_are_played) {
    plays_two_runs_without(10, "2", "\"swap\"");
    char older[512];
    const char *merged = scratch_path("mixed.db"), *again = scratch_path("mixed-again.db");
    const char *prompts =
        scratch_write("one.jsonl", "{\"ids\": [1, 2], \"top_k\": 3, \"seed\": 9}");
    copy_of_schema(10, older);
    free(PRINTS("run", "--workload", prompts, "--db", merged, "--levels", "steps"));
    free(PRINTS("merge", merged, older));
    free(PRINTS("merge", older, merged));
    free(PRINTS("merge", again, older));
    for (int run = 1; run <= 3; run++) {
        char number[16];
        snprintf(number, sizeof number, "%d", run);
        free(PRINTS("replay", "--db", merged, "--run", number));
        free(PRINTS("replay", "--db", again, "--run", number));
    }
    ck_assert_int_eq(sql_integer(again, "SELECT count(*) FROM requests"), 11);
    ck_assert_int_eq(sql_integer(again, "SELECT count(top_k) FROM requests"), 1);
    ck_assert_int_eq(sql_integer(again, "SELECT sum(sampling_seed) FROM requests"), 9);
}

/* A request's record says how many of its tokens were given another one, as a trace of the
 * decisions has it, whose simulation says it as well. */
TEST(tokens_that_are_replaced_are_on_record) {
    const char *db = scratch_path("revised.db"), *trace = scratch_path("revised.decode"),
               *again = scratch_path("revised-again.db");
    static const char revised[] = "SELECT sum(revised_tokens) FROM requests";
    free(PRINTS("run", "--system", "sglang-s", "--gpu", "h200", "--requests", "4", "--rate", "4",
                "--output-tokens", "96", "--db", db, "--decode-out", trace));
    free(PRINTS("run", "--system", "sglang-s", "--gpu", "h200", "--workload", trace, "--decode",
                trace, "--db", again));
    ck_assert_int_gt(sql_integer(db, revised), 10);
    ck_assert_int_eq(sql_integer(db, revised),
                     sql_integer(trace, "SELECT sum(revisions * passes) FROM pass"));
    ck_assert_int_eq(sql_integer(db, revised), sql_integer(again, revised));
}

SUITE("schemas")
