/* SQL that must run, on an open database and on a file's. */
#ifndef UNMASK_TESTS_SUPPORT_DATABASE_H
#define UNMASK_TESTS_SUPPORT_DATABASE_H

#include <check.h>
#include <sqlite3.h>

static inline void database_run(sqlite3 *db, const char *sql) {
    char *complaint = NULL;
    ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, &complaint) == SQLITE_OK, "%s: %s", sql,
                  complaint);
}

static inline void database_change(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    database_run(db, sql);
    sqlite3_close(db);
}

#endif
