#include "experiments/study/tables.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/field.h"
#include "analysis/spread.h"
#include "analysis/summary.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"

enum { MOST_COLUMNS = 40 /* that are printed */ };

struct tables {
    sqlite3 *db;
    struct err failed; /* the first of our own queries that did */
};

/* ---- functions ---- */

/* The values of an aggregate; of shares also of how many they are, where that is told. */
struct gathered {
    struct series values;
    double n_of;
};

static bool is_number(sqlite3_value *value) {
    int type = sqlite3_value_numeric_type(value);
    return type == SQLITE_INTEGER || type == SQLITE_FLOAT;
}

static void gather(sqlite3_context *context, int n, sqlite3_value **values) {
    struct gathered *gathered = sqlite3_aggregate_context(context, sizeof *gathered);
    if (gathered == NULL) {
        sqlite3_result_error_nomem(context);
    } else if (is_number(values[0])) {
        series_push(&gathered->values, sqlite3_value_double(values[0]));
        gathered->n_of += n > 1 && is_number(values[1]) ? sqlite3_value_double(values[1]) : 0;
    }
}

static double median_of(double *values, size_t n, double n_of) {
    (void)n_of;
    gsl_sort(values, 1, n);
    return gsl_stats_median_from_sorted_data(values, 1, n);
}

static double mean_of(double *values, size_t n, double n_of) {
    (void)n_of;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += values[i];
    }
    return sum / (double)n;
}

/* Seeds that draw nothing give one value again and again, which is one run. */
static struct spread spread_over(const double *values, size_t n) {
    struct spread spread = spread_of(values, n);
    bool are_one = spread.low == spread.high;
    return are_one ? spread_of(values, 1) : spread;
}

static double half_of(double *values, size_t n, double n_of) {
    (void)n_of;
    struct spread spread = spread_over(values, n);
    return spread.high - spread.mean;
}

static double low_of(double *values, size_t n, double n_of) {
    (void)n_of;
    return spread_over(values, n).low;
}

static double high_of(double *values, size_t n, double n_of) {
    (void)n_of;
    return spread_over(values, n).high;
}

static double share_low_of(double *values, size_t n, double n_of) {
    return spread_of_shares(values, n, n_of).low;
}

static double share_high_of(double *values, size_t n, double n_of) {
    return spread_of_shares(values, n, n_of).high;
}

/* Of values that are differences of shares. */
static struct spread spread_of_pairs(const double *values, size_t n) {
    double *none = mem_zeroed(n, sizeof *none);
    struct spread spread = spread_of_share_differences(values, none, n);
    free(none);
    return spread.low == spread.high ? spread_of(values, 1) : spread;
}

static double pairs_low_of(double *values, size_t n, double n_of) {
    (void)n_of;
    return spread_of_pairs(values, n).low;
}

static double pairs_high_of(double *values, size_t n, double n_of) {
    (void)n_of;
    return spread_of_pairs(values, n).high;
}

static const struct aggregate {
    const char *name;
    int n_arguments;
    double (*of)(double *values, size_t n, double n_of);
} aggregates[] = {{"median", 1, median_of},
                  {"mean", 1, mean_of},
                  {"half", 1, half_of},
                  {"low", 1, low_of},
                  {"high", 1, high_of},
                  {"share_low", 2, share_low_of},
                  {"share_high", 2, share_high_of},
                  {"share_difference_low", 1, pairs_low_of},
                  {"share_difference_high", 1, pairs_high_of}};

/* A result that is NaN is NULL to SQLite. */
static void answer(sqlite3_context *context) {
    struct gathered *gathered = sqlite3_aggregate_context(context, 0);
    const struct aggregate *aggregate = sqlite3_user_data(context);
    if (gathered != NULL && gathered->values.n > 0) {
        sqlite3_result_double(
            context, aggregate->of(gathered->values.values, gathered->values.n, gathered->n_of));
    }
    if (gathered != NULL) {
        free(gathered->values.values);
    }
}

static void phi(sqlite3_context *context, int n, sqlite3_value **values) {
    (void)n;
    if (sqlite3_value_numeric_type(values[0]) != SQLITE_NULL) {
        sqlite3_result_double(context, gsl_cdf_ugaussian_Q(sqlite3_value_double(values[0])));
    }
}

static double degrees(double x) {
    return x * (180 / M_PI);
}

static double radians(double x) {
    return x * (M_PI / 180);
}

static double log_to(double base, double x) {
    return log(x) / log(base);
}

/* What SQLite has as an option at compile time; a value that is no number gives NULL. */
static const struct mathematical {
    const char *name;
    double (*of_one)(double x);
    double (*of_two)(double x, double y);
} mathematical[] = {{"acos", acos, NULL},       {"acosh", acosh, NULL},     {"asin", asin, NULL},
                    {"asinh", asinh, NULL},     {"atan", atan, NULL},       {"atanh", atanh, NULL},
                    {"ceil", ceil, NULL},       {"ceiling", ceil, NULL},    {"cos", cos, NULL},
                    {"cosh", cosh, NULL},       {"exp", exp, NULL},         {"floor", floor, NULL},
                    {"ln", log, NULL},          {"log", log10, NULL},       {"log10", log10, NULL},
                    {"log2", log2, NULL},       {"sin", sin, NULL},         {"sinh", sinh, NULL},
                    {"sqrt", sqrt, NULL},       {"tan", tan, NULL},         {"tanh", tanh, NULL},
                    {"trunc", trunc, NULL},     {"atan2", NULL, atan2},     {"mod", NULL, fmod},
                    {"degrees", degrees, NULL}, {"radians", radians, NULL}, {"log", NULL, log_to},
                    {"pow", NULL, pow},         {"power", NULL, pow}};

/* The roundings keep whole numbers whole, as SQLite's do; a logarithm of 0 is NULL. */
static void calculate(sqlite3_context *context, int n, sqlite3_value **values) {
    const struct mathematical *function = sqlite3_user_data(context);
    const double x = sqlite3_value_double(values[0]);
    bool rounds =
        function->of_one == ceil || function->of_one == floor || function->of_one == trunc;
    if (!is_number(values[0]) || (n > 1 && !is_number(values[1]))) {
        return;
    }
    if (rounds && sqlite3_value_numeric_type(values[0]) == SQLITE_INTEGER) {
        sqlite3_result_int64(context, sqlite3_value_int64(values[0]));
        return;
    }
    bool is_log = function->of_one == log || function->of_one == log10 || function->of_one == log2;
    if (!is_log || x > 0) {
        sqlite3_result_double(context, function->of_one != NULL
                                           ? function->of_one(x)
                                           : function->of_two(x, sqlite3_value_double(values[1])));
    }
}

static void add_functions(struct tables *tables) {
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
    int rc = sqlite3_create_function(tables->db, "phi", 1, flags, NULL, phi, NULL, NULL);
    for (size_t i = 0; i < sizeof aggregates / sizeof aggregates[0] && rc == SQLITE_OK; i++) {
        const struct aggregate *a = &aggregates[i];
        rc = sqlite3_create_function(tables->db, a->name, a->n_arguments, flags,
                                     (void *)(uintptr_t)a, NULL, gather, answer);
    }
    for (size_t i = 0; i < sizeof mathematical / sizeof mathematical[0] && rc == SQLITE_OK; i++) {
        const struct mathematical *m = &mathematical[i];
        rc = sqlite3_create_function(tables->db, m->name, m->of_two != NULL ? 2 : 1, flags,
                                     (void *)(uintptr_t)m, calculate, NULL, NULL);
    }
    ASSERT(rc == SQLITE_OK);
}

struct tables *tables_open(void) {
    struct tables *tables = mem_zeroed(1, sizeof *tables);
    if (sqlite3_open(":memory:", &tables->db) != SQLITE_OK) {
        mem_out(0); /* it has nothing else to fail for */
    }
    sqlite3_db_config(tables->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(tables->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(tables->db, SQLITE_DBCONFIG_DQS_DML, 0, NULL); /* a misspelt column is one */
    sqlite3_exec(tables->db, "SELECT * FROM json_each('[]'), json_tree('[]')", NULL, NULL, NULL);
    add_functions(tables);
    return tables;
}

void tables_close(struct tables *tables) {
    if (tables != NULL) {
        sqlite3_close(tables->db);
        free(tables);
    }
}

/* ---- filling ---- */

static void add_flat(json_t *flat, const char *prefix, json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char whole[FIELD_CHARS], name[FIELD_CHARS];
        snprintf(whole, sizeof whole, "%s%s%s", prefix, prefix[0] != '\0' ? "_" : "", key);
        field_column(whole, name);
        if (json_is_object(value)) {
            add_flat(flat, name, value);
        } else if (json_object_get(flat, name) == NULL) {
            json_object_set(flat, name, value);
        }
    }
}

static json_t *flat_rows(const json_t *rows) {
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *flat = json_object();
        add_flat(flat, "", json_array_get(rows, i));
        json_array_append_new(all, flat);
    }
    return all;
}

static void bind(sqlite3_stmt *stmt, int place, const json_t *value) {
    if (json_is_integer(value)) {
        sqlite3_bind_int64(stmt, place, json_integer_value(value));
    } else if (json_is_real(value)) {
        sqlite3_bind_double(stmt, place, json_real_value(value));
    } else if (json_is_boolean(value)) {
        sqlite3_bind_int(stmt, place, json_is_true(value));
    } else if (json_is_string(value)) {
        sqlite3_bind_text(stmt, place, json_string_value(value), -1, SQLITE_STATIC);
    } else if (json_is_array(value)) {
        sqlite3_bind_text(stmt, place, json_dumps(value, JSON_COMPACT), -1, free);
    } else {
        sqlite3_bind_null(stmt, place);
    }
}

static int insert(struct tables *tables, const char *name, const json_t *rows, json_t *columns,
                  struct err *err) {
    const char *key;
    json_t *unused;
    sqlite3_str *create = sqlite3_str_new(tables->db), *into = sqlite3_str_new(tables->db);
    sqlite3_str_appendf(create, "CREATE TABLE \"%w\" (", name);
    sqlite3_str_appendf(into, "INSERT INTO \"%w\" VALUES (", name);
    const char *comma = "";
    json_object_foreach(columns, key, unused) {
        sqlite3_str_appendf(create, "%s\"%w\"", comma, key);
        sqlite3_str_appendf(into, "%s?", comma);
        comma = ", ";
    }
    sqlite3_str_appendf(create, ")");
    sqlite3_str_appendf(into, ")");
    char *sql = sqlite3_str_finish(create);
    int rc = sqlite3_exec(tables->db, sql, NULL, NULL, NULL);
    sqlite3_free(sql);
    sql = sqlite3_str_finish(into);
    sqlite3_stmt *stmt = NULL;
    rc = rc == SQLITE_OK ? sqlite3_prepare_v2(tables->db, sql, -1, &stmt, NULL) : rc;
    sqlite3_free(sql);
    for (size_t i = 0; rc == SQLITE_OK && i < json_array_size(rows); i++) {
        int column = 1;
        json_object_foreach(columns, key, unused) {
            bind(stmt, column++, json_object_get(json_array_get(rows, i), key));
        }
        rc = sqlite3_step(stmt) == SQLITE_DONE ? sqlite3_reset(stmt) : SQLITE_ERROR;
    }
    int status = rc == SQLITE_OK
                     ? 0
                     : err_usage(err, "the table '%s': %s", name, sqlite3_errmsg(tables->db));
    sqlite3_finalize(stmt);
    return status;
}

int tables_add(struct tables *tables, const char *name, const json_t *rows, struct err *err) {
    json_t *flat = flat_rows(rows), *columns = json_object();
    for (size_t i = 0; i < json_array_size(flat); i++) {
        json_object_update_missing(columns, json_array_get(flat, i));
    }
    if (json_object_size(columns) == 0) {
        json_object_set_new(columns, "nothing", json_null());
    }
    int status = insert(tables, name, flat, columns, err);
    json_decref(flat);
    json_decref(columns);
    return status;
}

/* ---- asking ---- */

static int allow_reading(void *state, int action, const char *a, const char *b, const char *c,
                         const char *d) {
    (void)state, (void)a, (void)b, (void)c, (void)d;
    return action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_FUNCTION ||
                   action == SQLITE_RECURSIVE
               ? SQLITE_OK
               : SQLITE_DENY;
}

static json_t *value_at(sqlite3_stmt *stmt, int column) {
    json_t *value = NULL;
    switch (sqlite3_column_type(stmt, column)) {
    case SQLITE_INTEGER:
        value = json_integer(sqlite3_column_int64(stmt, column));
        break;
    case SQLITE_FLOAT:
        value = json_real(sqlite3_column_double(stmt, column));
        break;
    case SQLITE_TEXT:
        value = json_string((const char *)sqlite3_column_text(stmt, column));
        break;
    default:
        break;
    }
    return value != NULL ? value : json_null(); /* infinite, or not UTF-8 */
}

/* The one SELECT of a query, which reads tables and does nothing else. */
static int prepare(struct tables *tables, const char *query, const char *place, sqlite3_stmt **stmt,
                   struct err *err) {
    const char *rest = "";
    *stmt = NULL;
    sqlite3_set_authorizer(tables->db, allow_reading, NULL);
    int rc = sqlite3_prepare_v2(tables->db, query, -1, stmt, &rest);
    sqlite3_set_authorizer(tables->db, NULL, NULL);
    if (rc != SQLITE_OK) {
        return err_usage(err, "%s: %s", place, sqlite3_errmsg(tables->db));
    }
    if (*stmt == NULL || rest[strspn(rest, " \n")] != '\0') {
        sqlite3_finalize(*stmt);
        return err_usage(err, "%s: expected one SELECT", place);
    }
    return 0;
}

int tables_select(struct tables *tables, const char *query, const char *place, json_t **rows,
                  struct err *err) {
    sqlite3_stmt *stmt;
    *rows = NULL;
    if (prepare(tables, query, place, &stmt, err) != 0) {
        return (int)err->kind;
    }
    int rc;
    json_t *all = json_array();
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        json_t *row = json_object();
        for (int c = 0; c < sqlite3_column_count(stmt); c++) {
            json_object_set_new(row, sqlite3_column_name(stmt, c), value_at(stmt, c));
        }
        json_array_append_new(all, row);
    }
    if (rc != SQLITE_DONE) {
        err_usage(err, "%s: %s", place, sqlite3_errmsg(tables->db));
        json_decref(all);
    } else {
        *rows = all;
    }
    sqlite3_finalize(stmt);
    return (int)err->kind;
}

json_t *tables_own(struct tables *tables, const char *query) {
    json_t *rows = NULL;
    struct err err = {0};
    if (tables_select(tables, query, query, &rows, &err) != 0 && tables->failed.kind == ERR_NONE) {
        err_world(&tables->failed, "a query of unmask's own failed: %s", err.text);
    }
    return rows != NULL ? rows : json_array();
}

int tables_failed(const struct tables *tables, struct err *err) {
    if (tables->failed.kind != ERR_NONE) {
        *err = tables->failed;
    }
    return (int)tables->failed.kind;
}

bool tables_have(struct tables *tables, const char *table, const char *columns) {
    const char *word;
    size_t length;
    bool all = table != NULL;
    for (const char *rest = columns; all && name_next(&rest, ",", &word, &length);) {
        char column[FIELD_CHARS];
        snprintf(column, sizeof column, "%.*s", (int)length, word);
        all = sqlite3_table_column_metadata(tables->db, NULL, table, length > 0 ? column : NULL,
                                            NULL, NULL, NULL, NULL, NULL) == SQLITE_OK;
    }
    return all;
}

int tables_show(struct tables *tables, const char *query, struct table **out, struct err *err) {
    json_t *rows = NULL, *row, *value;
    size_t i, n = 0;
    const char *key;
    if (tables_select(tables, query, "what is printed", &rows, err) != 0) {
        return (int)err->kind;
    }
    *out = json_array_size(rows) > 0 ? table_open("") : NULL;
    json_object_foreach(json_array_get(rows, 0), key, value) {
        if (n++ < MOST_COLUMNS) {
            table_column(*out, key);
        }
    }
    json_array_foreach(rows, i, row) {
        size_t column = 0;
        json_object_foreach(row, key, value) {
            if (column++ == MOST_COLUMNS) {
                break;
            }
            if (json_is_number(value)) {
                table_number(*out, json_number_value(value), "%.6g");
            } else {
                table_text(*out, json_string_value(value));
            }
        }
    }
    json_decref(rows);
    return 0;
}

int tables_keep(struct tables *tables, const char *name, const char *query, const char *place,
                struct err *err) {
    sqlite3_stmt *stmt;
    if (prepare(tables, query, place, &stmt, err) != 0) {
        return (int)err->kind;
    }
    sqlite3_finalize(stmt);
    char *sql = mem_given(sqlite3_mprintf("CREATE TABLE \"%w\" AS %s", name, query));
    if (sqlite3_exec(tables->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        err_usage(err, "%s: %s", place, sqlite3_errmsg(tables->db));
    }
    sqlite3_free(sql);
    return (int)err->kind;
}

char *tables_text(struct tables *tables, const char *query) {
    json_t *rows = tables_own(tables, query);
    const char *text = json_string_value(json_object_get(json_array_get(rows, 0), "text"));
    char *copy = mem_text(text != NULL ? text : "");
    json_decref(rows);
    return copy;
}
