/* A CSV file as one text, taken apart in place line by line and cell by cell (RFC 4180 quoting,
 * without line breaks inside of quotes). */
#ifndef UNMASK_ANALYSIS_CSV_TEXT_H
#define UNMASK_ANALYSIS_CSV_TEXT_H

#include <stddef.h>

#include "sim/base/err.h"

struct csv_text {
    char *text, *rest; /* owned; what is still to be read */
    int line;          /* the last one given out, from 1 */
    size_t n_lines;    /* at most */
};

/* Read the file. ERR_WORLD when it is no text, or too long. */
int csv_text_open(const char *path, struct csv_text *out, struct err *err);
void csv_text_close(struct csv_text *csv);

/* The next line, ended in place; NULL behind the last. */
char *csv_text_line(struct csv_text *csv);

/* Take a line apart in place; how many cells it has, or -1 when a quote is not closed or there are
 * more than `most`. */
int csv_text_split(char *line, char *cells[], int most);

#endif
