/* Databases that are not ours, older, damaged, or on a full disk: trouble leaves whole runs or
 * none. */
#include "tests/support/stored.h"

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
        ck_assert_msg(told || comes_back(), "byte %ld is changed, and no one says so", at);
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

SUITE("damaged stores")
