/* What a plot draws of its runs, in SQL: their panels, lines and points. */
#ifndef UNMASK_EXPERIMENTS_STUDY_PLOT_QUERY_H
#define UNMASK_EXPERIMENTS_STUDY_PLOT_QUERY_H

#include <stdio.h>

#include "analysis/field.h"
#include "analysis/plot/run_fields.h"
#include "experiments/study/plot.h"

/* By what runs are told apart; GROUPING_COUNT: by nothing. (plot.c) */
enum grouping plot_told_by(const struct plot_request *request);
/* Whether every run has a value of its own in the column: the seed, or its number. */
bool plot_is_single(const char *column);
bool plot_is_against(const struct plot_request *request);

/* A field with the unit that axes have, which of bytes is GiB. */
const char *plot_axis_label(const char *column, char text[FIELD_CHARS]);

/* What the line of a bound is called, after the name of the line that it bounds. */
#define PLOT_BOUND "bound"

/* The column with the bound of a field, which no scheduler beats; NULL: it has none. */
const char *plot_bound_of(const char *column);

/* Of the table `chosen`: the runs that are drawn, with panel and series. */
void plot_write_runs(FILE *out, const struct plot_request *request);

/* Of the tables `shown`, `paired` and others: a row for each point. */
void plot_write_points(FILE *out, const struct plot_request *request);

#endif
