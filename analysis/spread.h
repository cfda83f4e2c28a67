/* How far a number moves from seed to seed.
 *
 * Values of one quantity, one a seed: their mean and the interval that holds the true mean with
 * 95 % confidence (Student's t, n - 1 degrees of freedom). Two systems that were given the same
 * seeds met the same arrivals, lengths and draws; the spread of their differences, seed by seed, is
 * then much smaller than that of either, and tells them apart sooner. */
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

/* Of differences ours - base, in which both have `n` values. */
struct spread spread_of_differences(const double *ours, const double *base, size_t n);
/* Of ratios. */
struct spread spread_of_ratios(const double *over, const double *under, size_t n);

/* Whether the interval of differences leaves 0 out; false where it is not known. */
bool spread_differs(const struct spread *differences);

/* {mean, low, high}, null for what is not known. */
json_t *spread_json(const struct spread *spread);

#endif
