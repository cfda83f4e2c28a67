/* What compare knows: several systems under one workload and the same seeds, and how it is shown.
 */
#ifndef UNMASK_EXPERIMENTS_RUN_SWEEP_COMPARISON_H
#define UNMASK_EXPERIMENTS_RUN_SWEEP_COMPARISON_H

#include "experiments/run/asked.h"
#include "experiments/run/sweep/campaign.h"
#include "experiments/run/sweep/over.h"
#include "experiments/run/sweep/sample.h"

enum { COMPARISON_NAME_CHARS = 512 }; /* a system, a key, a value twice */

/* With --over each system stands there once for each value of a key. */
struct comparison {
    char systems[ASKED_MOST_SYSTEMS][ASKED_NAME_CHARS]; /* [n_systems] */
    struct over over;                                   /* of no values without --over */
    struct asked *variants; /* [n_values], what is asked with each; NULL: `asked` */
    struct against against; /* whom ratios and differences are to; not given: the first */
    size_t against_at;      /* its place among the systems, or the values of --over */
    size_t n_systems, n_values;
    char names[ASKED_MOST_SYSTEMS][COMPARISON_NAME_CHARS]; /* [n_systems][n_values], as shown */
    char values[ASKED_MOST_SYSTEMS][OVER_NAME_CHARS]; /* [n_values], those of --over as shown */
    size_t n, n_seeds;
    struct campaign_point *points; /* [n][n_seeds] */
    struct sample samples[ASKED_MOST_SYSTEMS];
    struct warnings warnings[ASKED_MOST_SYSTEMS]; /* of the runs, and of the comparison */
    json_t **same; /* [n][n_seeds], by the requests that all served; NULL: not asked */
    bool has_slo, has_bound;
    struct asked asked;
};

/* Whom number `i` is compared with: what differs from it in the key of --against alone. */
size_t comparison_base(const struct comparison *comparison, size_t i);

/* What all are compared with, as a sentence names it. Returns `text`. */
const char *comparison_base_name(const struct comparison *comparison,
                                 char text[AGAINST_NAME_CHARS]);

/* Once the points have run: samples and warnings. */
void comparison_settle(struct comparison *comparison);

/* Measure by the requests that every system served with that seed. Before comparison_settle; the
 * campaign has kept the requests. */
int comparison_same_requests(struct comparison *comparison, struct err *err);

void comparison_print(const struct comparison *comparison, FILE *out);
json_t *comparison_json(const struct comparison *comparison);

/* Releases what it made, not the points. */
void comparison_fini(struct comparison *comparison);

#endif
