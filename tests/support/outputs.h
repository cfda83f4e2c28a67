/* Looking into what the program wrote. */
#ifndef UNMASK_TESTS_SUPPORT_OUTPUTS_H
#define UNMASK_TESTS_SUPPORT_OUTPUTS_H

#include <check.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>

/* JSON, whose text is freed. */
static inline json_t *json_parsed(char *text) {
    json_error_t trouble;
    json_t *json = json_loads(text, 0, &trouble);
    ck_assert_msg(json != NULL, "%s in %s", trouble.text, text);
    free(text);
    return json;
}

/* The first integer of a query over a database; -1 where it has none. */
static inline int64_t sql_integer(const char *db, const char *sql) {
    sqlite3 *sqlite = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t n = -1;
    ck_assert_int_eq(sqlite3_open_v2(db, &sqlite, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(sqlite, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        n = sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    sqlite3_close(sqlite);
    return n;
}

#endif
