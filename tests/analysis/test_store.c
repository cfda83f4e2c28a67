/* The results database: what is recorded comes back, whoever records and reads beside. */
#include "tests/support/stored.h"

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
    ck_assert_uint_eq(r->temperature_millionths, expected.temperature_millionths);
    ck_assert_uint_eq(r->top_p_millionths, expected.top_p_millionths);
    ck_assert_uint_eq(r->top_k, expected.top_k);
    ck_assert_uint_eq(r->sampling_seed, expected.sampling_seed);
    ck_assert_uint_eq(r->revised_tokens, expected.revised_tokens);
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

/* Programs that open the database at once, and record runs into it. */
static void at_once(int n_programs, int n_runs) {
    enum { MOST = 8 };
    pid_t pids[MOST];
    ck_assert_int_le(n_programs, MOST);
    for (int p = 0; p < n_programs; p++) {
        pids[p] = fork();
        if (pids[p] == 0) {
            struct err err = {0};
            struct store *store = NULL;
            bool failed = store_open(path, STORE_WRITE, &store, &err) != 0;
            for (int i = 0; i < n_runs && !failed; i++) {
                failed = record_run(store, "x", STORE_EVENTS, 200, &err) != 0;
            }
            fprintf(stderr, "%s", err.text);
            store_close(store);
            _exit(failed);
        }
    }
    for (int p = 0; p < n_programs; p++) {
        await(pids[p]);
    }
}

TEST(six_programs_record_into_one_database_and_lose_nothing) {
    enum { PROGRAMS = 6, RUNS = 5 };
    make_folder();
    at_once(PROGRAMS, RUNS);
    struct store *store = open_store();
    struct err err = {0};
    ck_assert_int_eq(runs_in(store), PROGRAMS * RUNS);
    for (int64_t run = 1; run <= PROGRAMS * RUNS; run++) {
        ck_assert_msg(store_check_rows(store, run, &err) == 0, "%s", err.text);
    }
    store_close(store);
}

TEST(programs_that_open_a_database_while_it_is_created_find_it_whole) {
    make_folder();
    for (int round = 0; round < 20; round++) {
        at_once(8, 0);
        unlink(path);
    }
}

static struct run_facts cut_off(void) {
    struct run_facts facts = facts_of("live");
    facts.incomplete = "not over yet";
    return facts;
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

SUITE("store")
