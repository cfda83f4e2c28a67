/* Comma-separated traces with a header. A field may stand in quotes, on one line. Columns may stand
 * in any order; unknown ones are ignored, but every row must have them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "traces/format/format.h"

struct fields {
    struct field_span at[MAX_COLUMNS];
    int n; /* may exceed MAX_COLUMNS; only the first are kept; -1: quotes are not closed */
};

static void split(const struct line *line, struct fields *fields) {
    fields->n = field_spans(line->text, line->length, true, fields->at, MAX_COLUMNS);
}

/* The only field of that name, or -1. */
static int find_column(const struct fields *fields, const char *name) {
    size_t length = strlen(name);
    int found = -1;
    for (int i = 0; i < fields->n; i++) {
        if (fields->at[i].length == length && memcmp(fields->at[i].text, name, length) == 0) {
            if (found >= 0) {
                return -1;
            }
            found = i;
        }
    }
    return found;
}

static bool csv_opens(const struct format *format, const struct line *first,
                      struct layout *layout) {
    struct fields fields;
    split(first, &fields);
    if (fields.n < 0 || fields.n > MAX_COLUMNS) {
        return false;
    }
    layout->n_columns = fields.n;
    for (int i = 0; i < N_NAMED_COLUMNS; i++) {
        const char *name = format->columns[i];
        layout->position[i] = name != NULL ? find_column(&fields, name) : -1;
        if (name != NULL && layout->position[i] < 0 && (i < COLUMN_TENANT || format->needs_all)) {
            return false;
        }
    }
    for (int i = 0; i < MAX_MUSTS; i++) {
        const char *name = format->musts[i].column;
        layout->must_position[i] = name != NULL ? find_column(&fields, name) : -1;
        if (name != NULL && layout->must_position[i] < 0) {
            return false;
        }
    }
    return true;
}

static int read_count(const struct format *format, const struct layout *layout,
                      const struct line *line, const struct fields *fields, enum column column,
                      uint32_t *out, struct err *err) {
    int i = layout->position[column];
    if (field_u32(fields->at[i].text, fields->at[i].length, out)) {
        return 0;
    }
    return field_bad(line, fields->at[i].text, fields->at[i].length, format->columns[column],
                     "a whole number below 2^32", err);
}

/* A session or a group is any text; an empty one is none, an empty time to think not said. */
static uint64_t read_name(const struct layout *layout, const struct fields *fields,
                          enum column column) {
    int at = layout->position[column];
    return at >= 0 && fields->at[at].length > 0
               ? format_session(fields->at[at].text, fields->at[at].length)
               : 0;
}

static int read_session(const struct format *format, const struct layout *layout,
                        const struct line *line, const struct fields *fields, struct trace_row *row,
                        struct err *err) {
    int think = layout->position[COLUMN_THINK];
    row->session = read_name(layout, fields, COLUMN_SESSION);
    row->prefix_group = read_name(layout, fields, COLUMN_GROUP);
    row->think_ns = -1;
    if (think < 0 || fields->at[think].length == 0 ||
        field_time_ns(fields->at[think].text, fields->at[think].length, format->think_unit_ns,
                      &row->think_ns)) {
        return 0;
    }
    return field_bad(line, fields->at[think].text, fields->at[think].length,
                     format->columns[COLUMN_THINK], "a time from 0 to 146 years", err);
}

static int csv_parse(const struct format *format, const struct layout *layout,
                     const struct line *line, struct trace_row *row, struct err *err) {
    struct fields fields;
    split(line, &fields);
    if (fields.n < 0) {
        return err_world(err, "%s:%" PRIu64 ": found a quote that is not closed", line->path,
                         line->number);
    }
    if (fields.n != layout->n_columns) {
        return err_world(err, "%s:%" PRIu64 ": found %d field%s%s, expected %d as in the header",
                         line->path, line->number, fields.n, fields.n == 1 ? "" : "s",
                         line->finished ? "" : " in an unfinished last line", layout->n_columns);
    }
    if (!line->finished) { /* its last number may have lost digits */
        return err_world(err, "%s:%" PRIu64 ": found an unfinished last line, expected a newline",
                         line->path, line->number);
    }
    for (int i = 0; i < MAX_MUSTS && format->musts[i].column != NULL; i++) {
        int at = layout->must_position[i];
        if (fields.at[at].length != strlen(format->musts[i].value) ||
            memcmp(fields.at[at].text, format->musts[i].value, fields.at[at].length) != 0) {
            return field_bad(line, fields.at[at].text, fields.at[at].length,
                             format->musts[i].column, format->musts[i].value, err);
        }
    }
    int at = layout->position[COLUMN_TIME];
    row->time_ns = 0;
    if (at >= 0 && format->unit_ns == 0 &&
        !field_date_ns(fields.at[at].text, fields.at[at].length, &row->time_ns)) {
        return field_bad(line, fields.at[at].text, fields.at[at].length,
                         format->columns[COLUMN_TIME],
                         "a date and time such as 2023-11-16 18:15:46.68", err);
    }
    if (at >= 0 && format->unit_ns != 0 &&
        !field_time_ns(fields.at[at].text, fields.at[at].length, format->unit_ns, &row->time_ns)) {
        return field_bad(line, fields.at[at].text, fields.at[at].length,
                         format->columns[COLUMN_TIME], "a time from 0 to 146 years", err);
    }
    uint32_t *const counts[N_COUNTS] = {
        [COLUMN_INPUT] = &row->input_tokens,   [COLUMN_OUTPUT] = &row->output_tokens,
        [COLUMN_TENANT] = &row->tenant,        [COLUMN_PREFIX] = &row->prefix_tokens,
        [COLUMN_ANSWER] = &row->answer_tokens,
    };
    int status = read_session(format, layout, line, &fields, row, err);
    for (int column = COLUMN_INPUT; status == 0 && column < N_COUNTS; column++) {
        *counts[column] = 0;
        if (layout->position[column] >= 0) {
            status =
                read_count(format, layout, line, &fields, (enum column)column, counts[column], err);
        }
    }
    if (status == 0) {
        status = format_check_parts(line, row, layout->position[COLUMN_ANSWER] >= 0, err);
    }
    return status != 0 ? status : format_check_tokens(format, line, row, err);
}

const struct family family_csv = {.has_header = true, .opens = csv_opens, .parse = csv_parse};
