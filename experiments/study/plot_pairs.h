/* What a plot asks of its runs in SQL: which of them, and which of them with one another. */
#ifndef UNMASK_EXPERIMENTS_STUDY_PLOT_PAIRS_H
#define UNMASK_EXPERIMENTS_STUDY_PLOT_PAIRS_H

#include <stdio.h>

#include "experiments/study/plot.h"

/* A condition whose fields are spelled as everywhere: "cache.retention" is the column
 * cache_retention. Texts stay as they are. */
void plot_write_condition(FILE *out, const char *sql);

/* Makes of the table `shown` the table `paired`: each run with difference_0, difference_1, ...,
 * what it has more of each y than the run that --against names, of the same seed, x, line and panel
 * but for the key. The request's value becomes the one that runs have. ERR_USAGE where no run has
 * it, or no two can be compared. */
int plot_pair(struct plot_request *request, struct tables *tables, struct err *err);

/* Of the table `points`: that every --name begins with the name of a line, ERR_USAGE; and, in SQL,
 * what a line is called, or where it stands among those that are named. */
int plot_check_names(const struct plot_request *request, struct tables *tables, struct err *err);
void plot_write_names(FILE *out, const struct plot_request *request, struct tables *tables,
                      bool is_order);

#endif
