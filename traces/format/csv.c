/* Comma-separated traces with a header. A field may stand in quotes, on one line. Columns may stand
 * in any order; every row must have as many fields as the header. */
#include <inttypes.h>
#include <string.h>

#include "traces/format/format.h"

bool csv_split(const struct line *line, struct record *record, int *n_fields) {
    record->line = line; /* the fields after the last are left as they are */
    record->object = NULL;
    *n_fields = field_spans(line->text, line->length, true, record->at, MAX_COLUMNS);
    return *n_fields >= 0 && *n_fields <= MAX_COLUMNS;
}

int csv_position(const struct layout *layout, const char *name) {
    size_t length = strlen(name);
    int found = -1;
    for (int i = 0; i < layout->n_columns; i++) {
        const struct field_span *field = &layout->names[i];
        if (field->length == length && memcmp(field->text, name, length) == 0) {
            if (found >= 0) {
                return -1;
            }
            found = i;
        }
    }
    return found;
}

static int csv_take_apart(const struct layout *layout, const struct line *line,
                          struct record *record, struct err *err) {
    int n;
    (void)csv_split(line, record, &n);
    if (n < 0) {
        return err_world(err, "%s:%" PRIu64 ": found a quote that is not closed", line->path,
                         line->number);
    }
    if (n != layout->n_columns) {
        return err_world(err, "%s:%" PRIu64 ": found %d field%s%s, expected %d as in the header",
                         line->path, line->number, n, n == 1 ? "" : "s",
                         line->finished ? "" : " in an unfinished last line", layout->n_columns);
    }
    if (!line->finished) { /* its last number may have lost digits */
        return err_world(err, "%s:%" PRIu64 ": found an unfinished last line, expected a newline",
                         line->path, line->number);
    }
    return 0;
}

static void csv_look_up(const struct record *record, const struct place *place, struct value *out) {
    out->kind = VALUE_NONE;
    if (place->position >= 0) {
        const struct field_span *field = &record->at[place->position];
        out->kind = field->length > 0 ? VALUE_TEXT : VALUE_NULL;
        out->text = field->text;
        out->length = field->length;
    }
}

const struct family family_csv = {
    .has_header = true, .take_apart = csv_take_apart, .look_up = csv_look_up};
