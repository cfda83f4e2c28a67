/* The requests of a run in groups, by tenant or by priority: a summary for each group, and how
 * evenly they were served.
 *
 * What a group's requests say is said by the columns of a run's (analysis/run_columns.c), rates
 * over the run's makespan. A group's service is the query tokens of all its requests' steps;
 * fairness over n groups is Jain's index, (sum of x)^2 / (n sum of x^2), from 1/n to 1 (Jain, Chiu
 * and Hawe, DEC-TR-301, 1984), all weights 1. */
#ifndef UNMASK_ANALYSIS_GROUPS_H
#define UNMASK_ANALYSIS_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/serve/record.h"

struct summary;
struct slo;

/* A way to group. */
enum grouping { BY_TENANT, BY_PRIORITY, GROUPING_COUNT };
struct grouping_words {
    const char *field;    /* of a request, and in the object of each group: "tenant" */
    const char *list;     /* where a run has these objects: "tenants" */
    const char *fairness; /* where it has Jain's index of them */
};
extern const struct grouping_words grouping_words[GROUPING_COUNT];

uint32_t grouping_key(enum grouping by, const struct request_record *record);

struct group {
    uint32_t key;            /* a tenant's number, or a priority */
    struct summary *summary; /* of its requests; steps are not told apart */
};

/* By key. One group is the run, and has no summary before there is a second one. Of more than
 * GROUPS_MOST nothing is known: n is 0. */
enum { GROUPS_MOST = 1024 };
struct groups {
    struct group *items;
    size_t n, room;
    uint32_t first; /* the key of the run's first request */
    bool are_too_many;
};

/* The summary that the run's next request, of this key, counts in as well; NULL: in none. */
struct summary *groups_of(struct groups *groups, uint32_t key, const struct summary *run);

/* `*to` becomes a copy, also the caller's to end. */
void groups_copy(const struct groups *from, struct groups *to);

void groups_finish(struct groups *groups, const struct summary *run);
void groups_fini(struct groups *groups);

/* A group's share of the run's service; NaN where there was none. */
double groups_share(const struct summary *of, const struct summary *run);

/* Jain's index of their service; NaN of fewer than two, or of no service. */
double groups_fairness(const struct groups *groups);

#endif
