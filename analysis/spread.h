/* How far a number moves from seed to seed.
 *
 * Values of one quantity, one a seed: their mean and the interval that holds the true mean with
 * 95 % confidence (Student's t, n - 1 degrees of freedom). Two systems that were given the same
 * seeds met the same arrivals, lengths and draws; the spread of their differences, seed by seed, is
 * then much smaller than that of either, and tells them apart sooner.
 *
 * Of shares the interval is Wilson's (1927), with Student's t and the sample size that the seeds'
 * spread amounts to, p (1 - p) over the variance of their mean (Korn and Graubard, Survey
 * Methodology 24, 1998): it never leaves 0 to 1. Where the number of requests is known, it is
 * no narrower than that of the same number of independent ones.
 *
 * This is the one home of intervals: tables, plots, studies' half(), low() and high(), and by the
 * same formula the report's page. */
#ifndef UNMASK_ANALYSIS_SPREAD_H
#define UNMASK_ANALYSIS_SPREAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct spread {
    size_t n;
    double mean, low, high; /* NaN: nothing to average; low and high also of one value */
};

/* Values that are NaN make all of it NaN: a seed without a number leaves no average of the rest. */
struct spread spread_of(const double *values, size_t n);

/* Of shares of 1. `n_of`: of how many they are in all, 0 where not known. Values that are no
 * shares have Student's interval. */
struct spread spread_of_shares(const double *values, size_t n, double n_of);

/* Of one count, n of `of`: its share with Wilson's interval; NaN of none. */
struct spread spread_of_count(double n, double of);

/* Of a quantity that is a share as of shares, of others as of numbers. */
struct spread spread_of_kind(bool is_share, const double *values, size_t n, double n_of);

/* Of differences ours - base, in which both have `n` values. */
struct spread spread_of_differences(const double *ours, const double *base, size_t n);
/* Of ratios. */
struct spread spread_of_ratios(const double *over, const double *under, size_t n);

/* Whether the interval of differences leaves 0 out; false where it is not known. */
bool spread_differs(const struct spread *differences);

/* Of differences of shares, from -1 to 1. */
struct spread spread_of_share_differences(const double *ours, const double *base, size_t n);

/* "means over 5 seeds with 95 % intervals", with what is to be said of two; "" of one. Returns
 * `text`. */
enum { SPREAD_NOTE_CHARS = 160 };
const char *spread_note(size_t n_seeds, char text[SPREAD_NOTE_CHARS]);

json_t *number_json(double value); /* null where it is not finite */

/* {mean, low, high}, null for what is not known. */
json_t *spread_json(const struct spread *spread);

/* Distributions: columns of numbers, and their mean, quantiles and spread.
 *
 * Quantiles interpolate linearly between order statistics at (n - 1) p, as
 * gsl_stats_quantile_from_sorted_data does; std is the sample one, with n - 1. */

struct distribution {
    size_t n;
    double mean, p50, p90, p95, p99, std, min, max; /* 0 when n is 0 */
};

/* Growing columns of one figure per completed request. One with a limit holds each 2^k-th value
 * once there are more, the first among them, with k as small as it can be. */
struct series {
    double *values;
    size_t n, capacity;
    size_t most;    /* even; 0: no limit */
    size_t n_given; /* where there is one: values so far, of which it holds each stride-th */
    size_t stride;
};

/* Append one value, doubling the room as needed; the owner frees `values`. */
void series_push(struct series *series, double value);

/* The distribution of `values`, which are sorted in place. */
struct distribution distribution_of(double *values, size_t n);

#endif
