/* Rows of runs that were recorded, before a study's queries see them. */
#ifndef UNMASK_EXPERIMENTS_STUDY_RECORDED_ROWS_H
#define UNMASK_EXPERIMENTS_STUDY_RECORDED_ROWS_H

#include "experiments/study/study.h"
#include <jansson.h>

/* Takes out of an array of rows of run_fields_put those that another one has too: of one identity,
 * or of one row in several databases. Of runs that were cut short the longest stays, unless there
 * is a whole one. Returns how many it took. */
size_t recorded_drop_doubles(json_t *rows);

/* The same for the rows of a study's table, which it says on standard error. ERR_USAGE where two
 * runs are of one configuration, but for the seed, and of other files or another build, and no
 * query of the study looks at `build`, `inputs`, `setup` or the identity: what averages over seeds
 * would take them for two. */
int recorded_sort(const struct study *study, const char *table, json_t *rows, struct err *err);

#endif
