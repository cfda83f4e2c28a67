/* Capacity: the highest rate at which a system meets its objectives.
 *
 * Of each configuration and seed the rate is bisected: every rate meets the same requests with the
 * same draws, their arrivals nearer together or further apart. Rates are asked for, and reported as
 * the run offered them (analysis/offered.h), which a few requests of a random process meet to a few
 * per cent. A rate counts as met when every objective is, the run was steady (a queue that grows
 * until the last arrival meets a bound only because the workload ends; and what cannot be told is
 * not met) and no proof says that no scheduler sustains it (sim/bound/bound.h). The search begins
 * at the throughput with which all requests are served when they come at once, doubles or halves it
 * until it has a rate that is met and one that is not, and halves their ratio until they are nearer
 * than the tolerance. A run on the way ends as soon as the requests still to come cannot change
 * the verdict; what is reported is of whole runs.
 *
 * Nothing promises that a system which meets a rate meets all lower ones. Rates between a quarter
 * and twice the mean capacity are tried as well (they are the curve that is drawn); where one below
 * the capacity misses, the capacity is searched for again below it, so that every rate tried below
 * what is reported was met, and the highest rate met is kept with it. */
#ifndef UNMASK_EXPERIMENTS_STUDY_CAPACITY_H
#define UNMASK_EXPERIMENTS_STUDY_CAPACITY_H

#include <jansson.h>

#include "analysis/objective.h"
#include "experiments/run/compose.h"
#include "experiments/study/released.h"

enum { CAPACITY_CURVE = 8 };

/* What stands between a run and more load, by what was measured while requests waited:
 * - memory: queueing is at least a tenth of the mean latency, and in more than half of the time in
 *   which requests waited less of the KV pool was free than a running request holds;
 * - admission: as much queueing, but there was room: the scheduler or a limit keeps requests out;
 * - host: less queueing, and the GPU works in less than half of the steps' time;
 * - compute: less queueing; it is the steps that take long. */
enum capacity_limit { LIMIT_UNKNOWN, LIMIT_COMPUTE, LIMIT_MEMORY, LIMIT_ADMISSION, LIMIT_HOST };
extern const char *const capacity_limit_words[];

/* A rate that was tried. */
struct trial {
    double rate_per_s;    /* that was asked for; 0: was not tried */
    double offered_req_s; /* at which its requests came */
    bool is_met;
    bool is_cut; /* it misses, and was not run to its end: what follows is not known */
    enum offered_state state;
    uint64_t n_requests, n_together; /* of them at most, on all replicas */
    uint32_t replicas, gpus;
    bool is_alone; /* no request ever met another */
    double values[OBJECTIVES_MOST];
    double attainment;       /* NaN: nothing bounds a request */
    double attained_req_s;   /* attainment * offered */
    double served_req_s;     /* all completed, over the makespan */
    double queue_share;      /* of the mean latency */
    double full_share;       /* of the time in which requests waited: no room for one */
    double gpu_share;        /* of the time of steps; NaN: not known */
    double joules_per_token; /* of an answer; NaN: not known */
    enum capacity_limit limit;
};

enum capacity_state {
    CAPACITY_FOUND,
    CAPACITY_NONE,      /* not even requests that are served alone meet the objectives */
    CAPACITY_UNBOUNDED, /* all requests at once do: the workload is too short to tell */
    CAPACITY_FAILED,    /* see err */
};
extern const char *const capacity_state_words[];

/* One configuration under one seed. */
struct search {
    struct run_request request; /* the caller's; rates are written into a copy */
    enum capacity_state state;
    struct trial met, missed; /* the highest rate that counts, and the lowest above it that misses;
                                 rate 0: there is none */
    struct trial curve[CAPACITY_CURVE];
    double highest_met_req_s; /* offered, above `met` where lower rates miss; 0: there is none */
    uint64_t n_requests, n_together; /* when all come at once */
    double bound_per_s; /* no scheduler keeps up with a higher rate for long; NaN: not known */
    size_t n_runs;
    json_t *summary; /* of the highest rate that was met, else of the last one tried */
    uint32_t gpus;
    struct released released; /* of a fleet: how a released program is started so */
    bool still_moves;         /* a fleet that more requests would make another one */
    struct err err;
    bool has_no_room; /* the system does not fit into the device */
};

struct capacity {
    const struct objectives *objectives;
    double tolerance;   /* 0.01: rates within 1 % */
    double fleet_req_s; /* 0: the highest rate is searched; else the fewest replicas that meet it */
    bool curves;        /* try the rates around the capacity */
    size_t n_configs, n_seeds;
    struct search *searches; /* [n_configs][n_seeds]; the caller's array */
    const volatile sig_atomic_t *stop;
};

enum { FLEET_MOST_REPLICAS = 1024 };

/* Tries a request of a search, at the rate it names; `bound_per_s` as in a search; `may_cut`: the
 * run may end where it is certain to miss. For capacity_find and fleet_find alone. */
int capacity_try(const struct capacity *capacity, struct search *search,
                 const struct run_request *request, double bound_per_s, bool may_cut,
                 struct trial *out, struct err *err);

/* The fewest replicas whose fleet meets capacity->fleet_req_s: search->met, and search->missed with
 * fewer. Requests are doubled until the answer no longer moves by more than the tolerance. */
int fleet_find(const struct capacity *capacity, struct search *search, struct err *err);

/* Fails as a whole when it was interrupted, and as the first configuration did where none has a
 * result. */
int capacity_find(struct capacity *capacity, unsigned n_threads, struct err *err);
void capacity_fini(struct capacity *capacity); /* what it made, not the searches */

/* The highest rate that was met, as it was offered; 0 of CAPACITY_NONE, NaN where it is not known.
 */
double search_capacity(const struct search *search);
static inline bool search_is_monotone(const struct search *search) {
    return !(search->highest_met_req_s > search->met.offered_req_s);
}

/* Whether all together are hardly more than run at once: the run ends before a queue forms. */
bool search_has_few_requests(const struct search *search);

#endif
