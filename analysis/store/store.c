#include "analysis/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/store/schema.h"
#include "analysis/store/store_impl.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"

/* Checking takes about 2.2 ms a MiB. */
int64_t store_most_checked_bytes = INT64_C(256) << 20;

/* Between two looks at a lock, and until the wait is told: then after twice as long, and so on. */
enum { WAIT_MS = 20, NOTE_AFTER_MS = 2000, STOPPED_AFTER = 8 };

static const volatile sig_atomic_t *stop_flag;

void store_stop_on(const volatile sig_atomic_t *stop) {
    stop_flag = stop;
}

int store_name_cancelled(struct store *store, struct err *err) {
    char sql[96];
    snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO names VALUES('reason', %d, '%s')",
             REJECT_CANCELLED, reject_reason_names[REJECT_CANCELLED]);
    return store_run_sql(store, sql, "record into", err);
}

/* What older databases and those without clients lack, store_name_cancelled adds. */
static int create_names(struct store *store, struct err *err) {
    static const struct {
        const char *kind;
        const char *const *names;
        int n;
    } tables[] = {{"state", request_state_names, REQUEST_STATE_COUNT},
                  {"reason", reject_reason_names, REJECT_CANCELLED},
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

/* Statements that were made for this, and are freed. */
static int run_made(struct store *store, char *sql, const char *doing, struct err *err) {
    int failed = store_run_sql(store, sql, doing, err);
    free(sql);
    return failed;
}

/* Closing undoes what failed before its end; so it does in migrate(). */
static int create_schema(struct store *store, struct err *err) {
    char marks[96];
    snprintf(marks, sizeof marks, "PRAGMA application_id=%d; PRAGMA user_version=%d;",
             SCHEMA_APPLICATION_ID, (int)schema_version());
    int failed = store_run_sql(store, "BEGIN IMMEDIATE", "create", err);
    if (failed != 0) {
        return failed;
    }
    /* Another process may have created it between our look and our lock. */
    int64_t n_tables = 0;
    failed = store_ask(store, "SELECT count(*) FROM sqlite_master", &n_tables, err);
    if (failed == 0 && n_tables == 0) {
        failed = run_made(store, schema_create(), "create", err);
        if (failed == 0) {
            failed = create_names(store, err);
        }
        if (failed == 0) {
            failed = store_run_sql(store, marks, "create", err);
        }
    }
    return failed != 0 ? failed : store_run_sql(store, "COMMIT", "create", err);
}

/* Another process may have done it between our look and our lock. */
static int migrate(struct store *store, struct err *err) {
    static const char doing[] = "record into";
    char mark[48];
    snprintf(mark, sizeof mark, "PRAGMA user_version=%d;", (int)schema_version());
    int64_t version = 0;
    if (store_run_sql(store, "BEGIN IMMEDIATE", doing, err) != 0) {
        return err_status(err);
    }
    int failed = store_ask(store, "PRAGMA user_version", &version, err);
    for (int64_t v = version; failed == 0 && v < schema_version(); v++) {
        failed = run_made(store, schema_change(v), doing, err);
    }
    failed = failed != 0 ? failed : store_run_sql(store, mark, doing, err);
    return failed != 0 ? failed : store_run_sql(store, "COMMIT", doing, err);
}

/* A trigger would change what is recorded; no unmask makes any. */
static int refuse_triggers(struct store *store, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed =
        store_prepare(store, "SELECT name FROM sqlite_master WHERE type='trigger'", &stmt, err);
    int rc = failed == 0 ? sqlite3_step(stmt) : SQLITE_DONE;
    if (rc == SQLITE_ROW) {
        failed = err_world(err, "cannot open '%s': it has a trigger, '%.80s', which no unmask made",
                           store->path, (const char *)sqlite3_column_text(stmt, 0));
    } else if (failed == 0 && rc != SQLITE_DONE) {
        failed = store_fail(store, rc, "open", err);
    }
    sqlite3_finalize(stmt);
    return failed;
}

/* The first thing that SQLite finds wrong, or "ok". */
static int ask_structure(struct store *store, char *out, size_t size, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(store, "PRAGMA integrity_check(1)", &stmt, err);
    int rc = failed == 0 ? sqlite3_step(stmt) : SQLITE_ROW;
    const unsigned char *text =
        rc == SQLITE_ROW && stmt != NULL ? sqlite3_column_text(stmt, 0) : NULL;
    snprintf(out, size, "%s", text != NULL ? (const char *)text : "");
    if (failed == 0 && rc != SQLITE_ROW) {
        failed = store_fail(store, rc, "open", err);
    }
    sqlite3_finalize(stmt);
    return failed;
}

static int check_structure(struct store *store, bool will_write, struct err *err) {
    char said[160];
    int64_t pages = 0, page_bytes = 0;
    int failed = store_ask(store, "PRAGMA page_count", &pages, err);
    failed = failed != 0 ? failed : store_ask(store, "PRAGMA page_size", &page_bytes, err);
    if (failed != 0 || pages * page_bytes > store_most_checked_bytes) {
        return failed;
    }
    failed = ask_structure(store, said, sizeof said, err);
    if (failed != 0 || strcmp(said, "ok") == 0) {
        return failed;
    }
    /* A first line of stars is SQLite's title of what follows. */
    char *line = said[0] == '*' && strchr(said, '\n') != NULL ? strchr(said, '\n') + 1 : said;
    line[strcspn(line, "\n")] = '\0';
    if (will_write) {
        return err_world(
            err,
            "cannot record into '%s': the database is damaged (%s); its sound runs can "
            "be read, record into another file",
            store->path, said);
    }
    fprintf(stderr, "unmask: the database %s is damaged (%s): only its sound runs can be read\n",
            store->path, line);
    store->is_damaged = true;
    return 0;
}

/* Whose database it is, as it stands at one moment: another program may be about to create it. */
static int ask_marks(struct store *store, int64_t *n_entries, int64_t *application,
                     int64_t *version, struct err *err) {
    int failed = store_run_sql(store, "BEGIN", "open", err);
    failed = failed != 0 ? failed
                         : store_ask(store, "SELECT count(*) FROM sqlite_master", n_entries, err);
    failed = failed != 0 ? failed : store_ask(store, "PRAGMA application_id", application, err);
    failed = failed != 0 ? failed : store_ask(store, "PRAGMA user_version", version, err);
    return failed != 0 ? failed : store_run_sql(store, "COMMIT", "open", err);
}

static int check_schema(struct store *store, enum store_mode mode, struct err *err) {
    int64_t application = 0, version = 0, n_entries = 0, n_ours = 0;
    int failed = ask_marks(store, &n_entries, &application, &version, err);
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
    if (version > schema_version()) {
        return err_world(err,
                         "cannot open '%s': a newer unmask wrote it (schema %lld, this one knows "
                         "%lld)",
                         store->path, (long long)version, (long long)schema_version());
    }
    if (version < 1) {
        return err_world(err, "cannot open '%s': the database is damaged (schema %lld)",
                         store->path, (long long)version);
    }
    failed =
        store_ask(store,
                  "SELECT count(*) FROM sqlite_master WHERE type='table' AND rootpage>0 AND name IN"
                  " ('runs','requests','members','steps','events','names')",
                  &n_ours, err);
    if (failed == 0 && n_ours != 6) {
        return err_world(err, "cannot open '%s': the database is damaged (%lld of 6 tables)",
                         store->path, (long long)n_ours);
    }
    failed = failed != 0 ? failed : refuse_triggers(store, err);
    failed = failed != 0 ? failed : check_structure(store, mode == STORE_WRITE, err);
    return failed != 0                  ? failed
           : mode == STORE_READ         ? run_made(store, schema_views(version), "open", err)
           : version < schema_version() ? migrate(store, err)
                                        : 0;
}

static int wait_for_lock(void *state, int n_tries) {
    struct store *store = state;
    bool is_stopped = stop_flag != NULL && *stop_flag;
    store->was_stopped = n_tries == 0 ? is_stopped : store->was_stopped;
    if (store->fails_at_once || (is_stopped && !store->was_stopped)) {
        return 0;
    }
    int notes = n_tries / (NOTE_AFTER_MS / WAIT_MS);
    if (n_tries % (NOTE_AFTER_MS / WAIT_MS) == 0 && notes > 0 && (notes & (notes - 1)) == 0) {
        fprintf(stderr, "unmask: waits until another program has unlocked %s%s\n", store->path,
                notes > STOPPED_AFTER ? ": is it stopped?" : "");
    }
    sqlite3_sleep(WAIT_MS);
    return 1;
}

void store_wait(struct store *store, bool waits) {
    store->fails_at_once = !waits;
}

/* A file may say anything: it defines no code that runs here. */
static int distrust(struct store *store, struct err *err) {
    static const struct {
        int option, value;
    } settings[] = {{SQLITE_DBCONFIG_DEFENSIVE, 1},
                    {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                    {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                    {SQLITE_DBCONFIG_ENABLE_VIEW, 0}};
    /* Before 3.35 the last would forbid views of our own, too. No query names one of a file: six
     * tables have the names. */
    const size_t n = sqlite3_libversion_number() < 3035000 ? 3 : 4;
    for (size_t i = 0; i < n; i++) {
        int rc = sqlite3_db_config(store->db, settings[i].option, settings[i].value, NULL);
        if (rc != SQLITE_OK) {
            return store_fail(store, rc, "open", err);
        }
    }
    return 0;
}

/* Names that SQLite takes for something else than a file, and what is no file. */
static int check_path(const char *path, enum store_mode mode, struct err *err) {
    struct stat status;
    if (path[0] == '\0') {
        return err_usage(err, "a results database needs the name of a file");
    }
    if (strcmp(path, ":memory:") == 0 || name_behind(path, "file:") != NULL) {
        return err_usage(err, "'%s': a results database is a file (for one of this name: './%s')",
                         path, path);
    }
    bool exists = stat(path, &status) == 0;
    if (!exists && (mode == STORE_READ || errno != ENOENT)) {
        return err_world(err, "cannot open '%s': %s", path, strerror(errno));
    }
    if (!exists) { /* SQLite tries again to read it, and says that there is none */
        const char *slash = strrchr(path, '/');
        char folder[4096];
        snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash + 1 - path) : 1,
                 slash != NULL ? path : ".");
        if (access(folder, W_OK | X_OK) != 0) {
            return err_world(err, "cannot open '%s': %s", path, strerror(errno));
        }
    }
    if (exists && !S_ISREG(status.st_mode)) {
        return err_world(err, "cannot open '%s': it is not a regular file", path);
    }
    return 0;
}

/* A store is used by one thread at a time, and needs no mutexes. Readers, too, may write, where
 * they are allowed to: what a killed program left half done has to be undone before anybody can
 * read. */
static int open_database(struct store *store, enum store_mode mode, struct err *err) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
                (mode == STORE_WRITE ? SQLITE_OPEN_CREATE : 0);
    errno = 0;
    char *name = store_name(store->path, mode == STORE_WRITE);
    int rc = sqlite3_open_v2(name, &store->db, flags, NULL);
    free(name);
    if (rc != SQLITE_OK) {
        return store_fail(store, rc, "open", err);
    }
    if (mode == STORE_WRITE && sqlite3_db_readonly(store->db, "main") == 1) {
        return store_fail(store, SQLITE_READONLY, "record into", err);
    }
    sqlite3_busy_handler(store->db, wait_for_lock, store);
    int failed = distrust(store, err);
    failed = failed != 0 ? failed : check_schema(store, mode, err);
    const char *mode_sql = mode == STORE_WRITE ? "PRAGMA journal_mode=DELETE;"
                                                 "PRAGMA synchronous=FULL;"
                                                 "PRAGMA cache_size=-65536"
                                               : "PRAGMA query_only=1";
    return failed != 0 ? failed : store_run_sql(store, mode_sql, "open", err);
}

int store_open(const char *path, enum store_mode mode, struct store **out, struct err *err) {
    int failed = check_path(path, mode, err);
    if (failed != 0) {
        return failed;
    }
    struct store *store = mem_zeroed(1, sizeof *store);
    store->path = mem_text(path);
    failed = open_database(store, mode, err);
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
    sqlite3_finalize(store->put_request);
    sqlite3_finalize(store->put_members);
    sqlite3_finalize(store->put_step);
    sqlite3_finalize(store->put_event);
    sqlite3_finalize(store->put_swap);
    sqlite3_finalize(store->drop_arrival);
    for (uint32_t i = 0; i < store->n_last; i++) {
        free(store->last[i].batch.data);
    }
    free(store->last);
    free(store->scratch.data);
    free(store->bits.data);
    sqlite3_close(store->db); /* which rolls an open run back */
    free(store->path);
    free(store);
}

const char *store_path(const struct store *store) {
    return store->path;
}

/* Statements of the store, and what SQLite says of them as a sentence. */

int store_fail(struct store *store, int rc, const char *doing, struct err *err) {
    /* SQLite forgets the system's reason when an automatic rollback follows; errno still has it. */
    int os_errno = sqlite3_system_errno(store->db);
    os_errno = os_errno != 0 ? os_errno : errno;
    int has_moved = 0;
    if (store->db != NULL) {
        (void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
    }
    store->was_locked = (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED;
    if (has_moved && !store->was_locked && (rc & 0xff) != SQLITE_FULL) {
        return err_world(err, "cannot %s '%s': the file was moved, replaced or removed meanwhile",
                         doing, store->path);
    }
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
        if (sqlite3_extended_errcode(store->db) == SQLITE_READONLY_ROLLBACK) {
            return err_world(err,
                             "cannot %s '%s': a program was killed while it recorded, and undoing "
                             "what it left takes the right to write the file",
                             doing, store->path);
        }
        return access(store->path, W_OK) == 0
                   ? err_world(err, "cannot %s '%s': no journal can be made in its folder", doing,
                               store->path)
                   : err_world(err, "cannot %s '%s': the file is read-only", doing, store->path);
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

int store_run_sql(struct store *store, const char *sql, const char *doing, struct err *err) {
    errno = 0;
    int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_fail(store, rc, doing, err);
}

int store_ask(struct store *store, const char *sql, int64_t *out, struct err *err) {
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

/* The one name by which a database is opened, whatever it is called by. */

/* Of the names in a folder that are links to one file, the first in order; `*n` is how many. */
static void find_first(const char *folder, const struct stat *file, char *name, size_t size,
                       nlink_t *n) {
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    *n = 0;
    while (listing != NULL && (entry = readdir(listing)) != NULL) {
        struct stat facts;
        if (entry->d_ino == file->st_ino &&
            fstatat(dirfd(listing), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
            facts.st_dev == file->st_dev && facts.st_ino == file->st_ino) {
            if (*n == 0 || strcmp(entry->d_name, name) < 0) {
                snprintf(name, size, "%s", entry->d_name);
            }
            ++*n;
        }
    }
    if (listing != NULL) {
        closedir(listing);
    }
}

/* SQLite names the journal after the file's name: whoever opens a file by another hard link of it
 * does not find what a killed program left half done, and must not. */
char *store_name(const char *path, bool will_write) {
    char name[NAME_MAX + 1];
    struct stat file;
    nlink_t n;
    char *real = realpath(path, NULL); /* NULL: it does not exist, or SQLite says why not */
    if (real == NULL || stat(real, &file) != 0 || file.st_nlink < 2) {
        char *same = mem_text(real != NULL ? real : path);
        free(real);
        return same;
    }
    char *slash = strrchr(real, '/');
    char *folder = mem_text(real);
    folder[slash - real + 1] = '\0';
    find_first(folder, &file, name, sizeof name, &n);
    if (n < file.st_nlink && will_write) {
        fprintf(stderr,
                "unmask: %s has another name in another folder: record by one of them alone, since "
                "a program that is killed leaves its journal under the name that it used\n",
                path);
    }
    char *first = mem_resized(NULL, strlen(folder) + sizeof name, 1);
    sprintf(first, "%s%s", folder, n > 0 ? name : slash + 1);
    free(folder);
    free(real);
    return first;
}
