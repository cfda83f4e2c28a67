/* A report: one self-contained HTML page about all runs of a results database.
 *
 * A table of the runs side by side, then for each run its summary, the distribution of its
 * latencies and its course over time as inline SVG, and the configuration it ran with. */
#ifndef UNMASK_ANALYSIS_PLOT_REPORT_H
#define UNMASK_ANALYSIS_PLOT_REPORT_H

#include "analysis/store.h"

/* Replaces the file at `path` once the page is whole. Needs gnuplot. */
int report_write(struct store *store, const char *path, struct err *err);

#endif
