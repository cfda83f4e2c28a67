/* A quantile table: the percentiles p0 to p100 of a measured set of lengths.
 *
 * The sets stand in traces/quantiles.csv, one line a set and side: dataset,field,p0,...,p100. */
#ifndef UNMASK_TRACES_QUANTILES_H
#define UNMASK_TRACES_QUANTILES_H

#include "sim/base/err.h"

enum { N_PERCENTILES = 101 };

struct quantiles {
    double tokens[N_PERCENTILES];
};

/* Read the percentiles of `set` and `field` ("input" or "output") from the shipped table.
 * ERR_USAGE when it has no such set, naming the nearest. */
int quantiles_read(const char *set, const char *field, struct quantiles *out, struct err *err);

/* The inverse distribution function at `u` in (0, 1), linear between percentiles. */
double quantiles_at(const struct quantiles *quantiles, double u);

#endif
