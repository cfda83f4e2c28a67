/* Fields: the columns (analysis/column.h) that have a label, by name, with their units and titles.
 *
 * Names are those of `run --json`, a field inside another after a dot: "latency_s.p99". The
 * columns of a study's tables have underscores instead ("latency_s_p99"), and are found as well. A
 * name that the tables lack, a key of a system among them, has the unit that its end names. */
#ifndef UNMASK_ANALYSIS_FIELD_H
#define UNMASK_ANALYSIS_FIELD_H

#include <jansson.h>

#include "analysis/column.h"

/* Whether a column is a field of its own. Of a distribution (latency_s) it stands for mean, p50,
 * p90, p95, p99, std, min and max. */
bool field_is(const struct column *column);

enum { FIELD_CHARS = 256 };

/* The column of a name, or of what it is a member of; NULL where there is none. */
const struct column *field_find(const char *name);

/* The unit of `name`, "" where it has none. */
const char *field_unit(const char *name);

/* "p99 latency (s)"; the name itself, blanks for underscores, where it is no field. Returns
 * `text`. */
const char *field_label(const char *name, char text[FIELD_CHARS]);

/* The same without the unit. */
const char *field_title(const char *name, char text[FIELD_CHARS]);

/* The name with its dots, of a column ("latency_s.p99" of latency_s_p99), where it is one.
 * Returns `text`. */
const char *field_spelled(const char *column, char text[FIELD_CHARS]);

/* The column of a table that holds the field. Returns `text`. */
const char *field_column(const char *name, char text[FIELD_CHARS]);

/* A cell: an integer, a number or a text, whichever it reads as; null for "". */
json_t *field_value(const char *text);

#endif
