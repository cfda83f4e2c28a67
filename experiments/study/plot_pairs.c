#include "experiments/study/plot_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/field.h"
#include "experiments/study/figure.h"
#include "experiments/study/plot_query.h"
#include "sim/base/mem.h"

void plot_write_condition(FILE *out, const char *sql) {
    static const char of_words[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    while (*sql != '\0') {
        char name[FIELD_CHARS], column[FIELD_CHARS];
        size_t length = strspn(sql, of_words);
        const bool is_field =
            length > 0 && length < sizeof name && strchr("0123456789.", *sql) == NULL;
        if (is_field) {
            snprintf(name, sizeof name, "%.*s", (int)length, sql);
            fputs(strchr(name, '.') != NULL ? field_column(name, column) : name, out);
        } else if (length == 0 && strchr("'\"", *sql) != NULL) {
            const char *end = strchr(sql + 1, *sql);
            length = end != NULL ? (size_t)(end - sql) + 1 : strlen(sql);
        } else if (length == 0) {
            length = 1;
        }
        fprintf(out, "%.*s", is_field ? 0 : (int)length, sql);
        sql += length;
    }
}

/* The column of its key. Returns `column`. */
static const char *against_column(const struct plot_request *request, char column[FIELD_CHARS]) {
    return field_column(request->against.key, column);
}

/* As a text in SQL. */
static void write_text(FILE *out, const char *text, size_t length) {
    fputc('\'', out);
    for (size_t i = 0; i < length; i++) {
        fprintf(out, "%s%c", text[i] == '\'' ? "'" : "", text[i]);
    }
    fputc('\'', out);
}

/* Equality of what tells runs apart, but for the key of --against. */
static void write_equal(FILE *out, const struct plot_request *request,
                        const struct plot_list *list) {
    char key[FIELD_CHARS];
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->column[i], against_column(request, key)) != 0) {
            fprintf(out, " AND s.\"%s\" IS b.\"%s\"", list->column[i], list->column[i]);
        }
    }
}

/* Each run with what it has more than the one of its place and seed that --against names. */
static void write_pairs(FILE *out, const struct plot_request *request) {
    char key[FIELD_CHARS];
    fputs("SELECT s.*", out);
    for (size_t i = 0; i < request->y.n; i++) {
        fprintf(out, ", s.\"%s\" - b.\"%s\" AS difference_%zu", request->y.column[i],
                request->y.column[i], i);
    }
    fprintf(out,
            " FROM shown AS s JOIN shown AS b ON b.\"%s\" || '' = ", against_column(request, key));
    write_text(out, request->against.value, strlen(request->against.value));
    fputs(" AND s.seed IS b.seed AND s.tenant IS b.tenant AND s.priority IS b.priority", out);
    write_equal(out, request, &request->x);
    write_equal(out, request, &request->by);
    write_equal(out, request, &request->facets);
    fputs(" ORDER BY s.place", out);
}

/* Which of the values in the runs it names, as they have it. */
static int find_against(struct plot_request *request, struct tables *tables, struct err *err) {
    char query[4 * FIELD_CHARS], key[FIELD_CHARS];
    json_t *rows = NULL, *row;
    size_t i, at = 0;
    against_column(request, key);
    snprintf(query, sizeof query,
             "SELECT DISTINCT \"%s\" || '' AS text FROM shown WHERE \"%s\" IS NOT NULL ORDER BY 1",
             key, key);
    int status = tables_select(tables, query, "plot", &rows, err);
    const size_t n = json_array_size(rows);
    char(*values)[OVER_VALUE_CHARS] = mem_zeroed(n + 1, sizeof *values);
    json_array_foreach(rows, i, row) {
        snprintf(values[i], sizeof values[i], "%s",
                 json_string_value(json_object_get(row, "text")));
    }
    status = status != 0
                 ? status
                 : against_find(&request->against, values[0], sizeof values[0], n, &at, err);
    if (status == 0) {
        memcpy(request->against.value, values[at], sizeof values[at]);
    }
    free(values);
    json_decref(rows);
    return status;
}

int plot_pair(struct plot_request *request, struct tables *tables, struct err *err) {
    char query[2 * FIELD_CHARS + OVER_VALUE_CHARS], key[FIELD_CHARS];
    int status = find_against(request, tables, err);
    if (status == 0) {
        char *pairs = NULL;
        size_t size;
        FILE *out = mem_stream(&pairs, &size);
        write_pairs(out, request);
        mem_stream_close(out);
        status = tables_keep(tables, "paired", pairs, "plot", err);
        free(pairs);
    }
    if (status != 0) {
        return status;
    }
    snprintf(query, sizeof query,
             "SELECT 'yes' AS text FROM paired WHERE difference_0 IS NOT NULL GROUP BY 1 HAVING "
             "count(DISTINCT \"%s\") > 1",
             against_column(request, key));
    char *any = tables_text(tables, query);
    if (any[0] == '\0') {
        status = err_usage(err,
                           "--against: no run differs from one with %s = %s in that alone and has "
                           "its seed, so that no two can be compared",
                           request->against.key, request->against.value);
    }
    free(any);
    return status;
}

/* ---- what lines are called ---- */

/* The line that LINE=NAME or LINE names: a line may have = in its own name, as cache.retention=0.5
 * does, so that the longest that there is counts. Returns its length; 0: there is none. */
static size_t line_named(const char *text, struct tables *tables) {
    for (size_t length = strlen(text); length > 0; length--) {
        char *query = NULL;
        size_t size;
        if (text[length] != '\0' && text[length] != '=') {
            continue;
        }
        FILE *out = mem_stream(&query, &size);
        fputs("SELECT 'yes' AS text FROM points WHERE series = ", out);
        write_text(out, text, length);
        fputs(" LIMIT 1", out);
        mem_stream_close(out);
        char *found = tables_text(tables, query);
        const bool is_there = found[0] != '\0';
        free(found);
        free(query);
        if (is_there) {
            return length;
        }
    }
    return 0;
}

int plot_check_names(const struct plot_request *request, struct tables *tables, struct err *err) {
    for (size_t i = 0; i < request->n_names; i++) {
        if (line_named(request->names[i], tables) == 0) {
            char *all = tables_text(
                tables,
                "SELECT group_concat(series, '; ') AS text FROM (SELECT DISTINCT series FROM "
                "points)");
            err_usage(err, "--name: '%s' begins with no line's name; there is %.600s",
                      request->names[i], all);
            free(all);
            return (int)err->kind;
        }
    }
    return 0;
}

void plot_write_names(FILE *out, const struct plot_request *request, struct tables *tables,
                      bool is_order) {
    fputs("CASE", out);
    for (size_t i = 0; i < request->n_names; i++) {
        const char *text = request->names[i];
        const size_t length = line_named(text, tables);
        const char *name = text[length] == '=' ? text + length + 1 : text;
        for (int k = 0; k < (request->with_bounds ? 2 : 1); k++) { /* the line, its bound's */
            const char *behind = k > 0 ? " || ': " PLOT_BOUND "'" : "";
            fputs(" WHEN series = ", out);
            write_text(out, text, length);
            fprintf(out, "%s THEN ", behind);
            if (is_order) {
                fprintf(out, "%zu", i);
            } else {
                write_text(out, name, strlen(name));
                fputs(behind, out);
            }
        }
    }
    fprintf(out, "%s ELSE %s END", request->n_names == 0 ? " WHEN 0 THEN 0" : "",
            is_order                                     ? "999"
            : request->with_bounds && request->by.n == 0 ? "coalesce(nullif(series, ''), 'runs')"
                                                         : "series");
}
