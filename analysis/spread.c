#include "analysis/spread.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/base/sort.h"

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

/* Wilson's interval of a share p of n_of, with the quantile t. */
static void wilson(double p, double n_of, double t, double *low, double *high) {
    double t2 = t * t / n_of;
    double middle = (p + t2 / 2) / (1 + t2);
    double half = sqrt(t2 * (p * (1 - p) + t2 / 4)) / (1 + t2);
    *low = fmin(*low, p > 0 ? fmax(0, middle - half) : 0);
    *high = fmax(*high, p < 1 ? fmin(1, middle + half) : 1);
}

struct spread spread_of_count(double n, double of) {
    struct spread spread = {.n = 0, .mean = NAN, .low = NAN, .high = NAN};
    if (of > 0) {
        spread = (struct spread){1, n / of, n / of, n / of};
        wilson(n / of, of, gsl_cdf_ugaussian_Pinv(two_sided), &spread.low, &spread.high);
    }
    return spread;
}

struct spread spread_of_shares(const double *values, size_t n, double n_of) {
    struct spread spread = spread_of(values, n);
    double p = spread.mean;
    for (size_t i = 0; i < n; i++) {
        if (!(values[i] >= 0 && values[i] <= 1)) {
            return spread;
        }
    }
    if (n < 2) {
        return spread;
    }
    double variance = gsl_stats_variance_m(values, 1, n, p) / (double)n;
    spread.low = spread.high = p;
    if (variance > 0) {
        wilson(p, p * (1 - p) / variance, gsl_cdf_tdist_Pinv(two_sided, (double)n - 1), &spread.low,
               &spread.high);
    }
    if (n_of > 0) {
        wilson(p, n_of, gsl_cdf_ugaussian_Pinv(two_sided), &spread.low, &spread.high);
    }
    return spread;
}

struct spread spread_of_kind(bool is_share, const double *values, size_t n, double n_of) {
    return is_share ? spread_of_shares(values, n, n_of) : spread_of(values, n);
}

static double difference(double a, double b) {
    return a - b;
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : NAN;
}

/* From -1 to 1 as a share of that range. */
static double of_range(double a, double b) {
    return (1 + a - b) / 2;
}

static struct spread of_numbers(const double *values, size_t n) {
    return spread_of(values, n);
}

static struct spread of_ranges(const double *values, size_t n) {
    struct spread spread = spread_of_shares(values, n, 0);
    return (struct spread){n, 2 * spread.mean - 1, 2 * spread.low - 1, 2 * spread.high - 1};
}

static struct spread spread_of_pairs(const double *a, const double *b, size_t n,
                                     double (*pair)(double a, double b),
                                     struct spread (*of)(const double *values, size_t n)) {
    double *values = mem_unwritten(n, sizeof *values);
    for (size_t i = 0; i < n; i++) {
        values[i] = pair(a[i], b[i]);
    }
    struct spread spread = of(values, n);
    free(values);
    return spread;
}

struct spread spread_of_differences(const double *ours, const double *base, size_t n) {
    return spread_of_pairs(ours, base, n, difference, of_numbers);
}

struct spread spread_of_ratios(const double *over, const double *under, size_t n) {
    return spread_of_pairs(over, under, n, ratio, of_numbers);
}

struct spread spread_of_share_differences(const double *ours, const double *base, size_t n) {
    return spread_of_pairs(ours, base, n, of_range, of_ranges);
}

bool spread_differs(const struct spread *differences) {
    return differences->low > 0 || differences->high < 0;
}

const char *spread_note(size_t n_seeds, char text[SPREAD_NOTE_CHARS]) {
    text[0] = '\0';
    if (n_seeds > 1) {
        snprintf(text, SPREAD_NOTE_CHARS, "means over %zu seeds with 95 %% intervals%s", n_seeds,
                 n_seeds == 2 ? ", which two seeds make very wide: take five or more" : "");
    }
    return text;
}

json_t *number_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *spread_json(const struct spread *spread) {
    return json_pack("{s:o, s:o, s:o}", "mean", number_json(spread->mean), "low",
                     number_json(spread->low), "high", number_json(spread->high));
}

/* Whether the next value is one of those that are held. */
static bool holds_next(struct series *series) {
    series->stride = series->stride == 0 ? 1 : series->stride;
    if (series->n_given++ % series->stride != 0) {
        return false;
    }
    if (series->n == series->most) {
        series->n /= 2;
        series->stride *= 2;
        for (size_t i = 0; i < series->n; i++) {
            series->values[i] = series->values[2 * i];
        }
    }
    return true;
}

void series_push(struct series *series, double value) {
    if (series->most > 0 && !holds_next(series)) {
        return;
    }
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
    sort_doubles(values, n);
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
