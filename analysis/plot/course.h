/* The course of a recorded run: what happened over time, in equal bins. */
#ifndef UNMASK_ANALYSIS_PLOT_COURSE_H
#define UNMASK_ANALYSIS_PLOT_COURSE_H

#include "analysis/course_columns.h"
#include "analysis/plot/requests.h"

enum { COURSE_MOST_BINS = 200 };

struct course {
    size_t n_bins;
    double bins[COURSE_FIELD_COUNT][COURSE_MOST_BINS];
};

/* Tokens come from the recorded steps; where a run has none, each completed request's tokens are
 * spread evenly from its admission to its finish. `n_bins` is at most COURSE_MOST_BINS. */
int course_load(struct store *store, const struct stored_run *run, const struct requests *requests,
                size_t n_bins, struct course *out, struct err *err);

#endif
