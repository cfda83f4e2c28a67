/* The course of a recorded run: its latencies in order and what happened over time, in equal bins.
 */
#ifndef UNMASK_ANALYSIS_PLOT_COURSE_H
#define UNMASK_ANALYSIS_PLOT_COURSE_H

#include "analysis/store/store.h"
#include "analysis/summary.h"

enum { COURSE_BINS = 200 };

struct course {
    /* Sorted, of completed requests. */
    struct series latency_s, ttfb_s;

    /* One value a bin: its middle, tokens committed per second, and the average number of requests
     * that were running and waiting. */
    double time_s[COURSE_BINS], tokens_per_s[COURSE_BINS];
    double running[COURSE_BINS], waiting[COURSE_BINS];
};

/* Tokens come from the recorded steps; where a run has none, each completed request's tokens are
 * spread evenly from its admission to its finish. */
int course_load(struct store *store, const struct stored_run *run, struct course *out,
                struct err *err);
void course_fini(struct course *course);

#endif
