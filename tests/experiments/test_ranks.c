/* Work shared out: between ranks of mpirun, and between shards whose databases are merged. */
#include <jansson.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include "experiments/run/ranks/parcel.h"
#include "experiments/run/ranks/pool.h"
#include "tests/support/cli.h"
#include "tests/support/outputs.h"

static const char grid[] = "[sweep]\nsystems = dllm-serve, vanilla\nrequests = 60\n"
                           "rates = 0.5, 2\nseeds = 1, 2\n";

/* ---- parcels and pools ---- */

TEST(what_is_put_into_a_parcel_comes_out) {
    struct parcel parcel = {.n = 0};
    json_t *value = json_pack("{s:f, s:[i, n], s:s}", "a", 0.1 + 0.2, "b", -7, "c", "d\n");
    double number = 1.0 / 3;
    for (int round = 0; round < 2; round++) {
        parcel_put(&parcel, &number, sizeof number);
        parcel_put_text(&parcel, NULL);
        parcel_put_text(&parcel, "");
        parcel_put_json(&parcel, value);
        parcel_put_json(&parcel, NULL);
        parcel_put(&parcel, NULL, 0);
        double taken;
        parcel_take(&parcel, &taken, sizeof taken);
        ck_assert_mem_eq(&taken, &number, sizeof taken);
        ck_assert_ptr_null(parcel_take_text(&parcel));
        char *text = parcel_take_text(&parcel);
        ck_assert_str_eq(text, "");
        json_t *got = parcel_take_json(&parcel);
        ck_assert(json_equal(got, value));
        ck_assert_ptr_null(parcel_take_json(&parcel));
        ck_assert_uint_eq(parcel.at, parcel.n);
        json_decref(got);
        free(text);
        parcel_clear(&parcel);
    }
    json_decref(value);
    parcel_fini(&parcel);
}

static void count_piece(void *state, size_t i) {
    __atomic_fetch_add(&((unsigned *)state)[i], 1, __ATOMIC_RELAXED);
}

TEST(every_piece_is_worked_on_once_by_any_number_of_threads) {
    for (unsigned n_threads = 0; n_threads < 9; n_threads++) {
        unsigned done[101] = {0};
        pool_run(
            &(struct pool){.n = 100, .n_threads = n_threads, .state = done, .work = count_piece});
        for (size_t i = 0; i < 101; i++) {
            ck_assert_uint_eq(done[i], i < 100);
        }
    }
}

/* ---- shards and merge ---- */

static int64_t ask(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

static void change(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_changes(db), 1);
    sqlite3_close(db);
}

static void expect_merged(json_int_t copied, json_int_t held, const char *to, const char *from) {
    char *text = PRINTS("merge", to, from, "--json");
    json_t *said = json_loads(text, 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(said, "copied")), copied);
    ck_assert_int_eq(json_integer_value(json_object_get(said, "held_before")), held);
    json_decref(said);
    free(text);
}

static char *sweep_json(const char *ini, const char *db) {
    return PRINTS("sweep", ini, "--db", db, "--levels", "events", "--json");
}

TEST(shards_merged_are_the_sweep) {
    const char *ini = scratch_write("grid.ini", grid), *merged = scratch_path("merged.db");
    const char *whole = scratch_path("whole.db");
    char *expected = sweep_json(ini, whole);
    for (int i = 1; i <= 3; i++) {
        char shard[8], name[16];
        snprintf(shard, sizeof shard, "%d/3", i);
        snprintf(name, sizeof name, "shard%d.db", i);
        const char *part = scratch_path(name);
        free(PRINTS("sweep", ini, "--db", part, "--levels", "events", "--shard", shard));
        int64_t n = ask(part, "SELECT count(*) FROM runs");
        ck_assert_int_eq(n, i < 3 ? 3 : 2);
        expect_merged(n, 0, merged, part);
        expect_merged(0, n, merged, part);
    }
    expect_merged(0, 8, merged, whole);
    expect_merged(0, 8, whole, merged);
    static const char *const sums[] = {
        "SELECT count(*) FROM runs", "SELECT sum(id * finished_ns % 65537) FROM requests",
        "SELECT sum(idx * end_ns % 65537) FROM steps", "SELECT sum(length(batch)) FROM members",
        "SELECT sum(time_ns % 65537) FROM events"};
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        ck_assert_int_eq(ask(merged, sums[i]), ask(whole, sums[i]));
    }
    char *text = sweep_json(ini, merged);
    ck_assert_str_eq(text, expected);
    ck_assert_int_eq(ask(merged, "SELECT count(*) FROM runs"), 8); /* nothing was run again */
    free(text);
    free(expected);
}

TEST(merge_leaves_damaged_runs_out_and_keeps_incomplete_ones) {
    const char *ini = scratch_write("grid.ini", grid), *from = scratch_path("from.db");
    const char *to = scratch_path("to.db");
    free(sweep_json(ini, from));
    change(from, "UPDATE requests SET steps = steps + 1 WHERE run = 3 AND number = 5");
    cli_expect(CLI("merge", to, from), 1, "1 damaged runs were left out");
    ck_assert_int_eq(ask(to, "SELECT count(*) FROM runs"), 7);
    /* Old databases have neither checksums nor identities; the same row is not copied twice. */
    expect_merged(2, 0, to, "tests/golden/databases/schema-4.db");
    expect_merged(0, 2, to, "tests/golden/databases/schema-4.db");
    expect_merged(0, 2, to, "tests/golden/databases/schema-1.db");
    free(PRINTS("report", to, "--out", scratch_path("report.html")));
    REFUSES(2, "is to be merged into itself", "merge", to, from, to);
    REFUSES(2, "merge needs a database", "merge", to);
    REFUSES(1, "No such file", "merge", scratch_path("new.db"), scratch_path("none.db"));
    ck_assert_int_ne(access(scratch_path("new.db"), F_OK), 0);
    REFUSES(2, "is not I/N", "sweep", ini, "--db", to, "--shard", "3/2");
    REFUSES(2, "is not I/N", "sweep", ini, "--db", to, "--shard", "1");
    REFUSES(2, "it takes --db", "sweep", ini, "--shard", "1/2");
}

/* ---- ranks ---- */

static const char *program(void) {
    return getenv("UNMASK") != NULL ? getenv("UNMASK") : "build/unmask";
}

/* Whether there is a launcher, and the library that was built for it; says once where not. MPI
 * leaves memory behind, which the address sanitizer would tell of. */
static bool has_ranks(void) {
#ifdef __SANITIZE_ADDRESS__
    printf("test_ranks: what ranks do is not tested under the address sanitizer\n");
    return false;
#endif
    char path[512];
    snprintf(path, sizeof path, "%s", program());
    char *slash = strrchr(path, '/');
    snprintf(slash != NULL ? slash + 1 : path, 64, "libunmask_mpi.so");
    if (access(path, R_OK) == 0 && system("mpirun --version >/dev/null 2>&1") == 0) {
        return true;
    }
    printf("test_ranks: no MPI here (`make mpi` installs it): what ranks do is not tested\n");
    return false;
}

/* A program as `n` ranks with one thread each, its words as a shell reads them. */
static int as_ranks(int n, const char *words, const char *out, const char *err) {
    char command[2048];
    snprintf(command, sizeof command,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun"
             " --oversubscribe -n %d %s %s -j 1 >%s 2>%s",
             n, program(), words, out, err);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void expect_same(const char *one, const char *other) {
    FILE *a = fopen(one, "rb"), *b = fopen(other, "rb");
    ck_assert(a != NULL && b != NULL);
    int x, y;
    do {
        x = fgetc(a);
        y = fgetc(b);
        ck_assert_msg(x == y, "%s and %s differ at byte %ld", one, other, ftell(a));
    } while (x != EOF);
    fclose(a);
    fclose(b);
}

/* The words with this database, one rank and three: the same output, and the same file. */
static void expect_same_by_ranks(const char *words, const char *db_option) {
    char line[1024];
    const char *out[] = {scratch_path("out1"), scratch_path("out3")};
    const char *db[] = {scratch_path("db1"), scratch_path("db3")}, *err = scratch_path("err");
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "%s %s %s", words, db_option,
                 db_option[0] != '\0' ? db[i] : "");
        int status = as_ranks(i == 0 ? 1 : 3, line, out[i], err);
        char *said = scratch_read(err);
        ck_assert_msg(status == 0, "%s: status %d: %s", line, status, said);
        free(said);
    }
    expect_same(out[0], out[1]);
    if (db_option[0] != '\0') {
        expect_same(db[0], db[1]);
    }
}

TEST(any_number_of_ranks_gives_the_same_bytes) {
    char words[512];
    if (!has_ranks()) {
        return;
    }
    const char *ini = scratch_write("grid.ini", grid);
    snprintf(words, sizeof words, "sweep %s --json --levels events", ini);
    expect_same_by_ranks(words, "--db");
    expect_same_by_ranks(words, "--db"); /* points that rank 0 has already */
    expect_same_by_ranks("capacity --slo 'p99 latency<30s' --system dllm-serve --requests 60"
                         " --seeds 2 --json",
                         "");
    const char *study = scratch_write("mine.ini", "[figure]\ntitle = t\nkind = table\n"
                                                  "query = SELECT * FROM run\n[run]\n"
                                                  "system = dllm-serve, vanilla\ngpu = l40s\n"
                                                  "workload = osc\nrequests = 40\nrate = 1, 2\n");
    snprintf(words, sizeof words, "figure %s", study);
    expect_same_by_ranks(words, "");
    expect_same_by_ranks("compare --systems dllm-serve,vanilla --requests 60 --seeds 2"
                         " --same-requests --json",
                         "");
}

/* Points that find no room, reject requests or have limits, notes beneath tables, and points that
 * the database holds some of. */
TEST(ranks_tell_all_that_a_table_and_a_record_say) {
    char words[512], text[1024], trace[512];
    if (!has_ranks()) {
        return;
    }
    ck_assert_ptr_nonnull(realpath("traces/samples/burstgpt_head400.csv", trace));
    snprintf(text, sizeof text,
             "[sweep]\nsystems = dllm-serve, sdar\ngpus = l4, l40s\nrates = 0.5\n"
             "requests = 8\nworkloads = %s\nset.memory_utilization = 0.76\n"
             "set.context_tokens = 2048\n",
             trace);
    const char *ini = scratch_write("room.ini", text);
    snprintf(words, sizeof words, "sweep %s --slo-latency 40s --levels steps", ini);
    expect_same_by_ranks(words, "--db");
    snprintf(words, sizeof words, "sweep %s --slo-latency 40s --levels steps --seeds 2 --bound",
             ini);
    expect_same_by_ranks(words, "--db");
    expect_same_by_ranks("compare --systems dllm-serve,sdar --gpu l4 --requests 8 --seeds 2"
                         " --set memory_utilization=0.76 --slo-ttft 9s --set context_tokens=1024"
                         " --trace traces/samples/burstgpt_head400.csv --same-requests",
                         "");
}

/* What ranks say on standard error when rank 0 and the other are given these words. */
static char *said_by_two(const char *first, const char *second, int *status) {
    char words[1024];
    const char *err = scratch_path("err");
    snprintf(words, sizeof words, "%s -j 1 : -n 1 %s %s", first, program(), second);
    *status = as_ranks(1, words, scratch_path("out"), err);
    return scratch_read(err);
}

TEST(what_is_asked_for_wrongly_ends_all_ranks_with_one_sentence) {
    static const char *const wrong[][3] = {
        {"1", "sweep /nowhere.ini", "No such file"},
        {"2", "sweep tests/golden/cli/systems.ini", "systems.ini"},
        {"2", "compare --systems dllm-serve,vanilla --set tensor_parallel=3 --requests 2", "by 3"},
        {"2", "compare --systems native --gpu l4 --requests 2", "allocator"}};
    const char *err = scratch_path("err"), *out = scratch_path("out");
    if (!has_ranks()) {
        return;
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int status = as_ranks(2, wrong[i][1], out, err);
        char *said = scratch_read(err);
        ck_assert_msg(status == wrong[i][0][0] - '0', "%s: status %d", wrong[i][1], status);
        const char *first = strstr(said, "unmask: ");
        ck_assert_msg(first != NULL && strstr(first + 1, "unmask: ") == NULL, "%s", said);
        ck_assert_msg(strstr(first, wrong[i][2]) != NULL, "%s", said);
        free(said);
    }
}

TEST(a_rank_that_cannot_take_part_is_named_and_the_others_do_the_work) {
    char words[256];
    int status;
    if (!has_ranks()) {
        return;
    }
    const char *ini = scratch_write("grid.ini", grid);
    char *expected = PRINTS("sweep", ini, "--json");
    snprintf(words, sizeof words, "sweep %s --json", ini);
    char *said = said_by_two(words, "sweep /nowhere.ini", &status);
    char *printed = scratch_read(scratch_path("out"));
    ck_assert_int_eq(status, 0);
    ck_assert_str_eq(printed, expected);
    ck_assert_msg(strstr(said, "rank 1 took no part: ") != NULL &&
                      strstr(said, "/nowhere.ini") != NULL,
                  "%s", said);
    free(printed);
    free(said);
    said = said_by_two("sweep /nowhere.ini", words, &status);
    ck_assert_int_eq(status, 1);
    ck_assert_msg(strstr(said, "No such file") != NULL && strstr(said, "took no part") == NULL,
                  "%s", said);
    free(said);
    free(expected);
}

/* Kills one of the ranks after so many milliseconds; the database is whole and the rest can be had.
 */
TEST_EACH(a_killed_rank_leaves_a_database_that_a_sweep_completes, 3) {
    static const int after_ms[] = {450, 700, 1000};
    char words[1024], command[1024];
    if (!has_ranks()) {
        return;
    }
    const char *ini = scratch_write("long.ini", "[sweep]\nsystems = dllm-serve, vanilla\n"
                                                "requests = 400\nrates = 0.5, 1\nseeds = 1, 2\n");
    const char *db = scratch_path("killed.db"), *whole = scratch_path("kill-whole.db");
    snprintf(words, sizeof words, "sweep %s --db %s --json", ini, db);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        _exit(as_ranks(3, words, scratch_path("out"), scratch_path("err")));
    }
    usleep((useconds_t)after_ms[_i] * 1000);
    /* The ranks are those that have the database's name among their words, but the shells. */
    snprintf(command, sizeof command,
             "pids=$(pgrep -f '^[^ ]*unmask sweep .*%s'); set -- $pids; shift %d 2>/dev/null;"
             " [ -n \"$1\" ] && kill -9 $1",
             db, _i);
    (void)!system(command);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    if (access(db, F_OK) == 0) { /* it may have been made and not yet written */
        struct output output = CLI("report", db, "--out", scratch_path("killed.html"));
        ck_assert_msg(output.status == 0 || strstr(output.err, "it is empty") != NULL, "%s",
                      output.err);
        output_free(&output);
    }
    char *text = PRINTS("sweep", ini, "--db", db, "--json", "-j", "2");
    char *expected = PRINTS("sweep", ini, "--db", whole, "--json", "-j", "2");
    ck_assert_str_eq(text, expected);
    ck_assert_int_eq(ask(db, "SELECT count(*) FROM runs"), 8);
    free(text);
    free(expected);
}

TEST(ranks_without_their_library_are_refused) {
    char command[1024];
    const char *copy = scratch_path("unmask"), *err = scratch_path("err");
    snprintf(command, sizeof command,
             "ln -f %s %s 2>/dev/null || cp %s %s; UNMASK_DATA=. OMPI_COMM_WORLD_SIZE=2 %s sweep"
             " /nowhere.ini 2>%s",
             program(), copy, program(), copy, copy, err);
    int status = system(command);
    char *said = scratch_read(err);
    ck_assert_msg(WEXITSTATUS(status) == 1 && strstr(said, "--shard") != NULL, "%s", said);
    free(said);
}

SUITE("ranks")
