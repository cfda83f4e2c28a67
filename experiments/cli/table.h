/* A table of results: aligned text for people, an array of objects for programs. */
#ifndef UNMASK_EXPERIMENTS_CLI_TABLE_H
#define UNMASK_EXPERIMENTS_CLI_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "experiments/sweep/sample.h"

struct table;

/* Of columns "NAME|NAME|...", or "" of none so far; a name is heading and key. More may follow
 * before the first cell: such a list, or one name as it stands. */
struct table *table_open(const char *columns);
void table_columns(struct table *table, const char *names);
void table_column(struct table *table, const char *name);
void table_close(struct table *table); /* NULL is fine */

/* Append cells, a word of `forms` and an argument each: s a text, i an int64_t, u a uint32_t, b an
 * int64_t of bytes, %.2f or the like a double; - is unknown and has no argument. NULL text and a
 * NaN are unknown, too: "-" and null. */
void table_add(struct table *table, const char *forms, ...);

/* Append the next cell. */
void table_text(struct table *table, const char *text);
void table_number(struct table *table, double value, const char *format);
/* The same with three significant digits, whole numbers with all of theirs. */
void table_three(struct table *table, double value);
/* Returns `text`: "0.0213", "30.1", "1235". three_decimals: its digits after the point. */
enum { THREE_CHARS = 48 };
const char *three_digits(double value, char text[THREE_CHARS]);
int three_decimals(double value);
/* A number that people read with its unit: "14.9 GiB". */
void table_shown(struct table *table, double value, const char *text);

/* Columns of numbers are flush right. Only whole rows are printed. */
void table_print(const struct table *table, FILE *out);
json_t *table_json(const struct table *table);

/* Lines that concern several systems, printed once each: with the names of these systems, or
 * without names when it is all of them. */

/* Starts zeroed. */
struct said {
    json_t *lines; /* {line: [name, ...]} */
    size_t n;      /* who says anything */
};

/* Adds the lines of `text`, which is cut at its newlines. */
void said_add(struct said *said, const char *name, char *text);

/* In the order in which they first came; releases what was said. */
void said_print(struct said *said, FILE *out);

/* Cells of tables that show samples. */

/* The units of a table's times, by the largest of each column. */
struct sample_units {
    double per_s[N_QUANTITIES]; /* how many of the unit a second has */
    const char *names[N_QUANTITIES];
};
struct sample_units sample_units_of(const struct sample *samples, size_t n);

/* "mean_s"; of others the quantity's own heading. */
void sample_heading(struct table *table, const struct sample_units *units, enum quantity quantity);

/* Three significant digits: "13.2", "13.2 ±0.4", "98.0 (92.1 to 99.5)" of a share, which is in per
 * cent; with a star where it is of the requests that were not rejected. */
void sample_cell(struct table *table, const struct sample_units *units, const struct sample *sample,
                 enum quantity quantity);

/* Whether some sample is of several runs, so that its means have intervals. */
bool samples_have_intervals(const struct sample *samples, size_t n);

/* What ± and the like mean below a table of samples; nothing where no mean has an interval. */
void sample_explain(const struct sample *samples, size_t n, size_t n_seeds, FILE *out);

/* Whether a column has to say at which rate requests came: some sample was not offered the rate
 * that was asked for. */
bool samples_miss_rates(const struct sample *samples, size_t n);
/* The mean rate that the runs were offered, and that was asked for; NaN: not known. */
double sample_offered(const struct sample *sample);
double sample_asked(const struct sample *sample);

/* "1.31x", "~1.02x" where the seeds do not tell the two apart, "1.31x*" where they served different
 * requests; "-" where the ratio would mislead (sample_shows_...). Throughputs are ours over the
 * base's, times the base's over ours: higher is better. */
void sample_ratio_cell(struct table *table, const struct sample *ours, const struct sample *base,
                       enum quantity quantity);

/* What no scheduler can beat: headings, and the cells of a point. `has_slo`: the share of requests
 * on time as well. The line below says what they are. */
void sample_bound_columns(struct table *table, bool has_slo);
void sample_bound_cells(struct table *table, const struct sample *sample, bool has_slo);
void sample_bound_explain(size_t n_seeds, FILE *out);

#endif
