/* Which runs a plot is of, and what it has to say about them. */
#ifndef UNMASK_EXPERIMENTS_STUDY_PLOT_SAMPLE_H
#define UNMASK_EXPERIMENTS_STUDY_PLOT_SAMPLE_H

#include "experiments/study/plot.h"

/* Whether every run has a value of its own in the column: the seed, or its number. */
bool plot_is_single(const char *column);

/* Makes of the table `run` the table `chosen`, by the request's condition: doubles of one identity
 * count once, and seeds that draw nothing are one run, unless seeds are what is shown. */
int plot_choose(const struct plot_request *request, struct tables *tables, struct err *err);

/* Whether runs of the table `shown` were offered another rate than they were asked for. */
bool plot_misses_rates(struct tables *tables);

/* Where prices and requests of the table `shown` come from, what its intervals are, which runs
 * count once, how far drawn decisions are off: one line, to be freed by the caller. */
char *plot_note(const struct plot_request *request, struct tables *tables);

/* The column `text` of the first row that a query answers, "" where there is none; to be freed.
 * Its failure is told by tables_failed. */
char *plot_ask_text(struct tables *tables, const char *query);

#endif
