/* The tables of columns: each fact once, and in everything that is made of them. */
#include <sqlite3.h>
#include <string.h>

#include "analysis/field.h"
#include "analysis/store/schema.h"
#include "analysis/summary_output.h"
#include "tests/support/suite.h"

static bool is_of_run(const struct column_group *group) {
    return group->owner == OF_RUN || group->owner == OF_RUN_REQUESTS ||
           group->owner == OF_RUN_RESULT;
}

static uint32_t count_named(const struct column_group *as, const char *name) {
    uint32_t n = 0;
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        bool counts = is_of_run(as) ? is_of_run(g) : g->owner == as->owner;
        for (const struct column *c = g->columns; counts && c->name != NULL; c++) {
            n += strcmp(c->name, name) == 0;
        }
    }
    return n;
}

TEST(a_name_is_declared_once_and_says_what_it_is_in_a_line) {
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        for (const struct column *c = g->columns; c->name != NULL; c++) {
            uint32_t n = g->owner == OF_PLOTS ? 1 : count_named(g, c->name);
            ck_assert_msg(n == 1, "%s is declared %u times", c->name, n);
            ck_assert_msg(c->unit != NULL && c->doc != NULL, "%s has no unit or doc", c->name);
            ck_assert_msg(c->doc[0] != '\0' && strlen(c->doc) <= 70, "%s: %s", c->name, c->doc);
            ck_assert_msg(!field_is(c) || field_find(c->name) != NULL, "%s is not found", c->name);
        }
    }
}

/* The place of a key in an object. */
static int place_of(json_t *object, const char *key) {
    int place = 0;
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        if (strcmp(json_object_iter_key(at), key) == 0) {
            return place;
        }
        place++;
    }
    return -1;
}

TEST(json_has_the_columns_of_a_run_in_their_order) {
    struct summary s;
    summary_init(&s, NULL);
    summary_finish(&s);
    const struct run_facts facts = run_facts_unknown();
    struct err err = {0};
    json_t *object;
    ck_assert_int_eq(summary_json(&s, &facts, &object, &err), 0);
    int last = -1;
    size_t n = 0;
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        for (const struct column *c = g->columns; is_of_run(g) && c->name != NULL; c++) {
            if (c->kind == COLUMN_ELSEWHERE || c->is_there != NULL) {
                continue;
            }
            char outer[64];
            const char *dot = strchr(c->name, '.');
            snprintf(outer, sizeof outer, "%.*s", (int)strcspn(c->name, "."), c->name);
            int place = place_of(object, outer);
            json_t *value = json_object_get(object, outer);
            value = dot != NULL ? json_object_get(value, dot + 1) : value;
            ck_assert_msg(value != NULL, "JSON lacks %s", c->name);
            ck_assert_msg(place == last + (dot == NULL || place != last), "%s is not at its place",
                          c->name);
            last = place;
            n++;
        }
    }
    ck_assert_uint_gt(n, 60);
    ck_assert_int_eq(last, (int)json_object_size(object) - 1);
    json_decref(object);
    summary_fini(&s);
}

TEST(a_record_keeps_what_is_put_into_a_column_and_no_other_changes) {
    struct request_record record = {0};
    int64_t n = 0, seen = 0;
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        if (c->since > 0) {
            column_set_whole(c, &record, 1000 + n++);
        }
    }
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        if (c->since > 0) {
            ck_assert_int_eq(column_whole(c, &record), 1000 + seen++);
        }
    }
    ck_assert_int_eq(n, seen);
}

static void run_sql(sqlite3 *db, char *sql) {
    char *complaint = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &complaint);
    ck_assert_msg(rc == SQLITE_OK, "%s: %s", sql, complaint);
    free(sql);
}

/* What changes of tables need, of a version, with a request in it. */
static sqlite3 *database_of(int64_t version) {
    char *sql;
    size_t size;
    sqlite3 *db = NULL;
    FILE *out = open_memstream(&sql, &size);
    fprintf(out, "CREATE TABLE runs(summary TEXT%s); CREATE TABLE steps(run INTEGER%s);",
            version > 1 ? ", identity TEXT" : "", version > 3 ? ", positions BLOB" : "");
    fprintf(out, "CREATE TABLE requests(run INTEGER");
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        if (c->since > 0 && c->since <= version) {
            fprintf(out, ", %s INTEGER", c->name);
        }
    }
    fprintf(out, "); INSERT INTO requests(run, output_tokens) VALUES(1, 64);");
    fclose(out);
    ck_assert_int_eq(sqlite3_open(":memory:", &db), SQLITE_OK);
    run_sql(db, sql);
    return db;
}

/* Its requests have what is kept and nothing else; a column that is younger is as it was before. */
static void check_requests(sqlite3 *db, int64_t version) {
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        char query[160];
        sqlite3_stmt *stmt = NULL;
        snprintf(query, sizeof query, "SELECT %s, %s FROM requests", c->name,
                 c->since > version && c->before[0] != '\0' ? c->before : "NULL");
        int rc = sqlite3_prepare_v2(db, query, -1, &stmt, NULL);
        ck_assert_msg((rc == SQLITE_OK) == (c->since > 0), "%s of schema %d", c->name,
                      (int)version);
        if (rc == SQLITE_OK && c->since > version) {
            ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
            ck_assert_int_eq(sqlite3_column_type(stmt, 0), sqlite3_column_type(stmt, 1));
            ck_assert_int_eq(sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));
        }
        sqlite3_finalize(stmt);
    }
}

TEST(a_new_database_an_older_one_and_a_changed_one_have_the_kept_columns) {
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(":memory:", &db), SQLITE_OK);
    run_sql(db, schema_create());
    check_requests(db, schema_version());
    sqlite3_close(db);
    for (int64_t version = 1; version < schema_version(); version++) {
        db = database_of(version);
        run_sql(db, schema_views(version));
        check_requests(db, version);
        sqlite3_close(db);
        db = database_of(version);
        for (int64_t v = version; v < schema_version(); v++) {
            run_sql(db, schema_change(v));
        }
        check_requests(db, version);
        sqlite3_close(db);
    }
}

SUITE("columns")
