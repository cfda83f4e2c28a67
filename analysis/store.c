#include "analysis/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/identity.h"
#include "analysis/schema.h"
#include "analysis/store_impl.h"

/* How long to wait for another program's lock before giving up. */
enum {
    BUSY_TIMEOUT_MS = 2000,
    PATIENT_WAIT_MS = 20,
    PATIENT_NOTE_MS = 2000,
    MAX_VARINT_BYTES = 10
};

int store_fail(struct store *store, int rc, const char *doing, struct err *err) {
    /* SQLite forgets the system's reason when an automatic rollback follows; errno still has it. */
    int os_errno = sqlite3_system_errno(store->db);
    os_errno = os_errno != 0 ? os_errno : errno;
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return err_world(err, "cannot %s '%s': the disk or the database is full", doing,
                         store->path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_world(err,
                         "cannot %s '%s': it is locked by another program; try again when that has "
                         "finished",
                         doing, store->path);
    case SQLITE_READONLY:
        return err_world(err, "cannot %s '%s': the file is read-only", doing, store->path);
    case SQLITE_NOTADB:
        return err_world(err, "cannot %s '%s': it is not an SQLite database", doing, store->path);
    case SQLITE_CORRUPT:
        return err_world(err, "cannot %s '%s': the database is damaged", doing, store->path);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        if (os_errno == ENOSPC || os_errno == EDQUOT) {
            return err_world(err, "cannot %s '%s': the disk is full", doing, store->path);
        }
        if (os_errno == EFBIG) {
            return err_world(err, "cannot %s '%s': it would exceed the file size limit", doing,
                             store->path);
        }
        return err_world(err, "cannot %s '%s': %s", doing, store->path,
                         os_errno != 0 ? strerror(os_errno) : sqlite3_errmsg(store->db));
    default:
        return err_world(err, "cannot %s '%s': %s", doing, store->path, sqlite3_errmsg(store->db));
    }
}

int store_prepare(struct store *store, const char *sql, sqlite3_stmt **out, struct err *err) {
    errno = 0;
    int rc = sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    return rc == SQLITE_OK ? 0 : store_fail(store, rc, "read", err);
}

static int run_sql(struct store *store, const char *sql, const char *doing, struct err *err) {
    errno = 0;
    int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_fail(store, rc, doing, err);
}

/* The single integer of a query. */
static int ask(struct store *store, const char *sql, int64_t *out, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    errno = 0;
    int rc = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
    }
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(stmt, 0);
        rc = SQLITE_OK;
    }
    int failed = rc == SQLITE_OK ? 0 : store_fail(store, rc, "open", err);
    sqlite3_finalize(stmt);
    return failed;
}

static int create_names(struct store *store, struct err *err) {
    static const struct {
        const char *kind;
        const char *const *names;
        int n;
    } tables[] = {{"state", request_state_names, REQUEST_STATE_COUNT},
                  {"reason", reject_reason_names, REJECT_REASON_COUNT},
                  {"event", event_kind_names, EVENT_KIND_COUNT},
                  {"symbol", symbol_names, SYM_COUNT}};
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(store, "INSERT INTO names VALUES(?,?,?)", &stmt, err);
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (int i = 0; i < tables[t].n && failed == 0; i++) {
            sqlite3_bind_text(stmt, 1, tables[t].kind, -1, SQLITE_STATIC);
            sqlite3_bind_int(stmt, 2, i);
            sqlite3_bind_text(stmt, 3, tables[t].names[i], -1, SQLITE_STATIC);
            int rc = sqlite3_step(stmt);
            failed = rc == SQLITE_DONE ? 0 : store_fail(store, rc, "create", err);
            sqlite3_reset(stmt);
        }
    }
    sqlite3_finalize(stmt);
    return failed;
}

static int create_schema(struct store *store, struct err *err) {
    char marks[96];
    snprintf(marks, sizeof marks, "PRAGMA application_id=%d; PRAGMA user_version=%d;",
             SCHEMA_APPLICATION_ID, SCHEMA_VERSION);
    int failed = run_sql(store, "BEGIN IMMEDIATE", "create", err);
    if (failed != 0) {
        return failed;
    }
    /* Another process may have created it between our look and our lock. */
    int64_t n_tables = 0;
    failed = ask(store, "SELECT count(*) FROM sqlite_master", &n_tables, err);
    if (failed == 0 && n_tables == 0) {
        failed = run_sql(store, schema_sql, "create", err);
        if (failed == 0) {
            failed = create_names(store, err);
        }
        if (failed == 0) {
            failed = run_sql(store, marks, "create", err);
        }
    }
    if (failed == 0) {
        failed = run_sql(store, "COMMIT", "create", err);
    }
    if (failed != 0 && sqlite3_get_autocommit(store->db) == 0) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return failed;
}

/* Another process may have done it between our look and our lock. */
static int migrate(struct store *store, struct err *err) {
    static const char doing[] = "record into";
    char mark[48];
    snprintf(mark, sizeof mark, "PRAGMA user_version=%d;", SCHEMA_VERSION);
    int64_t version = 0;
    if (run_sql(store, "BEGIN IMMEDIATE", doing, err) != 0) {
        return err_status(err);
    }
    int failed = ask(store, "PRAGMA user_version", &version, err);
    for (int64_t v = version; failed == 0 && v < SCHEMA_VERSION; v++) {
        failed = run_sql(store, schema_steps[v].change, doing, err);
    }
    failed = failed != 0 ? failed : run_sql(store, mark, doing, err);
    failed = failed != 0 ? failed : run_sql(store, "COMMIT", doing, err);
    if (failed != 0 && sqlite3_get_autocommit(store->db) == 0) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return failed;
}

/* An older database that is only read gets views of today's columns over its tables. */
static int look_newer(struct store *store, int64_t version, struct err *err) {
    int failed = 0;
    for (int64_t v = version; failed == 0 && v < SCHEMA_VERSION; v++) {
        failed = run_sql(store, schema_steps[v].view, "open", err);
    }
    return failed;
}

static int check_schema(struct store *store, enum store_mode mode, struct err *err) {
    int64_t application = 0, version = 0, n_entries = 0, n_ours = 0;
    int failed = ask(store, "SELECT count(*) FROM sqlite_master", &n_entries, err);
    if (failed == 0) {
        failed = ask(store, "PRAGMA application_id", &application, err);
    }
    if (failed == 0) {
        failed = ask(store, "PRAGMA user_version", &version, err);
    }
    if (failed != 0) {
        return failed;
    }
    if (n_entries == 0 && application == 0 && version == 0) {
        return mode == STORE_WRITE
                   ? create_schema(store, err)
                   : err_world(err, "cannot open '%s': it is empty, not a results database",
                               store->path);
    }
    if (application != SCHEMA_APPLICATION_ID) {
        return err_world(err,
                         "cannot open '%s': it is a database of another program (application id "
                         "%lld, ours is %d)",
                         store->path, (long long)application, SCHEMA_APPLICATION_ID);
    }
    if (version > SCHEMA_VERSION) {
        return err_world(err,
                         "cannot open '%s': a newer unmask wrote it (schema %lld, this one knows "
                         "%d)",
                         store->path, (long long)version, SCHEMA_VERSION);
    }
    if (version < 1) {
        return err_world(err, "cannot open '%s': the database is damaged (schema %lld)",
                         store->path, (long long)version);
    }
    failed = ask(store,
                 "SELECT count(*) FROM sqlite_master WHERE type='table' AND name IN"
                 " ('runs','requests','members','steps','events','names')",
                 &n_ours, err);
    if (failed == 0 && n_ours != 6) {
        return err_world(err, "cannot open '%s': the database is damaged (%lld of 6 tables)",
                         store->path, (long long)n_ours);
    }
    return failed != 0                ? failed
           : mode == STORE_READ       ? look_newer(store, version, err)
           : version < SCHEMA_VERSION ? migrate(store, err)
                                      : 0;
}

int store_open(const char *path, enum store_mode mode, struct store **out, struct err *err) {
    struct stat status;
    if (path[0] == '\0') {
        return err_usage(err, "a results database needs the name of a file");
    }
    bool exists = stat(path, &status) == 0;
    if (!exists && (mode == STORE_READ || errno != ENOENT)) {
        return err_world(err, "cannot open '%s': %s", path, strerror(errno));
    }
    if (exists && !S_ISREG(status.st_mode)) {
        return err_world(err, "cannot open '%s': it is not a regular file", path);
    }
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL || (store->path = strdup(path)) == NULL) {
        free(store);
        return err_world(err, "out of memory while opening '%s'", path);
    }
    int flags =
        mode == STORE_READ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int failed = 0;
    int rc = sqlite3_open_v2(path, &store->db, flags, NULL);
    if (rc != SQLITE_OK) {
        failed = store_fail(store, rc, "open", err);
    } else if (mode == STORE_WRITE && sqlite3_db_readonly(store->db, "main") == 1) {
        failed = store_fail(store, SQLITE_READONLY, "record into", err);
    }
    if (failed == 0) {
        sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
        failed = check_schema(store, mode, err);
    }
    if (failed == 0 && mode == STORE_WRITE) {
        failed =
            run_sql(store, "PRAGMA journal_mode=DELETE; PRAGMA cache_size=-65536", "open", err);
    }
    if (failed != 0) {
        store_close(store);
        return failed;
    }
    *out = store;
    return 0;
}

void store_close(struct store *store) {
    if (store == NULL) {
        return;
    }
    store_run_rollback(store);
    sqlite3_finalize(store->put_request);
    sqlite3_finalize(store->put_members);
    sqlite3_finalize(store->put_step);
    sqlite3_finalize(store->put_event);
    for (uint32_t i = 0; i < store->n_last; i++) {
        free(store->last[i].batch.data);
    }
    free(store->last);
    free(store->scratch.data);
    free(store->bits.data);
    sqlite3_close(store->db);
    free(store->path);
    free(store);
}

static int wait_for_lock(void *state, int n_tries) {
    struct store *store = state;
    store->waited_ms = n_tries == 0 ? 0 : store->waited_ms + PATIENT_WAIT_MS;
    if (store->waited_ms == PATIENT_NOTE_MS) {
        fprintf(stderr, "unmask: waits for another program that has locked %s\n", store->path);
    }
    sqlite3_sleep(PATIENT_WAIT_MS);
    return !*store->stop;
}

void store_be_patient(struct store *store, const volatile sig_atomic_t *stop) {
    store->stop = stop;
    sqlite3_busy_handler(store->db, wait_for_lock, store);
}

const char *store_path(const struct store *store) {
    return store->path;
}

void store_run_rollback(struct store *store) {
    /* SQLite has already rolled back by itself after some errors, a full disk among them. */
    if (store->run != 0 && sqlite3_get_autocommit(store->db) == 0) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    store->run = 0;
}

/* Bound values are ours and complete; run the statement. A failure ends the run. */
static int put_row(struct store *store, sqlite3_stmt *stmt, struct err *err) {
    errno = 0;
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_DONE) {
        sqlite3_reset(stmt);
        return 0;
    }
    int failed =
        store_fail(store, rc, "record this run (rolled back, earlier runs are intact) into", err);
    sqlite3_reset(stmt);
    store_run_rollback(store);
    return failed;
}

#define COLUMN_VALUE(column, member) (int64_t) r->member,

/* Binds integers from the first place on. */
static void bind_all(sqlite3_stmt *stmt, const int64_t *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sqlite3_bind_int64(stmt, (int)i + 1, values[i]);
    }
}

static int record_request(void *state, const struct request_record *r, struct err *err) {
    struct store *store = state;
    const int64_t values[] = {store->run, store->n_requests++, REQUEST_COLUMNS(COLUMN_VALUE)};
    bind_all(store->put_request, values, sizeof values / sizeof values[0]);
    return put_row(store, store->put_request, err);
}

static bool bytes_reserve(struct bytes *bytes, size_t capacity) {
    if (capacity <= bytes->capacity) {
        return true;
    }
    capacity = capacity < 2 * bytes->capacity ? 2 * bytes->capacity : capacity;
    unsigned char *data = realloc(bytes->data, capacity);
    if (data == NULL) {
        return false;
    }
    bytes->data = data;
    bytes->capacity = capacity;
    return true;
}

/* The caller has reserved MAX_VARINT_BYTES for each value. */
static void put_varint(struct bytes *bytes, uint64_t value) {
    while (value >= 0x80) {
        bytes->data[bytes->n++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    bytes->data[bytes->n++] = (unsigned char)value;
}

static int no_memory(struct store *store, struct err *err) {
    store_run_rollback(store);
    return err_world(err, "out of memory while recording into '%s'; the run was rolled back",
                     store->path);
}

/* The number in `members` of the record's batch, written only when it differs from the replica's
 * last one; 0 when the record names no members. */
static int record_members(struct store *store, const struct step_record *r, int64_t *number,
                          struct err *err) {
    *number = 0;
    if (r->request_ids == NULL || r->commit_tokens == NULL) {
        return 0;
    }
    if (r->replica >= store->n_last) {
        struct last_members *last = realloc(store->last, (r->replica + 1) * sizeof *last);
        if (last == NULL) {
            return no_memory(store, err);
        }
        memset(last + store->n_last, 0, (r->replica + 1 - store->n_last) * sizeof *last);
        store->last = last;
        store->n_last = r->replica + 1;
    }
    struct bytes *batch = &store->scratch;
    if (!bytes_reserve(batch, 2 * (size_t)MAX_VARINT_BYTES * r->n + 1)) {
        return no_memory(store, err);
    }
    batch->n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        put_varint(batch, r->request_ids[i]);
        put_varint(batch, r->commit_tokens[i]);
    }
    struct last_members *last = &store->last[r->replica];
    if (last->number != 0 && last->batch.n == batch->n &&
        memcmp(last->batch.data, batch->data, batch->n) == 0) {
        *number = last->number;
        return 0;
    }
    struct bytes old = last->batch;
    last->batch = *batch;
    *batch = old;
    last->number = ++store->n_members;
    *number = last->number;
    sqlite3_bind_int64(store->put_members, 1, store->run);
    sqlite3_bind_int64(store->put_members, 2, last->number);
    sqlite3_bind_blob(store->put_members, 3, last->batch.data, (int)last->batch.n, SQLITE_STATIC);
    return put_row(store, store->put_members, err);
}

/* Behind what is in `bytes`, which has room. */
static void put_bits(struct bytes *bytes, const uint8_t *flags, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (i % 8 == 0) {
            bytes->data[bytes->n++] = 0;
        }
        bytes->data[bytes->n - 1] |= (unsigned char)((flags[i] != 0) << i % 8);
    }
}

/* What the step kept and committed of its members' blocks. */
static int record_positions(struct store *store, const struct step_record *r, int column,
                            struct err *err) {
    const struct step_positions *positions = r->positions;
    struct bytes *bits = &store->bits;
    if (positions == NULL) {
        sqlite3_bind_null(store->put_step, column);
        return 0;
    }
    size_t member = MAX_VARINT_BYTES + 2 * ((size_t)positions->stride / 8 + 1);
    if (!bytes_reserve(bits, member * r->n + 1)) {
        return no_memory(store, err);
    }
    bits->n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t length = positions->lengths[i];
        put_varint(bits, length);
        put_bits(bits, positions->keep + (size_t)i * positions->stride, length);
        put_bits(bits, positions->commit + (size_t)i * positions->stride, length);
    }
    sqlite3_bind_blob(store->put_step, column, bits->data, (int)bits->n, SQLITE_STATIC);
    return 0;
}

static int record_step(void *state, const struct step_record *r, struct err *err) {
    struct store *store = state;
    int64_t members;
    int failed = record_members(store, r, &members, err);
    if (failed != 0) {
        return failed;
    }
    unsigned char data[SYM_COUNT * MAX_VARINT_BYTES];
    struct bytes symbols = {data, 0, sizeof data};
    for (int i = 0; i < SYM_COUNT; i++) {
        put_varint(&symbols, (uint64_t)r->sym[i]);
    }
    sqlite3_stmt *stmt = store->put_step;
    const int64_t values[] = {store->run, STEP_COLUMNS(COLUMN_VALUE) r->sym[SYM_TOKENS], members};
    enum { N_VALUES = sizeof values / sizeof values[0] };
    bind_all(stmt, values, N_VALUES);
    sqlite3_bind_blob(stmt, N_VALUES + 1, data, (int)symbols.n, SQLITE_STATIC);
    failed = record_positions(store, r, N_VALUES + 2, err);
    store->n_steps += failed == 0;
    return failed == 0 ? put_row(store, stmt, err) : failed;
}

static int record_event(void *state, const struct event_record *r, struct err *err) {
    struct store *store = state;
    const int64_t values[] = {store->run, store->n_events++, EVENT_COLUMNS(COLUMN_VALUE)};
    bind_all(store->put_event, values, sizeof values / sizeof values[0]);
    return put_row(store, store->put_event, err);
}

/* Write the row of the run with what is known now; it is completed on commit. */
static int put_run(struct store *store, const struct run_facts *f, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(store,
                               "INSERT INTO runs(system,model,gpu,profile,profile_kind,backend,"
                               "trace,trace_provenance,config,seed,identity)"
                               " VALUES(?,?,?,?,?,?,?,?,?,?,?)",
                               &stmt, err);
    if (failed != 0) {
        return failed;
    }
    const char *const texts[] = {f->system,       f->model,   f->gpu,   f->profile,
                                 f->profile_kind, f->backend, f->trace, f->trace_provenance,
                                 f->config};
    enum { N_TEXTS = sizeof texts / sizeof texts[0] };
    for (int i = 0; i < N_TEXTS; i++) {
        sqlite3_bind_text(stmt, i + 1, texts[i], -1, SQLITE_STATIC);
    }
    sqlite3_bind_int64(stmt, N_TEXTS + 1, (int64_t)f->seed);
    const char *digest = identity_digest(f->identity);
    if (digest[0] != '\0') {
        sqlite3_bind_text(stmt, N_TEXTS + 2, digest, -1, SQLITE_STATIC);
    }
    failed = put_row(store, stmt, err);
    sqlite3_finalize(stmt);
    store->run = sqlite3_last_insert_rowid(store->db);
    return failed;
}

static int prepare_recording(struct store *store, struct err *err) {
    const struct {
        sqlite3_stmt **out;
        const char *sql;
    } statements[] = {
        {&store->put_request,
         "INSERT INTO requests(run,number" REQUEST_COLUMNS(
             COLUMN_NAME) ") "
                          "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
        {&store->put_members, "INSERT INTO members VALUES(?,?,?)"},
        {&store->put_step, "INSERT INTO steps(run" STEP_COLUMNS(
                               COLUMN_NAME) ",tokens,members,symbols,positions) "
                                            "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
        {&store->put_event,
         "INSERT INTO events(run,number" EVENT_COLUMNS(COLUMN_NAME) ") VALUES(?,?,?,?,?,?,?)"},
    };
    int failed = 0;
    for (size_t i = 0; failed == 0 && i < sizeof statements / sizeof statements[0]; i++) {
        if (*statements[i].out == NULL) {
            failed = store_prepare(store, statements[i].sql, statements[i].out, err);
        }
    }
    return failed;
}

int store_run_begin(struct store *store, const struct run_facts *facts, enum store_level level,
                    int64_t *run, struct sink *out, struct err *err) {
    ASSERT(store->run == 0);
    int failed = run_sql(store, "BEGIN IMMEDIATE", "record into", err);
    if (failed != 0) {
        return failed;
    }
    store->run = -1; /* open, without a number so far */
    store->n_requests = store->n_members = store->n_steps = store->n_events = 0;
    for (uint32_t i = 0; i < store->n_last; i++) {
        store->last[i].number = 0;
    }
    failed = prepare_recording(store, err);
    if (failed == 0) {
        failed = put_run(store, facts, err);
    }
    if (failed != 0) {
        store_run_rollback(store);
        return failed;
    }
    *run = store->run;
    *out = (struct sink){
        .state = store,
        .request = record_request,
        .step = level >= STORE_STEPS ? record_step : NULL,
        .event = level >= STORE_EVENTS ? record_event : NULL,
    };
    return 0;
}

static int complete_run(struct store *store, const char *text, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(
        store, "UPDATE runs SET summary=?,n_requests=?,n_steps=?,n_events=? WHERE run=?", &stmt,
        err);
    if (failed != 0) {
        return failed;
    }
    sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, store->n_requests);
    sqlite3_bind_int64(stmt, 3, store->n_steps);
    sqlite3_bind_int64(stmt, 4, store->n_events);
    sqlite3_bind_int64(stmt, 5, store->run);
    failed = put_row(store, stmt, err);
    sqlite3_finalize(stmt);
    return failed;
}

int store_run_commit(struct store *store, const struct summary *summary,
                     const struct run_facts *facts, struct err *err) {
    if (store->run == 0) {
        return err_world(err, "'%s' holds nothing of this run: it was rolled back after an error",
                         store->path);
    }
    json_t *object = NULL;
    int failed = summary_json(summary, facts, &object, err);
    char *text = failed == 0 ? summary_json_text(object, 0) : NULL;
    json_decref(object);
    if (failed == 0 && text == NULL) {
        failed = no_memory(store, err);
    }
    if (failed == 0) {
        failed = complete_run(store, text, err);
    }
    free(text);
    if (failed == 0) {
        failed = run_sql(store, "COMMIT",
                         "record this run (rolled back, earlier runs are intact) into", err);
    }
    store_run_rollback(store); /* after a successful commit there is nothing left to undo */
    return failed;
}
