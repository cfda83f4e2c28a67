/* A share of some numbers: the median is that of 0.5. */
#ifndef UNMASK_ENGINE_CALIBRATE_QUANTILE_H
#define UNMASK_ENGINE_CALIBRATE_QUANTILE_H

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>

/* Sorts `values`, of which there is at least one. */
static inline double quantile(double *values, size_t n, double share) {
    gsl_sort(values, 1, n);
    return gsl_stats_quantile_from_sorted_data(values, 1, n, share);
}

#endif
