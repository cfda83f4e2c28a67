/* Fields: what a number of a run, of a request or of a run's course is called, its unit and what it
 * means. The one home of units for plots, the report page and `unmask list fields`.
 *
 * Names are those of `run --json`, a field inside another behind a dot: "latency_s.p99". The
 * columns of a study's tables have underscores instead ("latency_s_p99"), and are found as well. A
 * name that the table lacks, a key of a system among them, has the unit that its end names. */
#ifndef UNMASK_ANALYSIS_FIELD_H
#define UNMASK_ANALYSIS_FIELD_H

#include <jansson.h>

struct field {
    const char *name;
    const char *label; /* on an axis, before the unit */
    const char *unit;  /* "": a plain number */
    const char *doc;   /* one line */
};

/* Ends with a NULL name. Of a distribution (latency_s) the entry stands for mean, p50, p90, p95,
 * p99, std, min and max. */
extern const struct field field_table[];

enum { FIELD_CHARS = 256 };

/* The entry for a name, or for what it is a member of; NULL where there is none. */
const struct field *field_find(const char *name);

/* The unit of `name`, "" where it has none. */
const char *field_unit(const char *name);

/* "p99 latency (s)"; the name itself, blanks for underscores, where it is not in the table. Returns
 * `text`. */
const char *field_label(const char *name, char text[FIELD_CHARS]);

/* The same without the unit. */
const char *field_title(const char *name, char text[FIELD_CHARS]);

/* The name with its dots, of a column ("latency_s.p99" of latency_s_p99), where it is in the table.
 * Returns `text`. */
const char *field_spelled(const char *column, char text[FIELD_CHARS]);

/* The column of a table that holds the field. Returns `text`. */
const char *field_column(const char *name, char text[FIELD_CHARS]);

/* A cell: an integer, a number or a text, whichever it reads as; null for "". */
json_t *field_value(const char *text);

#endif
