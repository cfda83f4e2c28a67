/* A recorded run: its requests as a source of arrivals, its submissions for a replay executor,
 * which are read as they are played, and its facts. */
#ifndef UNMASK_EXPERIMENTS_RUN_RECORDED_H
#define UNMASK_EXPERIMENTS_RUN_RECORDED_H

#include <jansson.h>

#include "analysis/store/store.h"
#include "sim/base/arrival.h"
#include "sim/base/input/config.h"
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
    struct arrival *arrivals; /* in the order of their arrival */
    size_t n_arrivals;
    bool follows; /* some arrivals became known by the end of other requests */
    size_t n_steps;
    bool has_positions;  /* of its steps */
    struct store *store; /* borrowed */
};

/* ERR_USAGE when the store has no such run or it was recorded without its steps; ERR_WORLD when it
 * was cut short and an older unmask did not record who was under way. The store stays open for as
 * long as the run is played. */
int recorded_load(struct store *store, int64_t run, struct recorded **out, struct err *err);
/* The same without its steps, which need not have been recorded: for its arrivals alone. */
int recorded_load_traffic(struct store *store, int64_t run, struct recorded **out, struct err *err);
void recorded_close(struct recorded *recorded); /* NULL is fine */

/* A place in the record. */
struct recorded_reader;
struct recorded_reader *recorded_reader_open(const struct recorded *recorded);
void recorded_reader_close(struct recorded_reader *reader); /* NULL is fine */

/* The arrivals: each becomes known when the loop that made the record knew of it. */
struct arrival_source recorded_source(struct recorded_reader *reader);

/* The steps, for a replay executor. */
struct replay_record recorded_steps(struct recorded_reader *reader);

#endif
