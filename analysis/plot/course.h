/* The course of a recorded run: what happened over time, in equal bins. */
#ifndef UNMASK_ANALYSIS_PLOT_COURSE_H
#define UNMASK_ANALYSIS_PLOT_COURSE_H

#include "analysis/column.h"
#include "analysis/plot/requests.h"

enum course_field {
    COURSE_TIME_S,       /* the bin's middle, from the first arrival */
    COURSE_TOKENS_PER_S, /* committed */
    COURSE_RUNNING,      /* requests, on average over the bin */
    COURSE_WAITING,
    /* Of the steps: NaN where there is none in the bin, or none was recorded. */
    COURSE_BATCH, /* requests a step, weighted by the steps' times */
    COURSE_KV_BYTES,
    COURSE_BUSY, /* share of the replicas' time; 0 where no step is */
    COURSE_FIELD_COUNT
};

extern const struct column course_columns[COURSE_FIELD_COUNT + 1];

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
