#include "analysis/distribution.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>

#include "sim/base/mem.h"

void series_push(struct series *series, double value) {
    if (series->n == series->capacity) {
        size_t capacity = series->capacity == 0 ? 256 : 2 * series->capacity;
        series->values = mem_resized(series->values, capacity, sizeof *series->values);
        series->capacity = capacity;
    }
    series->values[series->n++] = value;
}

struct distribution distribution_of(double *values, size_t n) {
    if (n == 0) {
        return (struct distribution){0};
    }
    gsl_sort(values, 1, n);
    double mean = gsl_stats_mean(values, 1, n);
    return (struct distribution){
        .n = n,
        .mean = mean,
        .p50 = gsl_stats_quantile_from_sorted_data(values, 1, n, 0.50),
        .p90 = gsl_stats_quantile_from_sorted_data(values, 1, n, 0.90),
        .p95 = gsl_stats_quantile_from_sorted_data(values, 1, n, 0.95),
        .p99 = gsl_stats_quantile_from_sorted_data(values, 1, n, 0.99),
        .std = n > 1 ? gsl_stats_sd_m(values, 1, n, mean) : 0,
        .min = values[0],
        .max = values[n - 1],
    };
}
