/* Service-level objectives of a whole run, and whether it met them.
 *
 *   OBJECTIVES  [tenant N:] TERM, TERM, ...
 *   TERM        STATISTIC METRIC < TIME   of all requests: p99 latency<30s, mean ttft<2s, max
 * tpot<1s METRIC < TIME             of every request that is to count as good: latency<30s goodput
 * > PERCENT         how many must be good: goodput>99%; or attainment>99%
 *
 * Statistics are mean, max and p0 to p100, metrics latency (or e2e, e2el), ttft, tpot and queue as
 * the summary has them (summary.h). A bound is met where it is reached. Terms after "tenant N:"
 * are of that tenant's requests, others of all.
 *
 * A request is good when it was served within every bound that speaks of it (DistServe, OSDI 2024,
 * section 2: the share of those is the SLO attainment). What bounds a request in a metric is a term
 * without a statistic, else the loosest of its percentile and max terms; means bound no request.
 * Who was rejected was served never: he is in every statistic, above every bound. */
#ifndef UNMASK_ANALYSIS_OBJECTIVE_H
#define UNMASK_ANALYSIS_OBJECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/serve/record.h"

enum objective_metric {
    METRIC_LATENCY,
    METRIC_TTFT,
    METRIC_TPOT,
    METRIC_QUEUE,
    N_METRICS,
    METRIC_GOODPUT = N_METRICS, /* the share of good requests */
};

enum objective_statistic { STATISTIC_EACH, STATISTIC_MEAN, STATISTIC_QUANTILE, STATISTIC_SHARE };

enum { OBJECTIVES_MOST = 16, OBJECTIVE_CHARS = 112 };

struct objective {
    char text[2 * OBJECTIVE_CHARS]; /* "tenant 1: p99 latency<30s" */
    char name[OBJECTIVE_CHARS];     /* the same without its bound */
    enum objective_statistic statistic;
    enum objective_metric metric;
    double quantile; /* 0.99; 1 of max */
    double bound;    /* seconds, or a share */
    int64_t tenant;  /* -1: all requests */
};

struct objectives {
    struct objective items[OBJECTIVES_MOST];
    size_t n;
};

/* Adds the terms of a text; ERR_USAGE with what was found and expected. */
int objectives_add(struct objectives *objectives, const char *text, struct err *err);

/* Once all are there: ERR_USAGE where there is none, or where what bounds a request and how many
 * must be good do not go together. */
int objectives_check(const struct objectives *objectives, struct err *err);

/* One request that left: seconds by metric, INFINITY where it was rejected, NaN where it has none.
 */
struct served {
    double seconds[N_METRICS];
    uint32_t tenant;
};
struct served served_of(const struct request_record *record);

/* What a term speaks of: seconds or a share; NaN where it speaks of no request. */
double objective_value(const struct objectives *objectives, size_t term,
                       const struct served *served, size_t n);
bool objective_is_met(const struct objective *objective, double value);
/* All of them, by the values of the terms: [n]. */
bool objectives_are_met(const struct objectives *objectives, const double *values);

/* Whether a request is beyond the bound of a term that counts requests: a quantile's, or a share's,
 * of which it is not good. And whether a term is missed once `n_passed` of at most `n` requests are
 * beyond its bound, whatever the rest do; of a mean that is never known before all have left. */
bool objective_is_passed(const struct objectives *objectives, size_t term,
                         const struct served *served);
bool objective_is_lost(const struct objective *objective, size_t n_passed, size_t n);

/* Whether the term bounds a time of the run, rather than of each request, or a share. */
static inline bool objective_is_of_time(const struct objective *objective) {
    return objective->statistic == STATISTIC_MEAN || objective->statistic == STATISTIC_QUANTILE;
}

/* The share of good requests among all; NaN where nothing bounds a request. */
double objectives_attainment(const struct objectives *objectives, const struct served *served,
                             size_t n);

#endif
