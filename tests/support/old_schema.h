/* Databases as older programs wrote them, for SQLite of any age (DROP COLUMN is of 3.35). */
#ifndef UNMASK_TESTS_SUPPORT_OLD_SCHEMA_H
#define UNMASK_TESTS_SUPPORT_OLD_SCHEMA_H

#include <ctype.h>
#include <sqlite3.h>
#include <string.h>

#include "tests/support/database.h"
#include "tests/support/suite.h"

/* The first row's first column, for sqlite3_free. */
static inline char *old_text(sqlite3 *db, const char *query) {
    sqlite3_stmt *stmt = NULL;
    ck_assert_int_eq(sqlite3_prepare_v2(db, query, -1, &stmt, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
    char *text = sqlite3_mprintf("%s", sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    return text;
}

/* Takes ", name TYPE" out of what created a table. */
static inline void old_forget(char *sql, const char *name) {
    size_t n = strlen(name);
    for (char *at = strstr(sql, name); at != NULL; at = strstr(at + n, name)) {
        char before = at[-1], behind = at[n];
        if (behind == ' ' && (before == ' ' || before == ',')) {
            char *end = at + strcspn(at, ",)"), *from = at;
            while (*from != ',') {
                from--;
            }
            memmove(from, end, strlen(end) + 1);
            return;
        }
    }
    ck_abort_msg("%s: no column %s", sql, name);
}

/* The table without columns ("a,b"), made anew with the rest of what is in it. */
static inline void old_drop(sqlite3 *db, const char *table, const char *columns) {
    char query[512], name[64];
    snprintf(query, sizeof query,
             "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = '%s'", table);
    char *create = old_text(db, query);
    for (const char *at = columns; *at != '\0'; at += at[0] == ',') {
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        old_forget(create, name);
        at += n;
    }
    snprintf(query, sizeof query,
             "SELECT group_concat('\"' || name || '\"') FROM pragma_table_info('%s') WHERE ',%s,' "
             "NOT LIKE '%%,' || name || ',%%'",
             table, columns);
    char *kept = old_text(db, query);
    char *copy = sqlite3_mprintf("CREATE TEMP TABLE kept AS SELECT %s FROM %s; DROP TABLE main.%s;",
                                 kept, table, table);
    char *back = sqlite3_mprintf("INSERT INTO %s(%s) SELECT %s FROM kept; DROP TABLE kept;", table,
                                 kept, kept);
    database_run(db, copy);
    database_run(db, create);
    database_run(db, back);
    sqlite3_free(back);
    sqlite3_free(copy);
    sqlite3_free(kept);
    sqlite3_free(create);
}

/* What schema 5 has that 4 lacked, and later ones. */
static inline void old_make_4(sqlite3 *db) {
    database_run(db, "DROP TABLE swaps");
    old_drop(db, "steps", "outcomes");
    old_drop(db, "requests",
             "prefix_tokens,shared_tokens,shared_with,session,follows,place,deadline_ns,"
             "priority,predicted_tokens,temperature_millionths,top_p_millionths,top_k,"
             "sampling_seed,revised_tokens");
    old_drop(db, "runs", "incomplete,rows_sha256,sha256");
    database_run(db, "PRAGMA user_version = 4");
}

/* What schema 1 had: no digests, and nothing of them in the summary. */
static inline void old_make_1(sqlite3 *db) {
    old_make_4(db);
    old_drop(db, "requests", "answer_tokens,committed_tokens,steps_after_end,tokens_after_end");
    old_drop(db, "steps", "positions");
    database_run(db, "DROP INDEX IF EXISTS runs_by_identity");
    old_drop(db, "runs", "identity");
    database_run(db, "UPDATE runs SET summary = json_remove(summary, '$.identity');"
                     "PRAGMA user_version = 1");
}

static inline void old_make(const char *path, void (*make)(sqlite3 *db)) {
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    make(db);
    sqlite3_close(db);
}

#endif
