/* The requests of a run by whose they are: a summary for each tenant, and how evenly they were
 * served.
 *
 * What a tenant's requests say is said by the columns of a run's (analysis/run_columns.c), rates
 * over the run's makespan. A tenant's service is the query tokens of all its requests' steps;
 * fairness over n tenants is Jain's index, (sum of x)^2 / (n sum of x^2), from 1/n to 1 (Jain, Chiu
 * and Hawe, DEC-TR-301, 1984), all weights 1. */
#ifndef UNMASK_ANALYSIS_GROUPS_H
#define UNMASK_ANALYSIS_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/serve/record.h"

struct summary;
struct slo;

struct group {
    uint32_t key;            /* a tenant's number */
    struct summary *summary; /* of its requests; steps are not told apart */
};

/* By key. Of more than GROUPS_MOST nothing is known: n is 0. */
enum { GROUPS_MOST = 1024 };
struct groups {
    struct group *items;
    size_t n, room;
    bool are_too_many;
};

/* The summary that a request of this key counts in; NULL where there are too many. */
struct summary *groups_of(struct groups *groups, uint32_t key, const struct slo *slo);

/* `*to` becomes a copy, also the caller's to end. */
void groups_copy(const struct groups *from, struct groups *to);

/* Of one group alone nothing is kept: it is the run. */
void groups_finish(struct groups *groups, const struct summary *run);
void groups_fini(struct groups *groups);

/* A group's share of the run's service; NaN where there was none. */
double groups_share(const struct summary *of, const struct summary *run);

/* Jain's index of their service; NaN of fewer than two, or of no service. */
double groups_fairness(const struct groups *groups);

#endif
