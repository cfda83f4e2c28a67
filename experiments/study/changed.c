#include "experiments/study/changed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_numbers(struct table *table, double before, double now) {
    table_number(table, before, "%.5g");
    table_number(table, now, "%.5g");
    table_number(table, now / before, "%.3f");
}

/* Ours of the same row and reading; NaN where there is none. */
static double same_row(const struct finding_of_study *of, const struct paper_result *wanted) {
    for (size_t i = 0; i < of->n; i++) {
        if (of->rows[i].row == wanted->row && strcmp(of->rows[i].reading, wanted->reading) == 0) {
            return of->rows[i].ours;
        }
    }
    return (double)NAN;
}

static struct table *table_of_rows(const struct finding_of_study *before,
                                   const struct finding_of_study *now) {
    struct table *table =
        table_open("source|row|unit|ours unchanged|ours changed|changed/unchanged|printed");
    for (size_t i = 0; i < before->n; i++) {
        const struct paper_result *result = &before->rows[i];
        char label[256];
        table_text(table, result->row->source);
        table_text(table, paper_label(result, label, sizeof label));
        table_text(table, result->row->unit);
        add_numbers(table, result->ours, same_row(now, result));
        table_number(table, result->row->value, "%.5g");
    }
    return table;
}

static const json_t *at(const json_t *rows, size_t i, const char *key) {
    return json_object_get(json_array_get(rows, i), key);
}

static bool is_same_point(const json_t *a, size_t i, const json_t *b, size_t k) {
    static const char *const keys[] = {"panel", "series", "x"};
    for (size_t n = 0; n < sizeof keys / sizeof keys[0]; n++) {
        const json_t *x = at(a, i, keys[n]), *y = at(b, k, keys[n]);
        if (x != NULL && y != NULL && !json_equal(x, y)) {
            return false;
        }
    }
    return true;
}

/* The point of that panel, series and x; where there are as many of either, which may be called
 * after what was changed, the one in the same place. */
static size_t find_point(const json_t *before, size_t i, const json_t *now) {
    size_t n = json_array_size(now);
    for (size_t k = 0; k < n; k++) {
        if (is_same_point(before, i, now, k)) {
            return k;
        }
    }
    return json_array_size(before) == n ? i : n;
}

static double number(const json_t *value) {
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void add_word(struct table *table, const json_t *value) {
    char text[64];
    if (json_is_number(value)) {
        snprintf(text, sizeof text, "%.6g", json_number_value(value));
        table_text(table, text);
    } else {
        table_text(table, json_string_value(value));
    }
}

static struct table *table_of_points(const json_t *before, const json_t *now) {
    struct table *table =
        table_open("panel|series|x|ours unchanged|ours changed|changed/unchanged|printed");
    for (size_t i = 0; i < json_array_size(before); i++) {
        size_t k = find_point(before, i, now);
        add_word(table, at(before, i, "panel"));
        add_word(table, at(before, i, "series"));
        add_word(table, at(before, i, "x"));
        add_numbers(table, number(at(before, i, "y")), number(at(now, k, "y")));
        table_number(table, number(at(before, i, "paper")), "%.5g");
    }
    return table;
}

int changed_table(const struct finding_of_study *before, const struct finding_of_study *now,
                  struct table **out, struct err *err) {
    static const char query[] = "SELECT * FROM drawn ORDER BY rowid";
    json_t *then_drawn = NULL, *now_drawn = NULL;
    if (before->n > 0) {
        *out = table_of_rows(before, now);
        return 0;
    }
    int status = tables_select(before->tables, query, "drawn", &then_drawn, err);
    status = status != 0 ? status : tables_select(now->tables, query, "drawn", &now_drawn, err);
    *out = status == 0 ? table_of_points(then_drawn, now_drawn) : NULL;
    json_decref(then_drawn);
    json_decref(now_drawn);
    return status;
}
