/* The parts of a run that a report's page draws, as JSON: the more runs a page has, the less of
 * each. */
#ifndef UNMASK_ANALYSIS_PLOT_REPORT_PARTS_H
#define UNMASK_ANALYSIS_PLOT_REPORT_PARTS_H

#include <jansson.h>

#include "analysis/plot/course.h"

/* Rounded to `digits` significant digits (4 exceed a screen's resolution); null: no value. */
json_t *report_number(double value, int digits);

/* {FIELD: {n, values}}: how many completed requests have it, and evenly spaced order statistics. */
json_t *report_distributions(const struct requests *requests, size_t n_runs);

/* How many bins a course has, and {bin_s, FIELD: [...]} of those that it knows. */
size_t report_bins(size_t n_runs);
json_t *report_course(const struct course *course);

/* Rows of REQUEST_FIELD_COUNT numbers and the outcome: all requests, or half as many as fit from
 * those not served and the slowest on, and the other half evenly from the rest. */
json_t *report_requests(const struct requests *requests, size_t n_runs);

#endif
