/* A campaign: many runs on threads, their results in the order in which they were asked for.
 *
 * Results, and what is recorded, do not depend on the number of threads, nor on that of ranks
 * (experiments/run/ranks): runs of other ranks are recorded by rank 0, and what a device executes
 * is run by rank 0 alone. A run that the database already holds, of equal identity
 * (analysis/identity.h), is taken from it and not run again; one of equal configuration and another
 * identity is run again, and the point says why. Campaigns that resume on one database at the same
 * time share its points: what one of them runs, the others wait for, and run themselves when it has
 * ended without recording it. */
#ifndef UNMASK_EXPERIMENTS_RUN_SWEEP_CAMPAIGN_H
#define UNMASK_EXPERIMENTS_RUN_SWEEP_CAMPAIGN_H

#include <jansson.h>

#include "experiments/run/compose.h"

struct campaign_point {
    struct run_request request;
    /* Written by campaign_run. */
    json_t *summary;                 /* as `run --json` prints it; NULL: see err */
    char *notes;                     /* the lines of compose_print; NULL where it was not run now */
    struct request_record *requests; /* as they left; NULL unless the campaign keeps them */
    size_t n_requests, requests_room;
    struct err err;     /* why there is no result */
    bool was_stored;    /* taken from the database */
    bool was_shared;    /* ... into which another campaign put it meanwhile */
    char stale[512];    /* why it was run again although the configuration was recorded; "" */
    bool has_no_room;   /* the system does not fit into the device: a result, not a failure */
    bool is_unrecorded; /* has a result that the database did not take */
};

struct campaign {
    struct campaign_point *points;
    size_t n;
    const char *db; /* NULL: nothing is recorded */
    enum store_level level;
    bool resumes;        /* skip what the database holds */
    bool any_build;      /* ... also where another build of this program recorded it */
    bool keeps_requests; /* of every point; not with resumes */
    bool takes_some;     /* a point asked for wrongly is one without a result, but where all are */
    size_t shard, n_shards; /* run every n_shards-th point, from this one on; 0: all of them */
    bool bounds; /* each summary has what no scheduler can beat (experiments/run/limit.h) */
    const volatile sig_atomic_t *stop;
    /* Written by campaign_run. */
    size_t n_unrecorded;   /* points */
    size_t n_held;         /* points that were run, and then on record already */
    struct err record_err; /* why */
};

/* A database that cannot be written holds nothing up: what it does not take is kept and tried
 * again, at the end with waiting for locks, and then counted. Fails as a whole only where the
 * database cannot be opened, or when a point was asked for wrongly (ERR_USAGE; the first one's
 * words) and `takes_some` does not take it. Interrupted points have an err. */
int campaign_run(struct campaign *campaign, unsigned n_threads, struct err *err);
/* `status`, or ERR_WORLD where it is 0 and there are results that were not recorded; says which. */
int campaign_check_recorded(const struct campaign *campaign, int status, struct err *err);

/* Whether a point is of the campaign's shard. */
static inline bool campaign_has(const struct campaign *campaign, size_t i) {
    return campaign->n_shards == 0 || i % campaign->n_shards == campaign->shard;
}

void campaign_fini(struct campaign *campaign); /* what campaign_run made, not the points */

#endif
