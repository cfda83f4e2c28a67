/* The tables of a study: SQLite in memory, filled with rows that are JSON objects and asked in SQL.
 *
 * A row's keys are the columns of its table, in the order in which they first appear; an object
 * inside a row becomes columns of its own, `latency_s` with `p99` the column latency_s_p99, and a
 * list is kept as JSON text, for json_each and json_extract. Whatever is no letter, digit or
 * underscore in a name becomes an underscore.
 *
 * In addition to SQLite's functions there are aggregates: median(x), mean(x), the ends of the 95 %
 * interval of the mean, low(x) and high(x), and half(x), half of it, NULL of one value and of
 * values that are all the same; of shares of 1 share_low(x, n) and share_high(x, n), which stay
 * within 0 and 1 (n: of how many a value is the share, NULL where unknown); phi(x), the upper tail
 * of the standard normal; and the mathematical functions that SQLite has where it was compiled with
 * them (exp, ln, log, log10, log2, pow, sqrt, floor, ceil, sin, ...). */
#ifndef UNMASK_EXPERIMENTS_STUDY_TABLES_H
#define UNMASK_EXPERIMENTS_STUDY_TABLES_H

#include <jansson.h>
#include <stdbool.h>

#include "experiments/run/cli/table.h"
#include "sim/base/err.h"

struct tables; /* opaque */

struct tables *tables_open(void);
void tables_close(struct tables *tables); /* NULL is fine */

/* A new table of the rows of a JSON array. ERR_USAGE where there is one of that name. */
int tables_add(struct tables *tables, const char *name, const json_t *rows, struct err *err);

/* What one SELECT answers, a JSON array of objects; the caller's. It can read tables and nothing
 * else. ERR_USAGE is SQLite's message after `place`, where the query stands. */
int tables_select(struct tables *tables, const char *query, const char *place, json_t **rows,
                  struct err *err);

/* What a query of the program's own answers, an array, the caller's. None of them fails but for our
 * mistake or a full disk: the first that does answers no row and is what tables_failed says, which
 * whoever asks calls before what it found is used or printed. */
json_t *tables_own(struct tables *tables, const char *query);

/* The column `text` of the first row that a query answers, "" where there is none; to be freed.
 * Its failure is told by tables_failed. */
char *tables_text(struct tables *tables, const char *query);
int tables_failed(const struct tables *tables, struct err *err);

/* Whether there is a table (NULL: there is none) and it has all of these columns, "a,b". */
bool tables_have(struct tables *tables, const char *table, const char *columns);

/* What tables_select answers to be printed, at most 40 columns, to be closed by the caller; NULL of
 * no row. */
int tables_show(struct tables *tables, const char *query, struct table **out, struct err *err);

/* The same as a new table, whose rows keep the order of the answer. */
int tables_keep(struct tables *tables, const char *name, const char *query, const char *place,
                struct err *err);

#endif
