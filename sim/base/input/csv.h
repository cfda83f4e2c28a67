/* CSV tables, read line by line: the one reader of the files that hold them.
 *
 * A line ends with LF or CR LF. Quotes have no meaning, so that a quoted comma is a field too many,
 * but where the caller says otherwise. Columns
 * stand in any order under their names. What is not as it must be ends the reading with one
 * sentence "path:line: found X, expected Y" (ERR_WORLD). Rows of millions of requests have a reader
 * of their own (traces/reader.h). */
#ifndef UNMASK_SIM_BASE_INPUT_CSV_H
#define UNMASK_SIM_BASE_INPUT_CSV_H

#include "sim/base/input/field.h"

enum { CSV_MOST_FIELDS = FIELD_MOST, CSV_MOST_BYTES = 1 << 28 };

struct csv {
    struct line line;   /* the present one */
    bool is_open_end;   /* the last line may lack its newline; the caller's, before csv_line */
    bool is_quoted;     /* cells may stand in quotes, as RFC 4180 has them; the caller's, too */
    char *text;         /* of the line; its commas become ends once csv_header or csv_row cuts it */
    char *bytes, *rest; /* of the file, which stay until csv_close: fields may be kept till then */
    const char *const *names;      /* of the columns that are read; borrowed */
    int n_fields;                  /* of the header */
    int position[CSV_MOST_FIELDS]; /* of each column in the line; -1: the file has none */
    char *fields[CSV_MOST_FIELDS];
};

/* `role`: what the file is among a run's inputs. The path is borrowed. */
int csv_open(struct csv *csv, const char *path, const char *role, struct err *err);
void csv_close(struct csv *csv);

/* The next line, whole; `*more` is false at the end of the file. */
int csv_line(struct csv *csv, bool *more, struct err *err);

/* The present line names the columns; `names` ends with NULL, and those of the bits in `optional`
 * may be missing. With `is_closed` there may be no others. */
int csv_header(struct csv *csv, const char *const *names, uint64_t optional, bool is_closed,
               struct err *err);

/* The same of the first line. */
int csv_first(struct csv *csv, const char *const *names, uint64_t optional, bool is_closed,
              struct err *err);

/* Cuts the present line; how many fields it has, of which CSV_MOST_FIELDS are kept, or -1: an
 * error. For tables whose header the caller reads, and says n_fields. */
int csv_cut(struct csv *csv, struct err *err);

/* The present line is a row: cut it into as many fields as the header has. */
int csv_row(struct csv *csv, struct err *err);

/* Of the row; "" where the file has no such column. */
const char *csv_field(const struct csv *csv, int column);

/* A whole number from `least` to `most` in that column. */
int csv_whole(const struct csv *csv, int column, int64_t least, int64_t most, int64_t *out,
              struct err *err);

/* The same of any number. */
int csv_number(const struct csv *csv, int column, double least, double most, double *out,
               struct err *err);

/* "path:line: found X in the column's name, expected ...". */
int csv_bad(const struct csv *csv, int column, const char *expected, struct err *err);

#endif
