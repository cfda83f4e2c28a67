/* Several programs on one database: docs/sharing.md. */
#include <errno.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/cli.h"
#include "tests/support/outputs.h"

static const char *grid(void) {
    return scratch_write("grid.ini", "[sweep]\nsystems = dllm-serve\nrequests = 400\n"
                                     "rates = 0.25, 0.5, 1\nseeds = 1, 2, 3, 4\n");
}

#define START(...) cli_start((const char *const[]){__VA_ARGS__, NULL}, 120)

static void ends_well(pid_t pid) {
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
}

static void change(const char *db, const char *sql) {
    sqlite3 *sqlite = NULL;
    char *message = NULL;
    ck_assert_int_eq(sqlite3_open(db, &sqlite), SQLITE_OK);
    int rc = sqlite3_exec(sqlite, sql, NULL, NULL, &message);
    ck_assert_msg(rc == SQLITE_OK, "%s", message);
    sqlite3_close(sqlite);
}

static void is_whole_grid(const char *db) {
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs"), 12);
    ck_assert_int_eq(sql_integer(db, "SELECT count(DISTINCT identity) FROM runs"), 12);
}

TEST(a_database_is_one_by_all_its_names) {
    const char *db = scratch_path("a.db"), *hard = scratch_path("b.db"),
               *soft = scratch_path("c.db");
    const char *ini = grid();
    free(PRINTS("run", "--requests", "3", "--db", db));
    ck_assert(link(db, hard) == 0 && symlink(db, soft) == 0);
    change(db, "DELETE FROM requests; DELETE FROM runs");
    const char *const names[] = {db, hard, soft};
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        pids[i] = START("sweep", ini, "--db", names[i], "-j", "1");
    }
    for (int i = 0; i < 3; i++) {
        ends_well(pids[i]);
    }
    is_whole_grid(db);
    struct output again = CLI("sweep", ini, "--db", hard);
    ck_assert_ptr_nonnull(strstr(again.err, "12 points were in "));
    output_free(&again);
}

TEST(opposite_merges_end_and_a_merge_beside_a_sweep_doubles_nothing) {
    const char *x = scratch_path("x.db"), *y = scratch_path("y.db"), *ini = grid();
    free(PRINTS("sweep", ini, "--shard", "1/2", "--db", x, "--levels", "steps"));
    free(PRINTS("sweep", ini, "--shard", "2/2", "--db", y, "--levels", "steps"));
    pid_t pids[] = {START("merge", x, y), START("merge", y, x),
                    START("sweep", ini, "--db", x, "-j", "1", "--levels", "steps"),
                    START("merge", y, x)};
    for (size_t i = 0; i < sizeof pids / sizeof pids[0]; i++) {
        ends_well(pids[i]);
    }
    is_whole_grid(x);
    ck_assert_int_eq(sql_integer(y, "SELECT count(*) = count(DISTINCT identity) FROM runs"), 1);
}

/* As an older unmask left them behind. */
TEST(runs_on_record_twice_count_once) {
    const char *db = scratch_path("twice.db"), *once = scratch_path("once.html");
    const char *twice = scratch_path("twice.html");
    free(PRINTS("sweep", grid(), "--db", db));
    free(PRINTS("report", db, "--out", once));
    char *before = PRINTS("plot", db, "-x", "rate", "-y", "latency_s.p99", "--json");
    change(db,
           "INSERT INTO requests SELECT run + 12, number, id, replica, tenant, prompt_tokens,"
           " output_tokens, arrival_ns, admitted_ns, first_block_ns, finished_ns, state, reason,"
           " steps, refresh_steps, preemptions, first_block_tokens, tokens_processed,"
           " answer_tokens, committed_tokens, steps_after_end, tokens_after_end, prefix_tokens,"
           " shared_tokens, shared_with, session, follows, place, deadline_ns, priority,"
           " predicted_tokens, temperature_millionths, top_p_millionths, top_k, sampling_seed,"
           " revised_tokens FROM requests;"
           "INSERT INTO runs SELECT run + 12, system, model, gpu, profile, profile_kind, backend,"
           " trace, trace_provenance, seed, config, summary, n_requests, n_steps, n_events,"
           " identity, incomplete, rows_sha256, sha256 FROM runs");
    struct output after = CLI("plot", db, "-x", "rate", "-y", "latency_s.p99", "--json");
    ck_assert_str_eq(after.out, before);
    ck_assert_ptr_nonnull(strstr(after.err, "12 runs of "));
    output_free(&after);
    free(before);
    after =
        CLI("report", db, "--out", twice); /* which lists the runs two times, and says so once */
    const char *said = strstr(after.err, "12 runs of ");
    ck_assert(said != NULL && strstr(said + 1, "12 runs of ") == NULL);
    output_free(&after);
    char *a = scratch_read(once), *b = scratch_read(twice);
    ck_assert_str_eq(a, b);
    free(a);
    free(b);
    const char *merged = scratch_path("merged.db");
    free(PRINTS("merge", merged, db));
    is_whole_grid(merged);
}

static struct output run_once(const char *db, const char *level) {
    return CLI("run", "--requests", "20", "--db", db, "--levels", level);
}

TEST(an_equal_run_is_recorded_once_and_again_with_more) {
    const char *db = scratch_path("equal.db");
    static const struct {
        const char *level;
        int runs;
    } then[] = {{"requests", 1}, {"requests", 1}, {"steps", 2}, {"requests", 2}, {"steps", 2}};
    for (size_t i = 0; i < sizeof then / sizeof then[0]; i++) {
        struct output output = run_once(db, then[i].level);
        ck_assert_int_eq(output.status, 0);
        ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs"), then[i].runs);
        output_free(&output);
    }
    struct output output = run_once(db, "steps");
    ck_assert_ptr_nonnull(strstr(output.err, "is run 2 of "));
    output_free(&output);
}

/* Of a run on a device: what was cut short, or is still under way, is an earlier state of it. */
TEST(a_later_state_of_a_run_takes_the_place_of_an_earlier_one) {
    const char *whole = scratch_path("whole.db"), *early = scratch_path("early.db");
    const char *to = scratch_path("to.db");
    char copy[512];
    free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--model", "llada-tiny",
                "--requests", "8", "--input-tokens", "8", "--output-tokens", "8", "--levels",
                "steps", "--db", whole));
    for (int n = 0; n < 3; n++) { /* nothing has left, two have, five have */
        snprintf(copy, sizeof copy, "cp '%s' '%s'", whole, early);
        ck_assert_int_eq(system(copy), 0);
        snprintf(copy, sizeof copy,
                 "DELETE FROM requests WHERE number >= %d; DELETE FROM steps WHERE idx >= %d;"
                 "UPDATE runs SET summary = json_set(summary, '$.completed', %d),"
                 " incomplete = 'goes on', n_requests = %d, n_steps = %d,"
                 " rows_sha256 = NULL, sha256 = NULL",
                 3 * n, n + 2, 3 * n, 3 * n, n + 2);
        change(early, copy);
        for (int again = 0; again < 2; again++) {
            free(PRINTS("merge", to, early));
            ck_assert_int_eq(sql_integer(to, "SELECT count(*) FROM runs"), 1);
            ck_assert_int_eq(sql_integer(to, "SELECT n_requests FROM runs"), 3 * n);
        }
    }
    free(PRINTS("merge", to, whole));
    free(PRINTS("merge", to, early));
    ck_assert_int_eq(sql_integer(to, "SELECT count(*) FROM runs"), 1);
    ck_assert_int_eq(sql_integer(to, "SELECT count(*) FROM runs WHERE incomplete IS NULL"), 1);
    ck_assert_int_eq(sql_integer(to, "SELECT count(*) FROM requests"), 8);
    /* What was measured again is another sample. */
    free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", "--model", "llada-tiny",
                "--requests", "8", "--input-tokens", "8", "--output-tokens", "8", "--levels",
                "steps", "--db", to));
    ck_assert_int_eq(sql_integer(to, "SELECT count(*) FROM runs"), 2);
}

TEST(a_database_that_is_gone_is_said_to_be) {
    const char *db = scratch_path("gone.db"), *away = scratch_path("away.db");
    const char *ini =
        scratch_write("long.ini", "[sweep]\nsystems = dllm-serve\nrequests = 3000\n"
                                  "rates = 0.25, 0.5, 1, 2\nseeds = 1, 2, 3, 4, 5, 6\n");
    FILE *err = tmpfile();
    const char *const words[] = {"sweep", ini, "--db", db, "-j", "1", NULL};
    pid_t pid =
        cli_begin(&(const struct child){.stdout_path = "/dev/null"}, words, 1, fileno(err), 0);
    while (access(db, F_OK) != 0 || sql_integer(db, "SELECT count(*) FROM runs") < 1) {
        usleep(1000);
    }
    ck_assert_int_eq(rename(db, away), 0);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WEXITSTATUS(status), 1);
    char *text = cli_read(err);
    ck_assert_msg(strstr(text, "was moved, replaced or removed") != NULL, "%s", text);
    free(text);
    fclose(err);
}

/* A file system whose locks are not what claims take. */
TEST(without_locks_a_sweep_says_so_and_records_no_point_twice) {
    const char *source = scratch_write(
        "nolocks.c",
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n"
        "#include <fcntl.h>\n#include <stdarg.h>\n"
        "static int go(const char *name, int file, int what, void *with) {\n"
        "    int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);\n"
        "    if (what == F_OFD_SETLK || what == F_OFD_SETLKW) {\n"
        "        errno = ENOLCK;\n        return -1;\n    }\n"
        "    return next(file, what, with);\n}\n"
        "#define IS(name) int name(int file, int what, ...) { va_list list; "
        "va_start(list, what); void *with = va_arg(list, void *); va_end(list); "
        "return go(#name, file, what, with); }\n"
        "IS(fcntl)\nIS(fcntl64)\n");
    const char *object = scratch_path("nolocks.so"), *db = scratch_path("nolocks.db");
    char command[512];
    snprintf(command, sizeof command, "cc -shared -fPIC -o '%s' '%s' -ldl", object, source);
    ck_assert_int_eq(system(command), 0);
    const char *ini = grid(), *before = getenv("ASAN_OPTIONS");
    char sanitizer[256]; /* whose library wants to be the first */
    snprintf(sanitizer, sizeof sanitizer, "%s:verify_asan_link_order=0", before ? before : "");
    setenv("ASAN_OPTIONS", sanitizer, 1);
    setenv("LD_PRELOAD", object, 1);
    struct output alone = CLI("sweep", ini, "--db", scratch_path("alone.db"), "-j", "1");
    ck_assert_msg(alone.status == 0, "%s", alone.err);
    ck_assert_ptr_nonnull(strstr(alone.err, "has no locks for claims"));
    output_free(&alone);
    pid_t pids[] = {START("sweep", ini, "--db", db, "-j", "1"),
                    START("sweep", ini, "--db", db, "-j", "1")};
    unsetenv("LD_PRELOAD");
    ends_well(pids[0]);
    ends_well(pids[1]);
    is_whole_grid(db);
}

TEST(as_many_runs_at_once_as_there_are_files_for) {
    const char *db = scratch_path("few.db"), *ini = grid();
    const struct rlimit few = {12, 12};
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        char *argv[] = {(char *)"unmask", (char *)"sweep", (char *)ini,  (char *)"--db",
                        (char *)db,       (char *)"-j",    (char *)"64", NULL};
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        for (int file = STDERR_FILENO + 1; file < 64; file++) {
            close(file);
        }
        setrlimit(RLIMIT_NOFILE, &few);
        cli_become(&(const struct child){0}, argv, STDOUT_FILENO, STDERR_FILENO);
    }
    ends_well(pid);
    is_whole_grid(db);
}

SUITE("sharing")
