/* Copies runs from one database to another. */
#include <string.h>

#include "analysis/store/store_impl.h"

static const char doing[] = "copy a run (rolled back, earlier runs are intact) into";

/* The rows of a run but for that of `runs`. */
static const struct {
    const char *name, *columns, *order;
} tables[] = {
    {"requests", "number" REQUEST_COLUMNS(COLUMN_NAME) ARRIVAL_COLUMNS(COLUMN_NAME), "number"},
    {"members", "number,batch", "number"},
    {"steps", "tokens,members,symbols,positions" STEP_COLUMNS(COLUMN_NAME), "idx"},
    {"events", "number" EVENT_COLUMNS(COLUMN_NAME), "number"},
};

/* Inserts every row of the query, under the number `run` and with the rest as it is. */
static int copy_rows(struct store *to, sqlite3_stmt *query, sqlite3_stmt *insert, int64_t run,
                     struct store *from, struct err *err) {
    int n = sqlite3_column_count(query), rc, failed = 0;
    while (failed == 0 && (rc = sqlite3_step(query)) == SQLITE_ROW) {
        sqlite3_bind_int64(insert, 1, run);
        for (int i = 0; i < n; i++) {
            sqlite3_bind_value(insert, i + 2, sqlite3_column_value(query, i));
        }
        int put = sqlite3_step(insert);
        failed = put == SQLITE_DONE ? 0 : store_fail(to, put, doing, err);
        sqlite3_reset(insert);
    }
    return failed != 0 ? failed : rc == SQLITE_DONE ? 0 : store_fail(from, rc, "read", err);
}

/* "?,?,...", for so many columns. */
static void write_marks(char *out, size_t size, int n) {
    size_t used = 0;
    for (int i = 0; i < n && used + 3 < size; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s?", i > 0 ? "," : "");
    }
}

/* One statement reads, the other writes the same columns and the run's number before them. */
static int copy_table(struct store *from, int64_t old, struct store *to, int64_t run,
                      const char *name, const char *columns, const char *order, struct err *err) {
    char sql[1024], marks[256];
    sqlite3_stmt *query = NULL, *insert = NULL;
    snprintf(sql, sizeof sql, "SELECT %s FROM %s WHERE run=? ORDER BY %s", columns, name, order);
    int failed = store_prepare(from, sql, &query, err);
    if (failed == 0) {
        sqlite3_bind_int64(query, 1, old);
        write_marks(marks, sizeof marks, sqlite3_column_count(query) + 1);
        snprintf(sql, sizeof sql, "INSERT INTO %s(run,%s) VALUES(%s)", name, columns, marks);
        failed = store_prepare(to, sql, &insert, err);
    }
    failed = failed != 0 ? failed : copy_rows(to, query, insert, run, from, err);
    sqlite3_finalize(query);
    sqlite3_finalize(insert);
    return failed;
}

/* Those columns of `runs` that the database has, all but the number: older ones lack some. */
static int list_columns(struct store *store, char *out, size_t size, struct err *err) {
    static const char *const known[] = {
        "system",  "model",    "gpu",      "profile", "profile_kind", "backend",
        "trace",   "seed",     "config",   "summary", "n_requests",   "trace_provenance",
        "n_steps", "n_events", "identity", "sha256",  "incomplete",   "rows_sha256",
    };
    sqlite3_stmt *query = NULL;
    size_t used = 0;
    int failed = store_prepare(store, "SELECT * FROM runs", &query, err);
    out[0] = '\0';
    for (size_t k = 0; failed == 0 && k < sizeof known / sizeof known[0]; k++) {
        for (int i = 0; i < sqlite3_column_count(query); i++) {
            if (strcmp(sqlite3_column_name(query, i), known[k]) == 0) {
                used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? "," : "",
                                         known[k]);
            }
        }
    }
    sqlite3_finalize(query);
    return failed;
}

static int copy_open(struct store *from, int64_t old, struct store *to, int64_t run,
                     struct err *err) {
    char columns[512];
    int failed = list_columns(from, columns, sizeof columns, err);
    failed = failed != 0 ? failed : copy_table(from, old, to, run, "runs", columns, "run", err);
    for (size_t i = 0; failed == 0 && i < sizeof tables / sizeof tables[0]; i++) {
        failed =
            copy_table(from, old, to, run, tables[i].name, tables[i].columns, tables[i].order, err);
    }
    return failed;
}

int store_copy_run(struct store *from, int64_t old, struct store *to, int64_t *run,
                   struct err *err) {
    ASSERT(to->open.run == 0);
    int failed = store_run_sql(to, "BEGIN IMMEDIATE", doing, err);
    if (failed != 0) {
        return failed;
    }
    failed = store_ask(to, "SELECT 1 + coalesce(max(run), 0) FROM runs", run, err);
    failed = failed != 0 ? failed : copy_open(from, old, to, *run, err);
    failed = failed != 0 ? failed : store_run_sql(to, "COMMIT", doing, err);
    if (failed != 0 && sqlite3_get_autocommit(to->db) == 0) {
        sqlite3_exec(to->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return failed;
}

int store_has_run(struct store *store, const struct stored_run *run, bool *out, struct err *err) {
    sqlite3_stmt *query = NULL;
    bool is_whole = run->incomplete == NULL && run->identity[0] != '\0';
    int failed = store_prepare(store,
                               is_whole ? "SELECT 1 FROM runs WHERE identity=? AND incomplete"
                                          " IS NULL AND summary NOT NULL"
                                        : "SELECT 1 FROM runs WHERE sha256=?",
                               &query, err);
    if (failed != 0) {
        return failed;
    }
    sqlite3_bind_text(query, 1, is_whole ? run->identity : run->sha256, -1, SQLITE_STATIC);
    int rc = sqlite3_step(query);
    *out = rc == SQLITE_ROW;
    sqlite3_finalize(query);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_fail(store, rc, "read", err);
}
