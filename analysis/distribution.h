/* Distributions: columns of numbers, and their mean, quantiles and spread.
 *
 * Quantiles interpolate linearly between order statistics at (n - 1) p, as
 * gsl_stats_quantile_from_sorted_data does; std is the sample one, with n - 1. */
#ifndef UNMASK_ANALYSIS_DISTRIBUTION_H
#define UNMASK_ANALYSIS_DISTRIBUTION_H

#include <stddef.h>

struct distribution {
    size_t n;
    double mean, p50, p90, p95, p99, std, min, max; /* 0 when n is 0 */
};

/* Growing columns of one figure per completed request. */
struct series {
    double *values;
    size_t n, capacity;
};

/* Append one value, doubling the room as needed; the owner frees `values`. */
void series_push(struct series *series, double value);

/* The distribution of `values`, which are sorted in place. */
struct distribution distribution_of(double *values, size_t n);

#endif
