/* A report: one self-contained HTML page about all runs of a results database.
 *
 * The page is analysis/plot/report.html with the data in it, as JSON: a table of the runs that
 * sorts and filters, then of each its summary, the distribution of its latencies, its course over
 * time and the configuration it ran with. */
#ifndef UNMASK_ANALYSIS_PLOT_REPORT_H
#define UNMASK_ANALYSIS_PLOT_REPORT_H

#include "analysis/store/store.h"

/* Replaces the file at `path` once the page is whole. Damaged runs are left out, which the page
 * says; then ERR_WORLD, too. */
int report_write(struct store *store, const char *path, struct err *err);

#endif
