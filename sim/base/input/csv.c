#include "sim/base/input/csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/text.h"
#include "sim/base/num.h"

int csv_open(struct csv *csv, const char *path, const char *role, struct err *err) {
    *csv = (struct csv){.line.path = path};
    size_t size;
    csv->bytes = text_read(path, role, CSV_MOST_BYTES, &size, err);
    csv->rest = csv->bytes;
    return csv->bytes != NULL ? 0 : err_status(err);
}

void csv_close(struct csv *csv) {
    free(csv->bytes);
    *csv = (struct csv){0};
}

int csv_line(struct csv *csv, bool *more, struct err *err) {
    struct line *line = &csv->line;
    const char *end = csv->rest + strcspn(csv->rest, "\n");
    *more = *csv->rest != '\0';
    if (!*more) {
        return 0;
    }
    line->number++;
    line->finished = *end == '\n';
    if (!line->finished && !csv->is_open_end) {
        return err_world(err, "%s:%" PRIu64 ": found an unfinished last line, expected a newline",
                         line->path, line->number);
    }
    line->text = csv->text = text_line(&csv->rest, &line->length);
    return 0;
}

int csv_cut(struct csv *csv, struct err *err) {
    int n = field_cut(csv->text, csv->is_quoted, csv->fields, CSV_MOST_FIELDS);
    return n >= 0 ? n
                  : (err_world(err, "%s:%" PRIu64 ": found a quote that is not closed",
                               csv->line.path, csv->line.number),
                     -1);
}

static int bad_header(const struct csv *csv, const char *what, const char *name, struct err *err) {
    return err_world(err, "%s:%" PRIu64 ": %s column '%.64s'", csv->line.path, csv->line.number,
                     what, name);
}

int csv_header(struct csv *csv, const char *const *names, uint64_t optional, bool is_closed,
               struct err *err) {
    bool is_known[CSV_MOST_FIELDS] = {false};
    csv->names = names;
    csv->n_fields = csv_cut(csv, err);
    if (csv->n_fields < 0) {
        return err_status(err);
    }
    if (csv->n_fields > CSV_MOST_FIELDS) {
        return err_world(err, "%s:%" PRIu64 ": more than %d columns", csv->line.path,
                         csv->line.number, CSV_MOST_FIELDS);
    }
    for (int column = 0; names[column] != NULL; column++) {
        csv->position[column] = -1;
        for (int i = 0; i < csv->n_fields; i++) {
            if (strcmp(csv->fields[i], names[column]) != 0) {
                continue;
            }
            if (csv->position[column] >= 0) {
                return bad_header(csv, "more than one", names[column], err);
            }
            csv->position[column] = i;
            is_known[i] = true;
        }
        if (csv->position[column] < 0 && (optional >> column & 1) == 0) {
            return bad_header(csv, "no", names[column], err);
        }
    }
    for (int i = 0; is_closed && i < csv->n_fields; i++) {
        if (!is_known[i]) {
            return bad_header(csv, "unknown", csv->fields[i], err);
        }
    }
    return 0;
}

int csv_first(struct csv *csv, const char *const *names, uint64_t optional, bool is_closed,
              struct err *err) {
    bool more;
    int status = csv_line(csv, &more, err);
    if (status == 0 && !more) {
        return err_world(err, "%s:1: found an empty file, expected a header", csv->line.path);
    }
    return status != 0 ? status : csv_header(csv, names, optional, is_closed, err);
}

int csv_row(struct csv *csv, struct err *err) {
    int n = csv_cut(csv, err);
    if (n < 0) {
        return err_status(err);
    }
    return n == csv->n_fields
               ? 0
               : err_world(err, "%s:%" PRIu64 ": found %d field%s, expected %d as in the header",
                           csv->line.path, csv->line.number, n, n == 1 ? "" : "s", csv->n_fields);
}

const char *csv_field(const struct csv *csv, int column) {
    return csv->position[column] >= 0 ? csv->fields[csv->position[column]] : "";
}

int csv_whole(const struct csv *csv, int column, int64_t least, int64_t most, int64_t *out,
              struct err *err) {
    uint64_t value;
    if (num_u64(csv_field(csv, column), (uint64_t)most, &value) && (int64_t)value >= least) {
        *out = (int64_t)value;
        return 0;
    }
    char expected[80];
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, least, most);
    return csv_bad(csv, column, expected, err);
}

int csv_number(const struct csv *csv, int column, double least, double most, double *out,
               struct err *err) {
    char expected[64];
    if (num_f64(csv_field(csv, column), out) && *out >= least && *out <= most) {
        return 0;
    }
    snprintf(expected, sizeof expected, "a number from %g to %g", least, most);
    return csv_bad(csv, column, expected, err);
}

int csv_bad(const struct csv *csv, int column, const char *expected, struct err *err) {
    const char *text = csv_field(csv, column);
    return field_bad(&csv->line, text, strlen(text), csv->names[column], expected, err);
}
