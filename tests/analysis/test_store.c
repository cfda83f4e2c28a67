/* The results database: what is recorded comes back, and trouble leaves whole runs or none. */
#include <jansson.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/store/store_impl.h"
#include "tests/support/scratch.h"

static char folder[80], path[128];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "%s/XXXXXX", scratch_folder);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert(chmod(scratch_folder, 0755) == 0 && chmod(folder, 0777) == 0);
    snprintf(path, sizeof path, "%s/results.db", folder);
}

static struct run_facts facts_of(const char *system) {
    struct run_facts facts = run_facts_unknown();
    facts.system = system;
    facts.profile_kind = "imported";
    facts.seed = 42;
    facts.config = "[system]\nname = x\n";
    return facts;
}

static struct store *open_store(void) {
    struct store *store = NULL;
    struct err err = {0};
    int failed = store_open(path, STORE_WRITE, &store, &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    return store;
}

enum { MEMBERS = 3 };
static const uint64_t ids[2][MEMBERS] = {{0, 127, 128}, {1, UINT64_MAX, 5000000000}};
static const uint32_t commits[MEMBERS] = {1, 0, 300};

/* Step `i` of a made-up run: the batch changes every fourth one. */
static struct step_record step_at(uint64_t i, int64_t *sym) {
    for (int s = 0; s < SYM_COUNT; s++) {
        sym[s] = (int64_t)i * 1000003 * s;
    }
    struct step_record step =
        MAKE(struct step_record, .index = i, .replica = (uint32_t)(i % 2),
             .repeat = 1 + (uint32_t)(i % 7), .start_ns = (int64_t)i * 1000,
             .end_ns = (int64_t)i * 1000 + 999, .gpu_ns = 700, .host_ns = 299, .sym = sym,
             .n = MEMBERS, .request_ids = ids[(i / 4) % 2], .commit_tokens = commits,
             .kv_used_bytes = 1 << 20, .n_running = 3, .n_waiting = (uint32_t)i);
    step.n_by_phase[PHASE_REUSE] = 2;
    step.n_by_phase[PHASE_REFRESH] = 1;
    return step;
}

static struct request_record request_at(uint64_t i) {
    return (struct request_record){.id = i ^ 1,
                                   .replica = 1,
                                   .tenant = 2,
                                   .prompt_tokens = 3,
                                   .output_tokens = 4,
                                   .answer_tokens = 3,
                                   .committed_tokens = 4,
                                   .steps_after_end = 2,
                                   .tokens_after_end = 17,
                                   .arrival_ns = (int64_t)i,
                                   .admitted_ns = -1,
                                   .first_block_ns = 7,
                                   .finished_ns = INT64_MAX - (int64_t)i,
                                   .state = REQUEST_DONE,
                                   .reason = REJECT_NONE,
                                   .steps = 8,
                                   .refresh_steps = 9,
                                   .preemptions = 10,
                                   .first_block_tokens = 11,
                                   .tokens_processed = 1ULL << 40};
}

static struct event_record event_at(uint64_t i) {
    return (struct event_record){
        .time_ns = (int64_t)i, .request = i, .kind = EVENT_REJECT, .replica = 1, .detail = 4};
}

/* Records `n` of everything and returns the first error. */
static int record(struct sink *sink, uint64_t n, struct err *err) {
    for (uint64_t i = 0; i < n; i++) {
        int64_t sym[SYM_COUNT];
        struct step_record step = step_at(i, sym);
        struct request_record request = request_at(i);
        struct event_record event = event_at(i);
        int failed = sink->step != NULL ? sink->step(sink->state, &step, err) : 0;
        if (failed == 0) {
            failed = sink->request(sink->state, &request, err);
        }
        if (failed == 0 && sink->event != NULL) {
            failed = sink->event(sink->state, &event, err);
        }
        if (failed != 0) {
            return failed;
        }
    }
    return 0;
}

static int record_run(struct store *store, const char *system, enum store_level level, uint64_t n,
                      struct err *err) {
    struct run_facts facts = facts_of(system);
    struct summary summary;
    summary_init(&summary, NULL);
    summary_finish(&summary);
    struct sink sink;
    int64_t run;
    int failed = store_run_begin(store, &facts, level, &run, &sink, err);
    if (failed == 0) {
        failed = record(&sink, n, err);
    }
    if (failed == 0) {
        failed = store_run_commit(store, &summary, &facts, err);
    }
    return failed;
}

static int count_run(void *state, const struct stored_run *run, struct err *err) {
    (void)run, (void)err;
    ++*(int *)state;
    return 0;
}

static int runs_in(struct store *store) {
    int n = 0;
    struct err err = {0};
    int failed = store_list_runs(store, count_run, &n, &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    return n;
}

struct check {
    uint64_t n;
};

static int same_request(void *state, const struct request_record *r, struct err *err) {
    (void)err;
    struct check *check = state;
    struct request_record expected = request_at(check->n++);
    ck_assert_uint_eq(r->id, expected.id);
    ck_assert_uint_eq(r->replica, expected.replica);
    ck_assert_uint_eq(r->tenant, expected.tenant);
    ck_assert_uint_eq(r->prompt_tokens, expected.prompt_tokens);
    ck_assert_uint_eq(r->output_tokens, expected.output_tokens);
    ck_assert_uint_eq(r->answer_tokens, expected.answer_tokens);
    ck_assert_uint_eq(r->committed_tokens, expected.committed_tokens);
    ck_assert_uint_eq(r->steps_after_end, expected.steps_after_end);
    ck_assert_uint_eq(r->tokens_after_end, expected.tokens_after_end);
    ck_assert_int_eq(r->arrival_ns, expected.arrival_ns);
    ck_assert_int_eq(r->admitted_ns, expected.admitted_ns);
    ck_assert_int_eq(r->first_block_ns, expected.first_block_ns);
    ck_assert_int_eq(r->finished_ns, expected.finished_ns);
    ck_assert_uint_eq(r->state, expected.state);
    ck_assert_uint_eq(r->reason, expected.reason);
    ck_assert_uint_eq(r->steps, expected.steps);
    ck_assert_uint_eq(r->refresh_steps, expected.refresh_steps);
    ck_assert_uint_eq(r->preemptions, expected.preemptions);
    ck_assert_uint_eq(r->first_block_tokens, expected.first_block_tokens);
    ck_assert_uint_eq(r->tokens_processed, expected.tokens_processed);
    return 0;
}

static int same_step(void *state, const struct step_record *r, struct err *err) {
    (void)err;
    struct check *check = state;
    int64_t sym[SYM_COUNT];
    struct step_record expected = step_at(check->n++, sym);
    ck_assert_uint_eq(r->index, expected.index);
    ck_assert_uint_eq(r->replica, expected.replica);
    ck_assert_uint_eq(r->repeat, expected.repeat);
    ck_assert_int_eq(r->start_ns, expected.start_ns);
    ck_assert_int_eq(r->end_ns, expected.end_ns);
    ck_assert_int_eq(r->gpu_ns, expected.gpu_ns);
    ck_assert_int_eq(r->host_ns, expected.host_ns);
    ck_assert_mem_eq(r->sym, sym, sizeof sym);
    ck_assert_mem_eq(r->n_by_phase, expected.n_by_phase, sizeof r->n_by_phase);
    ck_assert_uint_eq(r->n, expected.n);
    ck_assert_mem_eq(r->request_ids, expected.request_ids, sizeof ids[0]);
    ck_assert_mem_eq(r->commit_tokens, expected.commit_tokens, sizeof commits);
    ck_assert_int_eq(r->kv_used_bytes, expected.kv_used_bytes);
    ck_assert_uint_eq(r->n_running, expected.n_running);
    ck_assert_uint_eq(r->n_waiting, expected.n_waiting);
    return 0;
}

static int same_event(void *state, const struct event_record *r, struct err *err) {
    (void)err;
    struct check *check = state;
    struct event_record expected = event_at(check->n++);
    ck_assert_int_eq(r->time_ns, expected.time_ns);
    ck_assert_uint_eq(r->request, expected.request);
    ck_assert_uint_eq(r->kind, expected.kind);
    ck_assert_uint_eq(r->replica, expected.replica);
    ck_assert_uint_eq(r->detail, expected.detail);
    return 0;
}

TEST(a_run_comes_back_field_by_field) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "first", STORE_REQUESTS, 5, &err), 0);
    ck_assert_int_eq(record_run(store, "second", STORE_EVENTS, 50, &err), 0);
    store_close(store);
    ck_assert_int_eq(store_open(path, STORE_READ, &store, &err), 0);
    ck_assert_int_eq(runs_in(store), 2);
    struct check check = {0};
    ck_assert_int_eq(store_load_requests(store, 2, same_request, &check, &err), 0);
    ck_assert_uint_eq(check.n, 50);
    check.n = 0;
    ck_assert_int_eq(store_load_steps(store, 2, same_step, &check, &err), 0);
    ck_assert_uint_eq(check.n, 50);
    check.n = 0;
    ck_assert_int_eq(store_load_events(store, 2, same_event, &check, &err), 0);
    ck_assert_uint_eq(check.n, 50);
    check.n = 0;
    ck_assert_int_eq(store_load_steps(store, 1, same_step, &check, &err), 0);
    ck_assert_uint_eq(check.n, 0); /* recorded with its requests only */
    char *config = NULL;
    ck_assert_int_eq(store_load_config(store, 2, &config, &err), 0);
    ck_assert_str_eq(config, "[system]\nname = x\n");
    free(config);
    ck_assert_int_eq(store_load_config(store, 3, &config, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "has no run 3"));
    store_close(store);
}

static int check_run(void *state, const struct stored_run *run, struct err *err) {
    (void)state, (void)err;
    ck_assert_str_eq(run->system, "only");
    ck_assert_str_eq(run->profile_kind, "imported");
    ck_assert_uint_eq(run->seed, 42);
    ck_assert_int_eq(run->n_steps, 9);
    ck_assert_int_eq(run->n_events, 0);
    json_t *summary = json_loads(run->summary, 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(summary, "system")), "only");
    json_decref(summary);
    return 77;
}

TEST(a_listed_run_carries_its_facts_and_a_callback_can_stop) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "only", STORE_STEPS, 9, &err), 0);
    ck_assert_int_eq(store_list_runs(store, check_run, NULL, &err), 77);
    store_close(store);
}

TEST(a_batch_that_does_not_change_is_kept_once) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "x", STORE_STEPS, 40, &err), 0);
    store_close(store);
    sqlite3 *db;
    sqlite3_stmt *stmt;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_prepare_v2(db, "SELECT count(*) FROM members", -1, &stmt, NULL);
    ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
    ck_assert_int_eq(sqlite3_column_int(stmt, 0), 20); /* ten changes on each of two replicas */
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

TEST(decisions_are_admissions_rejections_and_batches) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "x", STORE_EVENTS, 5, &err), 0);
    store_close(store);
    sqlite3 *db;
    sqlite3_stmt *stmt;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_prepare_v2(db,
                                        "SELECT sum(decision = 'reject'), sum(decision = 'batch'),"
                                        " count(*) FROM decisions WHERE run = 1",
                                        -1, &stmt, NULL),
                     SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
    ck_assert_int_eq(sqlite3_column_int(stmt, 0), 5);
    ck_assert_int_eq(sqlite3_column_int(stmt, 1), 5);
    ck_assert_int_eq(sqlite3_column_int(stmt, 2), 10);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

TEST(a_crash_in_the_middle_of_a_run_leaves_none_of_it) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "kept", STORE_STEPS, 10, &err), 0);
    store_close(store);
    pid_t child = fork();
    if (child == 0) {
        struct run_facts facts = facts_of("lost");
        struct sink sink;
        int64_t run;
        if (store_open(path, STORE_WRITE, &store, &err) != 0 ||
            store_run_begin(store, &facts, STORE_EVENTS, &run, &sink, &err) != 0 ||
            record(&sink, 100000, &err) != 0) { /* enough to spill into the file */
            _exit(1);
        }
        _exit(42);
    }
    int status;
    waitpid(child, &status, 0);
    ck_assert_int_eq(WEXITSTATUS(status), 42);
    store = open_store();
    ck_assert_int_eq(runs_in(store), 1);
    struct check check = {0};
    ck_assert_int_eq(store_load_steps(store, 1, same_step, &check, &err), 0);
    ck_assert_uint_eq(check.n, 10);
    ck_assert_int_eq(record_run(store, "next", STORE_STEPS, 10, &err), 0);
    ck_assert_int_eq(runs_in(store), 2);
    store_close(store);
}

TEST(a_run_rolled_back_or_closed_early_leaves_no_trace) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    struct run_facts facts = facts_of("gone");
    struct sink sink;
    int64_t run;
    ck_assert_int_eq(store_run_begin(store, &facts, STORE_STEPS, &run, &sink, &err), 0);
    ck_assert_int_eq(record(&sink, 10, &err), 0);
    store_run_rollback(store);
    ck_assert_int_eq(runs_in(store), 0);
    ck_assert_int_eq(store_run_begin(store, &facts, STORE_STEPS, &run, &sink, &err), 0);
    store_close(store);
    store = open_store();
    ck_assert_int_eq(runs_in(store), 0);
    store_close(store);
}

/* Another program, which locks the database for so many milliseconds; `sql` begins that. */
static pid_t lock_for(const char *sql, int milliseconds) {
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        sqlite3 *db;
        bool is_locked = sqlite3_open(path, &db) == SQLITE_OK &&
                         sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
        if (write(ready[1], &byte, 1) != 1 || !is_locked) {
            _exit(1);
        }
        usleep(1000 * (useconds_t)milliseconds);
        _exit(0);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void await(pid_t pid) {
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

static const char reads[] = "BEGIN; SELECT count(*) FROM runs";

/* Longer than the two seconds after which a wait is told. */
TEST(who_records_waits_for_a_reader) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    pid_t pid = lock_for(reads, 3000);
    ck_assert_int_eq(record_run(store, "x", STORE_STEPS, 1, &err), 0);
    ck_assert_int_eq(runs_in(store), 1);
    store_close(store);
    await(pid);
}

TEST(who_reads_waits_for_a_recorder) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "x", STORE_STEPS, 1, &err), 0);
    store_close(store);
    pid_t pid = lock_for("BEGIN EXCLUSIVE", 300);
    ck_assert_int_eq(store_open(path, STORE_READ, &store, &err), 0);
    ck_assert_int_eq(runs_in(store), 1);
    store_close(store);
    await(pid);
}

static volatile sig_atomic_t is_stopped;

static void stop(int signal_number) {
    (void)signal_number;
    is_stopped = 1;
}

TEST(a_wait_ends_when_the_program_is_interrupted_or_was_told_not_to_wait) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    pid_t pid = lock_for("BEGIN IMMEDIATE", 600000);
    store_wait(store, false);
    ck_assert_int_eq(record_run(store, "x", STORE_STEPS, 1, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "locked by another program"));
    store_wait(store, true);
    store_stop_on(&is_stopped);
    signal(SIGALRM, stop);
    alarm(1);
    err = (struct err){0};
    ck_assert_int_eq(record_run(store, "x", STORE_STEPS, 1, &err), ERR_WORLD);
    ck_assert(is_stopped);
    /* Who was interrupted before waits for what is to be saved at last. */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    pid = lock_for("BEGIN IMMEDIATE", 200);
    err = (struct err){0};
    ck_assert_int_eq(record_run(store, "x", STORE_STEPS, 1, &err), 0);
    store_stop_on(NULL);
    store_close(store);
    await(pid);
}

TEST(six_programs_record_into_one_database_and_lose_nothing) {
    enum { PROGRAMS = 6, RUNS = 5 };
    make_folder();
    pid_t pids[PROGRAMS];
    for (int p = 0; p < PROGRAMS; p++) {
        pids[p] = fork();
        if (pids[p] == 0) {
            struct err err = {0};
            struct store *store = NULL;
            bool failed = store_open(path, STORE_WRITE, &store, &err) != 0;
            for (int i = 0; i < RUNS && !failed; i++) {
                failed = record_run(store, "x", STORE_EVENTS, 200, &err) != 0;
            }
            store_close(store);
            _exit(failed);
        }
    }
    for (int p = 0; p < PROGRAMS; p++) {
        await(pids[p]);
    }
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(runs_in(store), PROGRAMS * RUNS);
    for (int64_t run = 1; run <= PROGRAMS * RUNS; run++) {
        ck_assert_msg(store_check_rows(store, run, &err) == 0, "%s", err.text);
    }
    store_close(store);
}

/* ---- runs that are saved as they go ---- */

static struct run_facts cut_off(void) {
    struct run_facts facts = facts_of("live");
    facts.incomplete = "not over yet";
    return facts;
}

struct seen {
    int n, n_incomplete, n_damaged;
    int64_t n_requests;
};

static int see(void *state, const struct stored_run *run, struct err *err) {
    struct seen *seen = state;
    (void)err;
    json_t *summary = json_loads(run->summary, 0, NULL);
    seen->n++;
    seen->n_damaged += run->damage != NULL;
    seen->n_incomplete += json_is_string(json_object_get(summary, "incomplete"));
    seen->n_requests += run->n_requests;
    json_decref(summary);
    return 0;
}

static struct seen look(void) {
    struct seen seen = {0};
    struct store *store = NULL;
    struct err err = {0};
    ck_assert_msg(store_open(path, STORE_READ, &store, &err) == 0, "%s", err.text);
    ck_assert_int_eq(store_list_runs(store, see, &seen, &err), 0);
    store_close(store);
    return seen;
}

/* Saves a run of two batches; the second is only begun where `dies`. */
static int save_twice(struct store *store, bool dies, struct err *err) {
    struct run_facts facts = cut_off(), whole = facts_of("live");
    struct saved_run saved;
    struct summary summary;
    struct sink sink;
    int64_t run;
    summary_init(&summary, NULL);
    summary_finish(&summary);
    bool failed = store_run_begin(store, &facts, STORE_REQUESTS, &run, &sink, err) != 0 ||
                  record(&sink, 10, err) != 0 ||
                  store_run_save(store, &summary, &facts, &saved, err) != 0;
    if (!failed) {
        struct seen seen = look(); /* nobody is locked out */
        failed = seen.n_incomplete != 1 || seen.n_requests != 10 || seen.n_damaged != 0;
    }
    failed = failed || store_run_continue(store, &saved, err) != 0 || record(&sink, 10, err) != 0;
    if (dies) {
        _exit(failed);
    }
    return failed || store_run_commit(store, &summary, &whole, err) != 0;
}

TEST(a_run_that_is_saved_as_it_goes_is_incomplete_until_it_is_whole) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_msg(save_twice(store, false, &err) == 0, "%s", err.text);
    ck_assert_int_eq(store_check_rows(store, 1, &err), 0);
    store_close(store);
    struct seen seen = look();
    ck_assert_int_eq(seen.n, 1);
    ck_assert_int_eq(seen.n_incomplete, 0);
    ck_assert_int_eq(seen.n_requests, 20);
}

TEST(who_is_killed_keeps_what_was_saved) {
    make_folder();
    pid_t pid = fork();
    if (pid == 0) {
        struct err err = {0};
        struct store *store = NULL;
        _exit(store_open(path, STORE_WRITE, &store, &err) != 0 || save_twice(store, true, &err));
    }
    await(pid);
    struct seen seen = look();
    ck_assert_int_eq(seen.n, 1);
    ck_assert_int_eq(seen.n_incomplete, 1);
    ck_assert_int_eq(seen.n_requests, 10);
}

TEST(what_cannot_be_added_is_tried_again) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    struct run_facts facts = cut_off(), whole = facts_of("live");
    struct saved_run saved;
    struct summary summary;
    struct sink sink;
    int64_t run, sym[SYM_COUNT];
    summary_init(&summary, NULL);
    summary_finish(&summary);
    ck_assert_int_eq(store_run_begin(store, &facts, STORE_STEPS, &run, &sink, &err), 0);
    ck_assert_int_eq(record(&sink, 10, &err), 0);
    ck_assert_int_eq(store_run_save(store, &summary, &facts, &saved, &err), 0);
    ck_assert_int_eq(store_run_continue(store, &saved, &err), 0);
    struct step_record step = step_at(10, sym);
    ck_assert_int_eq(sink.step(sink.state, &step, &err), 0);
    ck_assert_int_eq(sink.step(sink.state, &step, &err), ERR_WORLD);
    err = (struct err){0};
    ck_assert_int_eq(store_run_continue(store, &saved, &err), 0);
    ck_assert_int_eq(sink.step(sink.state, &step, &err), 0);
    ck_assert_int_eq(store_run_commit(store, &summary, &whole, &err), 0);
    struct check check = {0};
    ck_assert_int_eq(store_load_steps(store, run, same_step, &check, &err), 0);
    ck_assert_uint_eq(check.n, 11);
    ck_assert_int_eq(store_check_rows(store, run, &err), 0);
    store_close(store);
}

static void write_file(const char *text, size_t n) {
    FILE *out = fopen(path, "w");
    ck_assert_uint_eq(fwrite(text, 1, n, out), n);
    fclose(out);
}

static void expect_refusal(enum store_mode mode, const char *words) {
    struct store *store = NULL;
    struct err err = {0};
    ck_assert_int_eq(store_open(path, mode, &store, &err), ERR_WORLD);
    ck_assert_ptr_null(store);
    ck_assert_msg(strstr(err.text, words) != NULL, "'%s' lacks '%s'", err.text, words);
    ck_assert_ptr_nonnull(strstr(err.text, path));
}

TEST(what_is_not_ours_is_refused_and_left_alone) {
    make_folder();
    expect_refusal(STORE_READ, "No such file");
    char text[2048];
    memset(text, 'x', sizeof text);
    write_file(text, sizeof text);
    expect_refusal(STORE_WRITE, "not an SQLite database");
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(status.st_size, sizeof text);

    unlink(path);
    sqlite3 *db;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, "CREATE TABLE accounts(x)", NULL, NULL, NULL);
    expect_refusal(STORE_WRITE, "another program");
    sqlite3_exec(db, "DROP TABLE accounts; PRAGMA application_id=5", NULL, NULL, NULL);
    expect_refusal(STORE_WRITE, "another program");
    sqlite3_close(db);

    write_file("", 0);
    expect_refusal(STORE_READ, "empty");
}

TEST(a_newer_schema_is_refused) {
    make_folder();
    store_close(open_store());
    sqlite3 *db;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL);
    sqlite3_close(db);
    expect_refusal(STORE_READ, "newer unmask");
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, "PRAGMA user_version=-5", NULL, NULL, NULL);
    sqlite3_close(db);
    expect_refusal(STORE_WRITE, "schema -5");
}

TEST(names_that_are_no_files_are_refused) {
    static const char *const names[] = {":memory:", "file:x?mode=memory", ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct store *store = NULL;
        struct err err = {0};
        ck_assert_int_eq(store_open(names[i], STORE_WRITE, &store, &err), ERR_USAGE);
        ck_assert_ptr_null(store);
    }
}

static void change(const char *sql) {
    sqlite3 *db;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

TEST(a_trigger_is_refused_and_a_view_is_no_table) {
    make_folder();
    store_close(open_store());
    change("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM requests; END");
    expect_refusal(STORE_WRITE, "trigger, 't'");
    expect_refusal(STORE_READ, "trigger, 't'");
    change("DROP TRIGGER t; ALTER TABLE events RENAME TO others;"
           "CREATE VIEW events AS SELECT * FROM others");
    expect_refusal(STORE_READ, "5 of 6 tables");
}

static char *file_copy;
static long file_size;

static void keep_file(void) {
    FILE *file = fopen(path, "rb");
    fseek(file, 0, SEEK_END);
    file_size = ftell(file);
    rewind(file);
    file_copy = malloc((size_t)file_size);
    ck_assert_uint_eq(fread(file_copy, 1, (size_t)file_size, file), (size_t)file_size);
    fclose(file);
}

/* Whether everything that was recorded comes back as it was. */
static bool comes_back(void) {
    static char row_then[SHA256_HEX_CHARS], rows_then[SHA256_HEX_CHARS];
    char row[SHA256_HEX_CHARS] = "", rows[SHA256_HEX_CHARS] = "";
    struct store *store = NULL;
    struct err err = {0};
    bool is_read = store_open(path, STORE_READ, &store, &err) == 0 &&
                   store_digest_row(store, 1, row, &err) == 0 &&
                   store_digest_rows(store, 1, rows, &err) == 0;
    store_close(store);
    if (row_then[0] == '\0') {
        memcpy(row_then, row, sizeof row);
        memcpy(rows_then, rows, sizeof rows);
    }
    return is_read && strcmp(row, row_then) == 0 && strcmp(rows, rows_then) == 0;
}

/* Whether a reader is told of damage: when the file is opened, or of the run. */
static bool is_told(void) {
    struct store *store = NULL;
    struct err err = {0};
    struct seen seen = {0};
    bool told = store_open(path, STORE_READ, &store, &err) != 0 || store->is_damaged ||
                store_list_runs(store, see, &seen, &err) != 0 || seen.n != 1 ||
                seen.n_damaged > 0 || store_check_rows(store, 1, &err) != 0;
    store_close(store);
    return told;
}

/* Every byte flipped is found, or changes nothing of what was recorded. */
static void flip_bytes(void) {
    enum { FLIPS = 400 };
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "x", STORE_EVENTS, 60, &err), 0);
    store_close(store);
    keep_file();
    ck_assert(comes_back());
    ck_assert(!is_told());
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* each is told there, too */
    int n_told = 0;
    for (long i = 0; i < FLIPS; i++) {
        long at = (i * 7919 + 13) % file_size;
        FILE *file = fopen(path, "r+b");
        fseek(file, at, SEEK_SET);
        fputc(file_copy[at] ^ (1 << i % 8), file);
        fclose(file);
        bool told = is_told();
        n_told += told;
        ck_assert_msg(told || comes_back(), "byte %ld is changed, and nobody says so", at);
        file = fopen(path, "r+b");
        ck_assert_uint_eq(fwrite(file_copy, 1, (size_t)file_size, file), (size_t)file_size);
        fclose(file);
    }
    ck_assert_int_gt(n_told, FLIPS / 4);
    free(file_copy);
}

TEST(a_flipped_byte_is_found_or_changes_nothing) {
    flip_bytes();
}

/* By what is read of it alone. */
TEST(a_flipped_byte_of_a_large_file_is_found_or_changes_nothing) {
    store_most_checked_bytes = 0;
    flip_bytes();
}

TEST(a_damaged_run_takes_no_other_away_and_is_not_recorded_beside) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "first", STORE_STEPS, 20, &err), 0);
    ck_assert_int_eq(record_run(store, "second", STORE_STEPS, 20, &err), 0);
    ck_assert_int_eq(record_run(store, "third", STORE_STEPS, 20, &err), 0);
    store_close(store);
    change("UPDATE runs SET summary='{' WHERE run=1;"
           "UPDATE steps SET gpu_ns=gpu_ns+1 WHERE run=2 AND idx=7");
    struct seen seen = look();
    ck_assert_int_eq(seen.n, 3);
    ck_assert_int_eq(seen.n_damaged, 1);
    store = open_store();
    ck_assert_int_eq(store_check_rows(store, 2, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "run 2 of"));
    err = (struct err){0};
    ck_assert_int_eq(store_check_rows(store, 3, &err), 0);
    store_close(store);
}

/* A program that is killed while it commits leaves a journal. */
TEST(a_hot_journal_is_undone_by_who_reads) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "kept", STORE_STEPS, 10, &err), 0);
    store_close(store);
    pid_t pid = fork();
    if (pid == 0) {
        sqlite3 *db;
        /* A cache of one page: changes go into the file before they are committed. */
        bool failed = sqlite3_open(path, &db) != SQLITE_OK ||
                      sqlite3_exec(db,
                                   "PRAGMA cache_size=1; PRAGMA cache_spill=1; BEGIN IMMEDIATE;"
                                   "UPDATE steps SET gpu_ns=0; UPDATE runs SET config='';"
                                   "DELETE FROM requests",
                                   NULL, NULL, NULL) != SQLITE_OK;
        _exit(failed);
    }
    await(pid);
    char journal[160];
    snprintf(journal, sizeof journal, "%s-journal", path);
    ck_assert_int_eq(access(journal, F_OK), 0);
    ck_assert(!is_told());
    ck_assert_int_ne(access(journal, F_OK), 0);
}

/* ---- older schemas ---- */

static void take_golden(const char *name) {
    char command[512];
    snprintf(command, sizeof command, "cp tests/golden/databases/%s '%s'", name, path);
    ck_assert_int_eq(system(command), 0);
}

static int add_requests(void *state, const struct request_record *record, struct err *err) {
    (void)err;
    ck_assert_uint_eq(record->answer_tokens, record->output_tokens);
    *(uint64_t *)state += record->output_tokens;
    return 0;
}

static int count_step(void *state, const struct step_record *record, struct err *err) {
    (void)err;
    ck_assert_ptr_nonnull(record->request_ids);
    ++*(uint64_t *)state;
    return 0;
}

static void check_old_runs(struct store *store) {
    struct err err = {0};
    struct seen seen = {0};
    uint64_t tokens = 0, steps = 0;
    ck_assert_int_eq(store_list_runs(store, see, &seen, &err), 0);
    ck_assert_int_eq(seen.n, 2);
    ck_assert_int_eq(seen.n_damaged, 0);
    ck_assert_int_eq(seen.n_requests, 7);
    ck_assert_int_eq(store_load_requests(store, 1, add_requests, &tokens, &err), 0);
    ck_assert_uint_eq(tokens, 4 * 64);
    ck_assert_int_eq(store_load_steps(store, 1, count_step, &steps, &err), 0);
    ck_assert_uint_gt(steps, 0);
    ck_assert_int_eq(store_check_rows(store, 1, &err), 0);
}

/* Files that older programs made are kept as they were; readers leave them alone. */
TEST(older_schemas_are_read_as_they_are_and_changed_by_who_records) {
    static const char *const names[] = {"schema-1.db", "schema-4.db"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct store *store = NULL;
        struct err err = {0};
        make_folder();
        take_golden(names[i]);
        keep_file();
        char *before = file_copy;
        ck_assert_msg(store_open(path, STORE_READ, &store, &err) == 0, "%s", err.text);
        check_old_runs(store);
        store_close(store);
        keep_file();
        ck_assert_mem_eq(before, file_copy, (size_t)file_size);
        free(before);
        free(file_copy);
        store = open_store();
        check_old_runs(store);
        ck_assert_int_eq(record_run(store, "new", STORE_STEPS, 10, &err), 0);
        ck_assert_int_eq(store_check_rows(store, 3, &err), 0);
        store_close(store);
    }
}

TEST(a_damaged_database_is_refused_or_its_rows_are) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "x", STORE_STEPS, 2000, &err), 0);
    store_close(store);
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);

    /* Scribble over all pages but the first ones: opening may work, reading must not. */
    FILE *file = fopen(path, "r+");
    fseek(file, 10 * 4096, SEEK_SET);
    for (long at = 10 * 4096; at < status.st_size; at++) {
        fputc(0xa5, file);
    }
    fclose(file);
    ck_assert_int_eq(store_open(path, STORE_READ, &store, &err), 0);
    ck_assert(store->is_damaged);
    expect_refusal(STORE_WRITE, "its sound runs can be read");
    int n = 0;
    struct check check = {0};
    int failed = store_list_runs(store, count_run, &n, &err);
    failed = failed != 0 ? failed : store_load_steps(store, 1, same_step, &check, &err);
    ck_assert_int_eq(failed, ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "damaged"));
    store_close(store);

    ck_assert_int_eq(truncate(path, status.st_size / 2), 0);
    expect_refusal(STORE_READ, "damaged");
}

TEST(a_member_list_that_does_not_decode_is_reported) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "x", STORE_STEPS, 4, &err), 0);
    sqlite3 *db;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    static const char *const damage[] = {
        "UPDATE members SET batch=x'ffffffffffffffffffffffffffffffff'",
        "UPDATE members SET batch=x'00'", "UPDATE members SET batch=x'00000000000000000000'",
        "UPDATE steps SET symbols=x'00'"};
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        ck_assert_int_eq(sqlite3_exec(db, damage[i], NULL, NULL, NULL), SQLITE_OK);
        struct check check = {0};
        err = (struct err){0};
        ck_assert_int_eq(store_load_steps(store, 1, same_step, &check, &err), ERR_WORLD);
        ck_assert_ptr_nonnull(strstr(err.text, "damaged"));
    }
    sqlite3_close(db);
    store_close(store);
}

TEST(a_read_only_file_is_refused_for_writing_only) {
    make_folder();
    store_close(open_store());
    ck_assert_int_eq(chmod(path, 0444), 0);
    pid_t child = fork();
    if (child == 0) {
        /* Root may write anywhere: become nobody. */
        if (geteuid() == 0 && setuid(65534) != 0) {
            _exit(1);
        }
        struct store *store = NULL;
        struct err err = {0};
        int failed = store_open(path, STORE_WRITE, &store, &err);
        if (failed != ERR_WORLD || strstr(err.text, "read-only") == NULL) {
            _exit(2);
        }
        err = (struct err){0};
        _exit(store_open(path, STORE_READ, &store, &err) == 0 ? 42 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    ck_assert_int_eq(WEXITSTATUS(status), 42);
}

TEST(beyond_the_file_size_limit_the_run_is_undone_and_earlier_ones_stay) {
    make_folder();
    signal(SIGXFSZ, SIG_IGN);
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "kept", STORE_STEPS, 10, &err), 0);
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 1 << 18;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(record_run(store, "lost", STORE_EVENTS, 100000, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "file size limit") != NULL, "%s", err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "earlier runs are intact"));
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(runs_in(store), 1);
    err = (struct err){0};
    ck_assert_int_eq(record_run(store, "next", STORE_STEPS, 10, &err), 0);
    store_close(store);
    store = open_store();
    ck_assert_int_eq(runs_in(store), 2);
    store_close(store);
}

/* Every connection opened from here on may hold so many pages, as on a disk of that size. */
static int small_disk(sqlite3 *db, char **message, const struct sqlite3_api_routines *api) {
    (void)message, (void)api;
    return sqlite3_exec(db, "PRAGMA max_page_count=40", NULL, NULL, NULL);
}

TEST(a_full_disk_undoes_the_run_and_leaves_earlier_ones) {
    make_folder();
    ck_assert_int_eq(sqlite3_auto_extension((void (*)(void))small_disk), SQLITE_OK);
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(record_run(store, "kept", STORE_STEPS, 10, &err), 0);
    ck_assert_int_eq(record_run(store, "lost", STORE_STEPS, 10000, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "full") != NULL, "%s", err.text);
    struct run_facts facts = facts_of("lost");
    struct summary summary;
    summary_init(&summary, NULL);
    summary_finish(&summary);
    err = (struct err){0};
    ck_assert_int_eq(store_run_commit(store, &summary, &facts, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "rolled back"));
    ck_assert_int_eq(runs_in(store), 1);
    store_close(store);
    sqlite3_reset_auto_extension();
}

TEST(a_step_recorded_twice_is_refused) {
    make_folder();
    struct store *store = open_store();
    struct err err = {0};
    struct run_facts facts = facts_of("x");
    struct sink sink;
    int64_t run, sym[SYM_COUNT];
    ck_assert_int_eq(store_run_begin(store, &facts, STORE_STEPS, &run, &sink, &err), 0);
    struct step_record step = step_at(3, sym);
    ck_assert_int_eq(sink.step(sink.state, &step, &err), 0);
    ck_assert_int_eq(sink.step(sink.state, &step, &err), ERR_WORLD);
    ck_assert_int_eq(runs_in(store), 0);
    store_close(store);
}

SUITE("store")
