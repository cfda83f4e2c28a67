/* A table of results: aligned text for people, an array of objects for programs. */
#ifndef UNMASK_EXPERIMENTS_CLI_TABLE_H
#define UNMASK_EXPERIMENTS_CLI_TABLE_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

enum { TABLE_MOST_COLUMNS = 40 };

struct table;

/* A column's name is its heading and its key. */
struct table *table_open(const char *const *columns, size_t n_columns);
void table_close(struct table *table); /* NULL is fine */

/* Append the next cell, row by row. NULL text and a NaN are unknown: "-" and null. */
void table_text(struct table *table, const char *text);
void table_number(struct table *table, double value, const char *format);
void table_whole(struct table *table, int64_t value);
/* A number that people read with its unit: "14.9 GiB". */
void table_shown(struct table *table, double value, const char *text);

/* Columns of numbers are flush right. Only whole rows are printed. */
void table_print(const struct table *table, FILE *out);
json_t *table_json(const struct table *table);

#endif
