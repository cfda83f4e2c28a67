/* A table of results: aligned text for people, an array of objects for programs. */
#ifndef UNMASK_EXPERIMENTS_RUN_CLI_TABLE_H
#define UNMASK_EXPERIMENTS_RUN_CLI_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/err.h"

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

/* Columns of numbers are flush right. Only whole rows are printed. On standard output as
 * table_use_format said. */
void table_print(const struct table *table, FILE *out);
json_t *table_json(const struct table *table);

/* How tables are printed. Markdown and LaTeX (tabular, with booktabs' rules) have the cells that
 * people read, CSV the values of JSON: numbers with nine digits, nothing where one is unknown. */
enum table_format { TABLE_TEXT, TABLE_MARKDOWN, TABLE_LATEX, TABLE_CSV };
extern const char *const table_format_words[TABLE_CSV + 2]; /* NULL ends them */

/* From now on. But for text, tables alone are on standard output, with an empty line between two,
 * and what else the program prints there goes to standard error. Once. */
int table_use_format(enum table_format format, struct err *err);

bool table_is_text(void); /* whether they are printed among the rest */
bool table_is_csv(void);  /* whether programs read them */

/* Writes out what was printed of tables; false where that failed, with errno. */
bool table_flush(void);

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

#endif
