/* What becomes of runs in a database while it is locked, full, or the program is killed. */
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "experiments/run/recorder.h"
#include "experiments/run/tape.h"
#include "sim/base/names.h"
#include "tests/support/cli.h"
#include "tests/support/outputs.h"

/* ---- tapes ---- */

enum { MEMBERS = 5, BLOCK = 19 };

struct played {
    uint64_t n_events, n_steps, n_requests;
};

static struct event_record event_at(uint64_t i) {
    return (struct event_record){.time_ns = (int64_t)i, .request = i * 3, .detail = (uint32_t)i};
}

/* Members and positions that change with every step; the arrays live until the next call. */
static struct step_record step_at(uint64_t i) {
    static int64_t sym[SYM_COUNT];
    static uint64_t ids[MEMBERS];
    static uint32_t commits[MEMBERS], lengths[MEMBERS];
    static uint8_t keep[MEMBERS * BLOCK], outcome[MEMBERS * BLOCK];
    static struct step_positions positions = {
        .stride = BLOCK, .lengths = lengths, .keep = keep, .outcome = outcome};
    for (int s = 0; s < SYM_COUNT; s++) {
        sym[s] = (int64_t)(i * 1000003 * (uint64_t)s);
    }
    for (uint32_t m = 0; m < MEMBERS; m++) {
        ids[m] = i + m == 7 ? UINT64_MAX : i * 31 + m;
        commits[m] = (uint32_t)(i % 300) + m;
        lengths[m] = (uint32_t)((i + m) % (BLOCK + 1));
        for (uint32_t b = 0; b < BLOCK; b++) {
            bool is_inside = b < lengths[m];
            keep[m * BLOCK + b] = is_inside && (i + b) % 3 == 0;
            bool has_others = i % 3 == 0;
            uint32_t draw = (uint32_t)(i + b + m) % (has_others ? OUTCOME_COUNT : 2);
            outcome[m * BLOCK + b] = is_inside ? (uint8_t)draw : OUTCOME_NONE;
        }
    }
    bool has_positions = i % 2 == 0, has_members = i % 5 != 4;
    return MAKE(struct step_record, .index = i, .repeat = 2, .sym = sym, .n = MEMBERS,
                .request_ids = has_members ? ids : NULL,
                .commit_tokens = has_members ? commits : NULL,
                .positions = has_positions ? &positions : NULL);
}

static int check_event(void *state, const struct event_record *record, struct err *err) {
    struct played *played = state;
    struct event_record expected = event_at(played->n_events++);
    (void)err;
    ck_assert_mem_eq(record, &expected, sizeof expected);
    return 0;
}

static int check_request(void *state, const struct request_record *record, struct err *err) {
    struct played *played = state;
    (void)err;
    ck_assert_uint_eq(record->id, played->n_requests++);
    return 0;
}

static int check_step(void *state, const struct step_record *record, struct err *err) {
    struct played *played = state;
    struct step_record expected = step_at(played->n_steps++);
    (void)err;
    ck_assert_uint_eq(record->index, expected.index);
    ck_assert_uint_eq(record->repeat, 2);
    ck_assert_mem_eq(record->sym, expected.sym, SYM_COUNT * sizeof *record->sym);
    ck_assert(record->passes == NULL);
    ck_assert_int_eq(record->request_ids == NULL, expected.request_ids == NULL);
    if (record->request_ids != NULL) {
        ck_assert_mem_eq(record->request_ids, expected.request_ids, MEMBERS * sizeof(uint64_t));
        ck_assert_mem_eq(record->commit_tokens, expected.commit_tokens, MEMBERS * sizeof(uint32_t));
    }
    ck_assert_int_eq(record->positions == NULL, expected.positions == NULL);
    for (uint32_t m = 0; record->positions != NULL && m < MEMBERS; m++) {
        const struct step_positions *is = record->positions, *was = expected.positions;
        ck_assert_uint_eq(is->lengths[m], was->lengths[m]);
        for (uint32_t b = 0; b < was->lengths[m]; b++) {
            ck_assert_uint_eq(is->keep[m * is->stride + b], was->keep[m * BLOCK + b]);
            ck_assert_uint_eq(is->outcome[m * is->stride + b], was->outcome[m * BLOCK + b]);
        }
    }
    return 0;
}

static int entries_in(const char *folder) {
    DIR *listing = opendir(folder);
    ck_assert_ptr_nonnull(listing);
    int n = 0;
    while (readdir(listing) != NULL) {
        n++;
    }
    closedir(listing);
    return n;
}

/* Long enough to go on in a file, which has no name. */
TEST(a_tape_plays_what_was_put_on_it_from_memory_and_from_a_file) {
    enum { FEW = 1000, MANY = 600000 };
    struct tape tape = {.beside = scratch_path("tape.db")};
    struct sink onto = tape_sink(&tape, STORE_EVENTS);
    struct err err = {0};
    int n_before = entries_in(scratch_folder);
    for (uint64_t n = FEW; n <= MANY; n += MANY - FEW) {
        for (uint64_t i = 0; i < n; i++) {
            struct event_record event = event_at(i);
            ck_assert_int_eq(onto.event(onto.state, &event, &err), 0);
            if (i % 100 == 0) {
                struct step_record step = step_at(i / 100);
                struct request_record request = {.id = i / 100};
                ck_assert_int_eq(onto.step(onto.state, &step, &err), 0);
                ck_assert_int_eq(onto.request(onto.state, &request, &err), 0);
            }
        }
        struct played played = {0};
        struct sink into = {
            .state = &played, .request = check_request, .step = check_step, .event = check_event};
        for (int again = 0; again < 2; again++) {
            played = (struct played){0};
            ck_assert_int_eq(tape_play(&tape, &into, &err), 0);
            ck_assert_uint_eq(played.n_events, n);
            ck_assert_uint_eq(played.n_steps, n / 100);
            ck_assert_uint_eq(played.n_requests, n / 100);
        }
        ck_assert_int_eq(tape.n_filed > 0, n == MANY);
        ck_assert_int_eq(entries_in(scratch_folder), n_before);
        tape_clear(&tape);
        ck_assert(tape_is_empty(&tape));
    }
    tape_fini(&tape);
}

/* ---- the program ---- */

#define START(...) cli_start((const char *const[]){__VA_ARGS__, NULL}, 0)

static const char three_points[] =
    "[sweep]\nsystems = dllm-serve\nrequests = 20\nseeds = 1, 2, 3\n";

/* A reader holds its lock for longer than anybody wants to wait. */
/* Of 40,000 requests with their steps: what was played of the tape's file is given back (it was 101
 * MB with all of it, and 69 MB without). */
TEST(recording_many_steps_takes_little_memory) {
    free(
        PRINTS("run", "--requests", "40000", "--levels", "steps", "--db", scratch_path("many.db")));
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    ck_assert_msg(usage.ru_maxrss < 85 << 10, "%ld KiB", usage.ru_maxrss);
#endif
}

TEST(a_sweep_that_cannot_record_prints_its_results_and_says_so) {
    const char *db = scratch_path("read.db"), *file = scratch_write("read.ini", three_points);
    char *fresh = PRINTS("sweep", file);
    free(PRINTS("run", "--requests", "5", "--db", db));
    sqlite3 *sqlite = NULL;
    ck_assert_int_eq(sqlite3_open(db, &sqlite), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(sqlite, "BEGIN; SELECT count(*) FROM runs", NULL, NULL, NULL),
                     SQLITE_OK);
    struct output output =
        CLI_AS(&(const struct child){.interrupt_after = 2000000}, "sweep", file, "--db", db);
    ck_assert_str_eq(output.out, fresh);
    cli_expect(output, 1, "3 of 3 runs were not recorded (1 to 3): ");
    sqlite3_close(sqlite);
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs"), 1);
    char *now = PRINTS("sweep", file, "--db", db);
    ck_assert_str_eq(now, fresh);
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs"), 4);
    free(now);
    free(fresh);
}

/* The first point fits, later ones do not. */
TEST(a_sweep_on_a_full_disk_keeps_what_fits_and_prints_all) {
    const char *db = scratch_path("full.db");
    const char *file = scratch_write("full.ini", "[sweep]\nsystems = dllm-serve\n"
                                                 "requests = 5, 2000, 3000\n");
    char *fresh = PRINTS("sweep", file);
    struct output output = CLI_AS(&(const struct child){.max_file_bytes = 120000}, "sweep", file,
                                  "--db", db, "--levels", "steps");
    ck_assert_str_eq(output.out, fresh);
    cli_expect(output, 1, "2 of 3 runs were not recorded (2 to 3): ");
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs"), 1);
    free(fresh);
}

/* A reader looks at the database while it is recorded: it is waited for, and nothing is lost. */
TEST(runs_at_the_same_time_are_all_recorded) {
    enum { PROGRAMS = 6 };
    const char *db = scratch_path("six.db");
    pid_t pids[PROGRAMS];
    for (int i = 0; i < PROGRAMS; i++) {
        const char seed[2] = {(char)('1' + i), '\0'};
        pids[i] =
            START("run", "--requests", "300", "--seed", seed, "--levels", "events", "--db", db);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        int status;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs WHERE n_requests = 300"), PROGRAMS);
    free(PRINTS("report", db, "--out", scratch_path("six.html")));
}

/* Every step that is on record, whose members are those who had arrived. */
static void plays_as_far_as_it_goes(const char *db) {
    struct output output = CLI("replay", "--db", db, "--run", "1", "--json");
    ck_assert_msg(output.status == 0, "%s", output.err);
    ck_assert_ptr_nonnull(strstr(output.err, "unmask: run 1 is incomplete and is played as far"));
    json_t *object = json_loads(output.out, 0, NULL);
    const json_t *replay = json_object_get(object, "replay");
    int64_t n_steps = sql_integer(db, "SELECT n_steps FROM runs WHERE run = 1");
    ck_assert_int_gt(n_steps, 0);
    ck_assert_int_eq(json_integer_value(json_object_get(replay, "submissions")), n_steps);
    ck_assert_int_eq(json_integer_value(json_object_get(object, "submissions")), n_steps);
    ck_assert_int_gt(json_integer_value(json_object_get(object, "completed")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(object, "requests")),
                     sql_integer(db, "SELECT count(*) FROM requests WHERE run = 1"));
    ck_assert_ptr_nonnull(
        strstr(json_string_value(json_object_get(object, "incomplete")), "was cut off"));
    json_decref(object);
    output_free(&output);
}

/* Killed without a warning once something of it is recorded; another program records beside it. */
TEST(a_live_run_that_is_killed_keeps_what_was_done_and_locks_nobody_out) {
    const char *db = scratch_path("killed.db"), *page = scratch_path("killed.html");
    pid_t pid = START("run", "--backend", "cpu", "--clock", "virtual", "--model", "llada-tiny",
                      "--requests", "100000", "--set", "max_requests=2", "--input-tokens", "16",
                      "--output-tokens", "32", "--levels", "steps", "--db", db);
    for (int i = 0;
         i < 2400 && (access(db, F_OK) != 0 || sql_integer(db, "SELECT n_requests FROM runs") <= 0);
         i++) {
        usleep(50000);
    }
    free(PRINTS("run", "--requests", "5", "--db", db));
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_gt(sql_integer(db, "SELECT n_requests FROM runs WHERE run = 1"), 0);
    ck_assert_int_eq(sql_integer(db, "SELECT n_requests = (SELECT count(*) FROM requests r"
                                     " WHERE r.run = runs.run AND number >= 0) FROM runs"
                                     " WHERE run = 1"),
                     1);
    ck_assert_int_eq(sql_integer(db, "SELECT json_extract(summary, '$.completed') = n_requests"
                                     " AND json_extract(summary, '$.submissions') = n_steps"
                                     " AND json_extract(summary, '$.incomplete') = incomplete"
                                     " FROM runs WHERE run = 1"),
                     1);
    ck_assert_int_eq(sql_integer(db, "SELECT count(*) FROM runs WHERE incomplete IS NULL"), 1);
    free(PRINTS("report", db, "--out", page));
    FILE *html = fopen(page, "r");
    char *text = scratch_rest(html);
    ck_assert_ptr_nonnull(strstr(text, "its recording was cut off"));
    free(text);
    fclose(html);
    plays_as_far_as_it_goes(db);
    /* Nor does it where it is not known who was under way. */
    sqlite3 *sqlite = NULL;
    ck_assert_int_eq(sqlite3_open(db, &sqlite), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(sqlite, "DELETE FROM requests WHERE id = 0", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(sqlite);
    REFUSES(1, "did not record the requests that were under way", "replay", "--db", db, "--run",
            "1");
}

static int64_t n_kept(const char *trace) {
    sqlite3 *db = NULL;
    sqlite3_stmt *row = NULL;
    int64_t n = 0;
    if (sqlite3_open_v2(trace, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT count(*) FROM request", -1, &row, NULL) == SQLITE_OK &&
        sqlite3_step(row) == SQLITE_ROW) {
        n = sqlite3_column_int64(row, 0);
    }
    sqlite3_finalize(row);
    sqlite3_close(db);
    return n;
}

/* What stood at the trace's own name stays. */
TEST(a_live_run_that_is_killed_keeps_what_requests_decoded) {
    const char *trace = scratch_path("killed.trace");
    char *part = NULL, says[64];
    free(PRINTS("run", "--requests", "5", "--decode-out", trace));
    pid_t pid = START("run", "--backend", "cpu", "--clock", "virtual", "--model", "llada-tiny",
                      "--requests", "100000", "--set", "max_requests=2", "--input-tokens", "16",
                      "--output-tokens", "8", "--decode-out", trace);
    for (int i = 0; i < 2400 && (part == NULL || n_kept(part) < 4); i++) {
        part = part != NULL ? part : scratch_unfinished(trace);
        usleep(50000);
    }
    ck_assert_ptr_nonnull(part);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(n_kept(trace), 5);
    ck_assert_int_eq(sql_integer(part, "SELECT count(*) FROM about WHERE key = 'incomplete'"), 1);
    struct output output = CLI("fit", "decode", "--from", part);
    ck_assert_msg(output.status == 0, "%s", output.err);
    snprintf(says, sizeof says, "; %" PRId64 " requests, half of them fitted to", n_kept(part));
    ck_assert_msg(strstr(output.out, says) != NULL, "%s", output.out);
    ck_assert_msg(strstr(output.err, "was cut off") != NULL, "%s", output.err);
    output_free(&output);
    free(part);
}

/* The first asks a run to end, the second ends it; both wait here until it goes on. */
TEST(a_second_interrupt_ends_the_program_and_removes_what_is_unfinished) {
    static const int seconds[] = {SIGINT, SIGTERM, SIGHUP};
    const char *path = scratch_path("second.json");
    free(PRINTS("run", "--requests", "2", "--timeline", path));
    char *old = scratch_read(path);
    for (size_t i = 0; i < 3; i++) {
        pid_t pid = START("run", "--arrivals", "closed-loop", "--requests", "1000000000",
                          "--timeline", path);
        char *part = NULL;
        for (int j = 0; j < 5000 && (part = scratch_unfinished(path)) == NULL; j++) {
            usleep(1000);
        }
        ck_assert_ptr_nonnull(part);
        usleep(200000);
        int status;
        ck_assert_int_eq(kill(pid, SIGSTOP), 0);
        ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
        kill(pid, seconds[i]);
        kill(pid, seconds[(i + 1) % 3]);
        kill(pid, SIGCONT);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status));
        ck_assert(WTERMSIG(status) == seconds[i] || WTERMSIG(status) == seconds[(i + 1) % 3]);
        ck_assert_int_ne(access(part, F_OK), 0);
        free(part);
        char *now = scratch_read(path);
        ck_assert_str_eq(now, old);
        free(now);
    }
    free(old);
}

/* Those that end at once do; those that would end what they do first, once it is clear that a file
 * does not answer. */
TEST(one_signal_ends_a_program_whose_file_does_not_answer) {
    char fifo[512], ini[600];
    snprintf(fifo, sizeof fifo, "%s", scratch_path("silent.csv"));
    snprintf(ini, sizeof ini, "[sweep]\nsystems = dllm-serve\nworkloads = %s\n", fifo);
    snprintf(ini, sizeof ini, "%s", scratch_write("silent.ini", ini));
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    const char *const commands[][6] = {{"sweep", fifo, NULL},
                                       {"sweep", ini},
                                       {"compare", "--systems", "dllm-serve", "--workload", fifo},
                                       {"compare", "--systems", "mine", "--systems-file", fifo},
                                       {"run", "--workload", fifo},
                                       {"run", "--timeline", fifo}};
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const struct child child = {.interrupt_after = 300000, .signal = signals[i % 3]};
        struct output output = cli_run(&child, commands[i]);
        ck_assert_msg(output.status == 128 + signals[i % 3], "%s %s: status %d, %s", commands[i][0],
                      commands[i][1], output.status, output.err);
        output_free(&output);
    }
}

/* What stood at the path stays, and nothing lies beside it. */
static void survives_a_full_disk(const char *path, const char *const *words) {
    struct output whole = cli_run(&(const struct child){0}, words);
    ck_assert_msg(whole.status == 0, "%s", whole.err);
    output_free(&whole);
    char *old = scratch_read(path);
    struct output output = cli_run(&(const struct child){.max_file_bytes = 64}, words);
    ck_assert_msg(output.status == 1, "%s: %d %s", path, output.status, output.err);
    ck_assert_msg(strstr(output.err, "unmask: ") != NULL &&
                      strstr(output.err, "internal error") == NULL,
                  "%s", output.err);
    char *now = scratch_read(path);
    ck_assert_msg(strcmp(now, old) == 0, "%s", path);
    ck_assert_ptr_null(scratch_unfinished(path));
    output_free(&output);
    free(now);
    free(old);
}

#define SURVIVES(path, ...) survives_a_full_disk(path, (const char *const[]){__VA_ARGS__, NULL})

TEST(a_full_disk_leaves_the_files_that_were_there) {
    const char *ini = scratch_write(
        "figure.ini", "[figure]\ntitle = one\nkind = lines\nx_label = a\ny_label = b\n"
                      "query = SELECT system AS series, rate AS x, latency_s_p99 AS y FROM run\n"
                      "[run]\nsystem = dllm-serve\ngpu = l40s\nworkload = burst\n"
                      "rate = 0.5, 1, 2, 3\nrequests = 3\n");
    const char *db = scratch_path("disk.db");
    free(PRINTS("run", "--requests", "2", "--backend", "cpu", "--clock", "virtual", "--model",
                "llada-tiny", "--input-tokens", "8", "--output-tokens", "8", "--levels", "steps",
                "--db", db));
    const char *path = scratch_path("disk.file");
    SURVIVES(path, "run", "--requests", "20", "--timeline", path);
    remove(path);
    SURVIVES(path, "run", "--requests", "20", "--decode-out", path);
    remove(path);
    SURVIVES(path, "report", db, "--out", path);
    remove(path);
    SURVIVES(path, "replay", "--db", db, "--run", "1", "--steps", path);
    remove(path);
    SURVIVES(path, "plan", "latency", "--model", "llada-tiny", "--csv", path);
    remove(path);
    SURVIVES(path, "trace", "convert", "traces/samples/burstgpt_head400.csv", "--out", path);
    SURVIVES(scratch_path("plan.svg"), "plan", "--model", "llada-tiny", "--picture",
             scratch_path("plan.svg"));
    SURVIVES(scratch_path("figure.svg"), "figure", ini, "--out", scratch_folder);
    SURVIVES(scratch_path("figure.csv"), "figure", ini, "--out", scratch_folder);
}

/* Every command that writes a file; the file's name stands in place of FILE. */
static const char *const writers[][14] = {
    {"run", "--requests", "20", "--timeline", "FILE"},
    {"run", "--requests", "20", "--decode-out", "FILE"},
    {"report", "DB", "--out", "FILE"},
    {"plan", "latency", "--model", "llada-tiny", "--csv", "FILE"},
    {"trace", "convert", "traces/samples/burstgpt_head400.csv", "--out", "FILE"},
    {"plan", "--model", "llada-tiny", "--picture", "FILE.svg"},
    {"plot", "DB", "-x", "rate", "-y", "latency_s.mean", "--out", "FILE.csv"},
    {"plot", "DB", "-x", "rate", "-y", "latency_s.mean", "--out", "FILE.svg"},
    {"replay", "--db", "DB", "--run", "1", "--steps", "FILE"},
};
enum { N_WRITERS = sizeof writers / sizeof writers[0] };

static const char *live_record(void) {
    const char *db = scratch_path("writers.db");
    if (access(db, F_OK) != 0) {
        free(PRINTS("run", "--requests", "2", "--backend", "cpu", "--clock", "virtual", "--model",
                    "llada-tiny", "--input-tokens", "8", "--output-tokens", "8", "--levels",
                    "steps", "--db", db));
    }
    return db;
}

/* The words of a writer for a file of this name; `path` takes the whole one. */
static struct output write_file(size_t writer, const char *name, char path[512]) {
    const char *db = live_record(), *words[15] = {NULL};
    for (size_t i = 0; i < 14 && writers[writer][i] != NULL; i++) {
        const char *word = writers[writer][i], *ending = name_behind(word, "FILE");
        if (ending != NULL) {
            snprintf(path, 512, "%s%s", scratch_path(name), ending);
        }
        words[i] = ending != NULL ? path : strcmp(word, "DB") == 0 ? db : word;
    }
    return cli_run(&(const struct child){0}, words);
}

#define WRITES(writer, name, path)                                                                 \
    do {                                                                                           \
        struct output wrote = write_file(writer, name, path);                                      \
        ck_assert_msg(wrote.status == 0, "%s %s: %s", writers[writer][0], path, wrote.err);        \
        output_free(&wrote);                                                                       \
    } while (0)

/* What stands beside a file, as it was called and as others may call theirs, stays as it is; a link
 * there is not followed, a link in the file's place is, and stays one. */
TEST(what_stands_beside_an_output_stays_and_links_lead_to_it) {
    for (size_t i = 0; i < N_WRITERS; i++) {
        char name[64], path[512], beside[600], real[600];
        struct stat found;
        const char *victim = scratch_write("victim", "precious");
        snprintf(name, sizeof name, "plain-%zu", i);
        WRITES(i, name, path);
        snprintf(beside, sizeof beside, "%s.part", path);
        ck_assert_int_eq(symlink(victim, beside), 0);
        WRITES(i, name, path);
        char *kept = scratch_read(victim);
        ck_assert_str_eq(kept, "precious");
        free(kept);
        ck_assert(lstat(path, &found) == 0 && S_ISREG(found.st_mode));
        ck_assert_int_eq(chmod(path, 0604), 0);
        snprintf(real, sizeof real, "%s.real", path);
        ck_assert(rename(path, real) == 0 && symlink(real, path) == 0);
        WRITES(i, name, path);
        ck_assert(lstat(path, &found) == 0 && S_ISLNK(found.st_mode));
        ck_assert(lstat(real, &found) == 0 && S_ISREG(found.st_mode));
        ck_assert_int_eq(found.st_mode & 0777, 0604);
        ck_assert_ptr_null(scratch_unfinished(real));
        ck_assert_ptr_null(scratch_unfinished(path));
    }
}

TEST(a_new_output_has_the_mode_that_umask_leaves) {
    const mode_t before = umask(027);
    for (size_t i = 0; i < N_WRITERS; i++) {
        char name[64], path[512];
        struct stat found;
        snprintf(name, sizeof name, "mode-%zu", i);
        WRITES(i, name, path);
        ck_assert(stat(path, &found) == 0);
        ck_assert_msg((found.st_mode & 0777) == 0640, "%s: %o", path, found.st_mode & 0777);
    }
    umask(before);
}

/* Both succeed, and what is there is what one of them wrote. */
TEST(two_programs_with_one_output_leave_a_whole_one) {
    const char *path = scratch_path("both.json");
    for (int i = 0; i < 4; i++) {
        int status = -1;
        pid_t one = START("run", "--requests", "3000", "--timeline", path);
        pid_t other = START("run", "--requests", "2000", "--timeline", path);
        ck_assert(waitpid(one, &status, 0) == one && status == 0);
        ck_assert(waitpid(other, &status, 0) == other && status == 0);
        json_t *json = json_load_file(path, 0, NULL);
        ck_assert_ptr_nonnull(json);
        json_decref(json);
        ck_assert_ptr_null(scratch_unfinished(path));
    }
}

/* Through the descriptor, so that what else goes there is not written over; and into a FIFO. */
TEST(outputs_that_are_no_files_are_written_as_they_stand) {
    char command[1200];
    const char *program = getenv("UNMASK") != NULL ? getenv("UNMASK") : "build/unmask";
    const char *fifo = scratch_path("fifo"), *into = scratch_path("into");
    snprintf(command, sizeof command,
             "f=%s; i=%s; mkfifo $f && { cat $f >$i & } && %s run --requests 3 --timeline $f "
             ">/dev/null 2>&1 && wait && tail -c 3 $i | grep -q ']}' && "
             "%s run --requests 3 --timeline /dev/stdout >$i 2>/dev/null && "
             "head -c 20 $i | grep -q displayTime && grep -q '^throughput' $i && "
             "%s run --requests 3 --timeline /dev/stdout 2>/dev/null | grep -q '^throughput'",
             fifo, into, program, program, program);
    ck_assert_int_eq(system(command), 0);
    REFUSES(1, "it is not a file", "run", "--requests", "3", "--decode-out", fifo);
    REFUSES(1, "Is a directory", "run", "--requests", "3", "--timeline", scratch_folder);
    REFUSES(1, "No such file or directory", "run", "--requests", "3", "--db", "/nowhere/x.db");
}

TEST(an_interrupted_sweep_counts_the_runs_that_it_made) {
    const char *study = scratch_write("many.ini", "[sweep]\nsystems = dllm-serve\n"
                                                  "requests = 200000\n"
                                                  "rates = 1, 2, 3, 4, 5, 6, 7, 8\n");
    const struct child child = {.interrupt_after = 400000};
    struct output output = CLI_AS(&child, "sweep", study, "-j", "1");
    ck_assert_ptr_nonnull(strstr(output.err, " of 8 runs in "));
    output_free(&output);
}

SUITE("recording")
