/* Whether a database is what was recorded: its structure, and the checksums of its runs.
 *
 * A checksum is the SHA-256 over rows in the order of their keys. Of each row it takes, of every
 * column that is not NULL, the number of the column, the kind of the value and the value; not the
 * number of the run, so that a run keeps its checksum under another one, and nothing of columns
 * that a newer schema appends and leaves NULL. */
#include <string.h>

#include "analysis/store_impl.h"
#include "analysis/varint.h"

/* Checking takes about 2.2 ms a MiB: of larger files only what is read is checked. */
#define MOST_CHECKED_BYTES (INT64_C(256) << 20)

/* Text goes into the SHA-256 in pieces of this size. */
enum { DIGEST_BYTES = 1 << 14 };

struct digest {
    struct sha256 sha;
    size_t n;
    unsigned char bytes[DIGEST_BYTES];
};

/* ---- structure ---- */

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

int store_check_structure(struct store *store, bool will_write, struct err *err) {
    char said[160];
    int64_t pages = 0, page_bytes = 0;
    int failed = store_ask(store, "PRAGMA page_count", &pages, err);
    failed = failed != 0 ? failed : store_ask(store, "PRAGMA page_size", &page_bytes, err);
    if (failed != 0 || pages * page_bytes > MOST_CHECKED_BYTES) {
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

/* ---- checksums ---- */

static void flush(struct digest *digest) {
    sha256_add(&digest->sha, digest->bytes, digest->n);
    digest->n = 0;
}

static void add_number(struct digest *digest, uint64_t value) {
    if (digest->n + MAX_VARINT_BYTES > DIGEST_BYTES) {
        flush(digest);
    }
    digest->n += varint_put(digest->bytes + digest->n, value);
}

static void add_bytes(struct digest *digest, const void *bytes, size_t size) {
    add_number(digest, size);
    if (size > DIGEST_BYTES - digest->n) {
        flush(digest);
        sha256_add(&digest->sha, bytes, size);
    } else if (size > 0) {
        memcpy(digest->bytes + digest->n, bytes, size);
        digest->n += size;
    }
}

/* Small whole numbers of either sign take few bytes. */
static uint64_t folded(int64_t value) {
    return (uint64_t)value << 1 ^ (uint64_t)(value < 0 ? -1 : 0);
}

static void add_column(struct digest *digest, sqlite3_stmt *stmt, int column) {
    int kind = sqlite3_column_type(stmt, column);
    if (kind == SQLITE_NULL) {
        return;
    }
    add_number(digest, (uint64_t)column * 8 + (uint64_t)kind);
    if (kind == SQLITE_INTEGER) {
        add_number(digest, folded(sqlite3_column_int64(stmt, column)));
    } else { /* real numbers, which no unmask records, as their text */
        const void *bytes = kind == SQLITE_BLOB ? sqlite3_column_blob(stmt, column)
                                                : (const void *)sqlite3_column_text(stmt, column);
        add_bytes(digest, bytes, (size_t)sqlite3_column_bytes(stmt, column));
    }
}

/* All rows of a query over one run but the columns before `first`; `*n_rows` is how many. */
static int add_rows(struct store *store, struct digest *digest, const char *sql, int64_t run,
                    int first, int64_t *n_rows, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    int failed = store_prepare(store, sql, &stmt, err);
    if (failed != 0) {
        return failed;
    }
    sqlite3_bind_int64(stmt, 1, run);
    int n_columns = sqlite3_column_count(stmt), rc;
    for (*n_rows = 0; (rc = sqlite3_step(stmt)) == SQLITE_ROW; ++*n_rows) {
        for (int i = first; i < n_columns; i++) {
            add_column(digest, stmt, i);
        }
        add_number(digest, 0);
    }
    if (rc != SQLITE_DONE) {
        failed = store_fail(store, rc, "read", err);
    }
    sqlite3_finalize(stmt);
    return failed;
}

static void finish(struct digest *digest, char out[SHA256_HEX_CHARS]) {
    flush(digest);
    sha256_hex(&digest->sha, out);
}

int store_digest_row(struct store *store, int64_t run, char out[SHA256_HEX_CHARS],
                     struct err *err) {
    struct digest digest = {.n = 0};
    int64_t n_rows;
    sha256_init(&digest.sha);
    int failed = add_rows(store, &digest,
                          "SELECT system,model,gpu,profile,profile_kind,backend,trace,"
                          "trace_provenance,seed,config,summary,n_requests,n_steps,n_events,"
                          "identity,incomplete,rows_sha256 FROM runs WHERE run=?",
                          run, 0, &n_rows, err);
    finish(&digest, out);
    return failed;
}

int store_digest_rows(struct store *store, int64_t run, char out[SHA256_HEX_CHARS],
                      struct err *err) {
    static const char *const queries[] = {"SELECT * FROM requests WHERE run=? ORDER BY number",
                                          "SELECT * FROM members WHERE run=? ORDER BY number",
                                          "SELECT * FROM steps WHERE run=? ORDER BY idx",
                                          "SELECT * FROM events WHERE run=? ORDER BY number"};
    struct digest digest = {.n = 0};
    int failed = 0;
    sha256_init(&digest.sha);
    for (size_t i = 0; failed == 0 && i < sizeof queries / sizeof queries[0]; i++) {
        int64_t n_rows = 0;
        failed = add_rows(store, &digest, queries[i], run, 1, &n_rows, err);
        add_number(&digest, (uint64_t)n_rows);
    }
    finish(&digest, out);
    return failed;
}

static int take_checksum(void *state, const struct stored_run *run, struct err *err) {
    (void)err;
    snprintf(state, SHA256_HEX_CHARS, "%s", run->damage == NULL ? run->rows_sha256 : "");
    return 0;
}

int store_check_rows(struct store *store, int64_t run, struct err *err) {
    char then[SHA256_HEX_CHARS] = "", now[SHA256_HEX_CHARS];
    int failed = store_load_run(store, run, take_checksum, then, err);
    if (failed != 0) {
        return failed;
    }
    if (then[0] == '\0') {
        return store->is_damaged
                   ? err_world(err,
                               "run %lld of '%s' has no checksum, and the database is damaged: it "
                               "is not to be trusted",
                               (long long)run, store->path)
                   : 0;
    }
    failed = store_digest_rows(store, run, now, err);
    return failed != 0              ? failed
           : strcmp(then, now) == 0 ? 0
                                    : err_world(err,
                                                "run %lld of '%s' is damaged: its rows are not "
                                                "those that were recorded",
                                                (long long)run, store->path);
}
