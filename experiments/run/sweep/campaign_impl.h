/* What the parts of a campaign share; no other file includes this. */
#ifndef UNMASK_EXPERIMENTS_RUN_SWEEP_CAMPAIGN_IMPL_H
#define UNMASK_EXPERIMENTS_RUN_SWEEP_CAMPAIGN_IMPL_H

#include <pthread.h>

#include "experiments/run/cli/progress.h"
#include "experiments/run/ranks/pool.h"
#include "experiments/run/recorder.h"
#include "experiments/run/sweep/campaign.h"
#include "experiments/run/sweep/claims.h"
#include "experiments/run/sweep/handed.h"
#include "sim/base/input/sha256.h"

/* A run between its end and its turn to be recorded. */
struct pending {
    struct composition *composition; /* NULL: nothing to record */
    struct recorder *recorder;
    struct handed *handed;         /* of a run that another rank has computed, instead of both */
    char digest[SHA256_HEX_CHARS]; /* of its identity; "": not known yet, or it has none */
    struct recording recording;    /* of the transaction that it is in */
    bool has_waited;               /* another program ran it, or runs it */
    bool is_decided;               /* of a helper: rank 0 has its result, or knows who has */
};

/* A run that the database held before. */
struct known {
    char config[SHA256_HEX_CHARS]; /* digest of the configuration */
    int64_t run;
    bool is_damaged;
};

struct work {
    struct campaign *campaign;
    struct store *store;   /* NULL: nothing is recorded */
    struct claims *claims; /* NULL: nothing is shared */
    struct known *known;   /* by configuration, then run */
    size_t n_known, room_known;
    struct pending *pending;
    size_t *round;        /* points to be tried */
    pthread_mutex_t lock; /* over everything below, the store and the claims */
    json_t *contents;     /* {path: digest} of the files that points have read */
    struct protocol protocol;
    struct protocol_point *points;
    const char **own; /* digests that this campaign runs: a hash table of room_own places */
    size_t room_own;
    size_t kept_bytes; /* of what has ended and is not recorded */
    size_t n_done;
    bool
        has_seen_one; /* of the points that were elsewhere, one was looked at and is not any more */
    int64_t waits_since_ns, tell_at_ns; /* of waiting for others without seeing one */
    struct progress progress;
    struct err store_err; /* the last one of recording */
};

/* Where a point is run: here, not at all since it is recorded, or by another program. */
enum place_of_run { RUN_HERE, RUN_BEFORE, RUN_ELSEWHERE };

/* ---- campaign_turn.c: what the database holds, and whose turn it is ---- */

/* A sink of store_list_runs: the runs that the database held before. */
int campaign_keep_known(void *state, const struct stored_run *run, struct err *err);
/* ... which are then put in order. */
void campaign_sort_known(struct work *work);

/* Under the lock: takes a point's result from the database. What cannot be read now is run. */
bool campaign_take_recorded(struct work *work, struct campaign_point *point, const char *digest);

/* The steps of the protocol on the work's store and claims. */
extern const struct protocol_ops campaign_ops;

static inline enum point_state campaign_state(const struct work *work, size_t i) {
    return (enum point_state)work->points[i].state;
}

/* Of a point that is composed. Where it is to be run here, it is claimed. */
enum place_of_run campaign_turn(struct work *work, size_t i, const char *config,
                                const json_t *identity);
/* The same of a helper, which asks rank 0, and rank 0's answer. */
enum place_of_run campaign_ask_for_turn(struct work *work, size_t i, const char *config,
                                        const json_t *identity);
void campaign_answer_turn(void *state, struct parcel *question, struct parcel *answer);

/* ---- campaign_ranks.c: what goes between ranks, of pool.h ---- */

void campaign_put(void *state, size_t index, struct parcel *out);
void campaign_take(void *state, size_t index, struct parcel *in);

/* ---- campaign.c ---- */

/* A point is over, here or on another rank, or another program runs it. */
void campaign_come_in(struct work *work, size_t i, struct composition *composition,
                      struct handed *handed);
void campaign_drop_records(struct pending *pending);
size_t campaign_kept_bytes(const struct pending *pending); /* of memory */
static inline bool campaign_has_records(const struct pending *pending) {
    return pending->composition != NULL || pending->handed != NULL;
}
void campaign_point_fini(struct campaign_point *point);

#endif
