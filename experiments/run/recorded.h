/* A recorded run, read back whole: its requests as a source of arrivals, its submissions as what a
 * replay executor plays, and what was said of it. */
#ifndef UNMASK_EXPERIMENTS_RUN_RECORDED_H
#define UNMASK_EXPERIMENTS_RUN_RECORDED_H

#include <jansson.h>

#include "analysis/store/store.h"
#include "sim/base/arrival.h"
#include "sim/input/config.h"
#include "sim/serve/executor_replay.h"

struct recorded {
    int64_t run;
    char *trace, *trace_provenance, *backend; /* as stored */
    bool is_simulated;                        /* not carried out on a device */
    json_t *summary;                          /* the object that the run printed */
    const char *incomplete; /* its word on why it was cut short; NULL: it is whole */
    bool unrolls;           /* it could start steps without looking at the one before */
    bool lacks_prefixes;    /* an older unmask did not say which ones requests shared */
    uint64_t seed;
    struct config config; /* the resolved configuration it ran with */
    bool allows_plugins;  /* the caller's word, default false: those that the run loaded may be */
    struct arrival *arrivals;
    size_t n_arrivals;
    struct replay_step *steps;
    size_t n_steps;
};

/* ERR_USAGE when the store has no such run or it was recorded without its steps; ERR_WORLD when it
 * was cut short and an older unmask did not record who was under way. */
int recorded_load(struct store *store, int64_t run, struct recorded **out, struct err *err);
void recorded_close(struct recorded *recorded); /* NULL is fine */

/* A place in the arrivals; `source` borrows both. */
struct recorded_reader {
    const struct recorded *recorded;
    size_t next;
};
struct arrival_source recorded_source(struct recorded_reader *reader);

#endif
