/* Checksums of runs.
 *
 * A checksum is the SHA-256 over rows in the order of their keys. Of each row it takes, of every
 * column that is not NULL, the number of the column, the kind of the value and the value; not the
 * number of the run, so that a run keeps its checksum under another one, and nothing of columns
 * that a newer schema appends and leaves NULL, or of a table that it adds and leaves empty. */
#include <string.h>

#include "analysis/store/store_impl.h"
#include "analysis/store/varint.h"

/* Text goes into the SHA-256 in pieces of this size. */
enum { DIGEST_BYTES = 1 << 14 };

struct digest {
    struct sha256 sha;
    size_t n;
    unsigned char bytes[DIGEST_BYTES];
};

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
    sha256_begin(&digest.sha);
    int failed = add_rows(store, &digest,
                          "SELECT system,model,gpu,profile,profile_kind,backend,trace,"
                          "trace_provenance,seed,config,summary,n_requests,n_steps,n_events,"
                          "identity,incomplete,rows_sha256 FROM runs WHERE run=?",
                          run, 0, &n_rows, err);
    finish(&digest, out);
    return failed;
}

int store_digest_head(struct store *store, int64_t run, int64_t n_requests, int64_t n_steps,
                      char out[SHA256_HEX_CHARS], struct err *err) {
    struct digest digest = {.n = 0};
    char sql[192];
    int64_t n_rows;
    if (n_requests > 0) {
        snprintf(sql, sizeof sql,
                 "SELECT id,arrival_ns,admitted_ns,first_block_ns,finished_ns FROM requests WHERE "
                 "run=? AND number>=0 AND number<%lld ORDER BY number",
                 (long long)n_requests);
    } else {
        snprintf(sql, sizeof sql,
                 "SELECT idx,start_ns,end_ns,gpu_ns FROM steps WHERE run=? ORDER BY idx LIMIT %lld",
                 (long long)n_steps);
    }
    sha256_begin(&digest.sha);
    int failed = add_rows(store, &digest, sql, run, 0, &n_rows, err);
    finish(&digest, out);
    return failed;
}

int store_digest_rows(struct store *store, int64_t run, char out[SHA256_HEX_CHARS],
                      struct err *err) {
    static const char *const queries[] = {"SELECT * FROM requests WHERE run=? ORDER BY number",
                                          "SELECT * FROM members WHERE run=? ORDER BY number",
                                          "SELECT * FROM steps WHERE run=? ORDER BY idx",
                                          "SELECT * FROM events WHERE run=? ORDER BY number",
                                          "SELECT * FROM swaps WHERE run=? ORDER BY idx"};
    enum { ALWAYS_THERE = 4 };
    struct digest digest = {.n = 0};
    int failed = 0;
    sha256_begin(&digest.sha);
    for (size_t i = 0; failed == 0 && i < sizeof queries / sizeof queries[0]; i++) {
        int64_t n_rows = 0;
        failed = add_rows(store, &digest, queries[i], run, 1, &n_rows, err);
        if (i < ALWAYS_THERE || n_rows > 0) {
            add_number(&digest, (uint64_t)n_rows);
        }
    }
    finish(&digest, out);
    return failed;
}
