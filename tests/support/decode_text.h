/* Decode traces as text, for tests to write and compare:
 *
 *   # unmask decode trace
 *   # block_tokens: 4
 *   # source: and other lines of what stands about it
 *   request,committed,processed,kept,reach,passes
 *   0,3,4,4,4,1
 *
 * with ",answer" behind it where texts end. */
#ifndef UNMASK_TESTS_SUPPORT_DECODE_TEXT_H
#define UNMASK_TESTS_SUPPORT_DECODE_TEXT_H

#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/database.h"
#include "traces/decode_trace.h"

#define DECODE_HEAD   "# unmask decode trace\n# block_tokens: 4\n"
#define DECODE_HEADER "request,committed,processed,kept,reach,passes\n"

/* The file of a text, its rows as they are, right or wrong. */
static inline void decode_write(const char *path, const char *text) {
    sqlite3 *db;
    char sql[512];
    remove(path);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = 1",
             DECODE_TRACE_ID);
    database_run(db, sql);
    database_run(db, "BEGIN; CREATE TABLE about(key, value);"
                     "CREATE TABLE request(id, prompt_tokens, output_tokens, answer_tokens);"
                     "CREATE TABLE pass(request, passes, committed, processed, kept, reach, start,"
                     " length, masked, run, keep, chosen, seen, token, confidence, margin, entropy,"
                     " importance_before, importance_after)");
    char last[32] = "";
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        char cell[7][32] = {""}, key[64] = "", value[256] = "";
        if (sscanf(line, "# %63[^:\n]: %255[^\n]", key, value) == 2) {
            snprintf(sql, sizeof sql, "INSERT INTO about VALUES('%s', '%s')", key, value);
            database_run(db, sql);
        }
        int n =
            sscanf(line, "%31[^,\n],%31[^,\n],%31[^,\n],%31[^,\n],%31[^,\n],%31[^,\n],%31[^,\n]",
                   cell[0], cell[1], cell[2], cell[3], cell[4], cell[5], cell[6]);
        if (n < 6 || cell[0][0] == '#' || strcmp(cell[0], "request") == 0) {
            continue;
        }
        if (strcmp(last, cell[0]) != 0) {
            snprintf(sql, sizeof sql, "INSERT INTO request VALUES(%s, NULL, NULL, %s)", cell[0],
                     n == 7 ? cell[6] : "NULL");
            database_run(db, sql);
            snprintf(last, sizeof last, "%s", cell[0]);
        }
        snprintf(sql, sizeof sql,
                 "INSERT INTO pass(request, committed, processed, kept, reach, passes)"
                 " VALUES(%s, %s, %s, %s, %s, %s)",
                 cell[0], cell[1], cell[2], cell[3], cell[4], cell[5]);
        database_run(db, sql);
    }
    database_run(db, "COMMIT");
    sqlite3_close(db);
}

/* Rows of a query, a line each. */
static inline void decode_ask(sqlite3 *db, const char *sql, const char *before, const char *between,
                              FILE *out) {
    sqlite3_stmt *rows;
    ck_assert_msg(sqlite3_prepare_v2(db, sql, -1, &rows, NULL) == SQLITE_OK, "%s",
                  sqlite3_errmsg(db));
    while (sqlite3_step(rows) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(rows); i++) {
            fprintf(out, "%s%s", i == 0 ? before : between, sqlite3_column_text(rows, i));
        }
        fputc('\n', out);
    }
    sqlite3_finalize(rows);
}

/* The text of a file, malloc'd; passes whose positions are known are counted as others are. */
static inline char *decode_text(const char *path) {
    sqlite3 *db;
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_stmt *row;
    ck_assert_msg(sqlite3_prepare_v2(db, "SELECT max(answer_tokens) FROM request", -1, &row,
                                     NULL) == SQLITE_OK,
                  "%s: %s", path, sqlite3_errmsg(db));
    ck_assert_int_eq(sqlite3_step(row), SQLITE_ROW);
    bool ends = sqlite3_column_type(row, 0) != SQLITE_NULL;
    sqlite3_finalize(row);
    fprintf(out, "# unmask decode trace\n");
    decode_ask(db, "SELECT key, value FROM about ORDER BY rowid", "# ", ": ", out);
    fprintf(out, "request,committed,processed,kept,reach,passes%s\n", ends ? ",answer" : "");
    /* Rows of equal passes one behind the other are one: each begins a group where it differs. */
    static const char grouped[] =
        "WITH told AS (SELECT *, rowid AS at, committed || ',' || processed || ',' || kept || ',' "
        "|| reach AS what FROM pass), begun AS (SELECT *, what IS NOT lag(what) OVER (PARTITION BY "
        "request ORDER BY at) AS begins FROM told), numbered AS (SELECT *, sum(begins) OVER "
        "(PARTITION BY request ORDER BY at) AS part FROM begun) SELECT request || ',' || what || "
        "',' || sum(passes)%s FROM numbered GROUP BY request, part ORDER BY request, part";
    static const char answer[] =
        " || ',' || coalesce((SELECT answer_tokens FROM request WHERE id = numbered.request), "
        "(SELECT sum(passes * committed) FROM pass WHERE pass.request = numbered.request))";
    char sql[1024];
    snprintf(sql, sizeof sql, grouped, ends ? answer : "");
    decode_ask(db, sql, "", ",", out);
    sqlite3_close(db);
    fclose(out);
    char *copy = strdup(text);
    free(text);
    return copy;
}

#endif
