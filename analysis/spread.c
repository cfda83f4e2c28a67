#include "analysis/spread.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "sim/base/mem.h"

static const double two_sided = 0.975; /* 95 % lie within */

struct spread spread_of(const double *values, size_t n) {
    struct spread spread = {.n = n, .mean = NAN, .low = NAN, .high = NAN};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            return spread;
        }
    }
    if (n == 0) {
        return spread;
    }
    spread.mean = gsl_stats_mean(values, 1, n);
    if (n > 1) {
        double error = gsl_stats_sd_m(values, 1, n, spread.mean) / sqrt((double)n);
        double half = error * gsl_cdf_tdist_Pinv(two_sided, (double)n - 1);
        spread.low = spread.mean - half;
        spread.high = spread.mean + half;
    }
    return spread;
}

static double difference(double a, double b) {
    return a - b;
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : NAN;
}

static struct spread spread_of_pairs(const double *a, const double *b, size_t n,
                                     double (*pair)(double a, double b)) {
    double *values = mem_unwritten(n, sizeof *values);
    for (size_t i = 0; i < n; i++) {
        values[i] = pair(a[i], b[i]);
    }
    struct spread spread = spread_of(values, n);
    free(values);
    return spread;
}

struct spread spread_of_differences(const double *ours, const double *base, size_t n) {
    return spread_of_pairs(ours, base, n, difference);
}

struct spread spread_of_ratios(const double *over, const double *under, size_t n) {
    return spread_of_pairs(over, under, n, ratio);
}

bool spread_differs(const struct spread *differences) {
    return differences->low > 0 || differences->high < 0;
}

static json_t *known(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *spread_json(const struct spread *spread) {
    return json_pack("{s:o, s:o, s:o}", "mean", known(spread->mean), "low", known(spread->low),
                     "high", known(spread->high));
}
