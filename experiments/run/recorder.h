/* A recorder: what becomes of a run in a database while others use it, too.
 *
 * The run only puts its records on a tape (tape.h) and never waits for a disk or a lock. A
 * simulated run, which can be had again, is written in one transaction once it is over. A run of a
 * device is written as it goes, by a thread of its own, about once a second, and stands in the
 * database as an incomplete one from its first second on: a program that is killed loses the last
 * second at most. */
#ifndef UNMASK_EXPERIMENTS_RUN_RECORDER_H
#define UNMASK_EXPERIMENTS_RUN_RECORDER_H

#include <stdbool.h>

#include "analysis/store/protocol.h"
#include "analysis/store/store.h"
#include "experiments/run/ranks/parcel.h"

struct recorder;

/* The note in a run that is written as it goes, until it is over. */
extern const char recorder_unfinished[];

/* `store` is borrowed, and texts of the facts have to stay; without a store the run can only be
 * handed over. With `as_it_goes` records are written
 * while the run is under way, and the caller must not use the store until recorder_end. */
struct recorder *recorder_open(struct store *store, const struct run_facts *facts,
                               const struct slo *slo, enum store_level level, bool as_it_goes);

/* Its sink, which one thread at a time may call. */
struct sink recorder_sink(struct recorder *recorder);

/* The run is over. */
void recorder_end(struct recorder *recorder);

/* A run that is over, as it is to be recorded. */
struct recording {
    struct recorder *recorder;
    const struct summary *summary;
    const char *text; /* of the summary, instead */
    const struct run_facts *facts;
    /* What becomes of it. */
    int64_t run;   /* its number; where it is not recorded, that of the part that was written before
                      as an incomplete one, 0: none was */
    bool was_held; /* it was on record, as run `run`, and is not recorded again */
    struct err err;
};

/* Writes what is not written, unless the database holds a whole run of the same identity of which
 * as much is recorded; what a device has measured is always written. By the steps of the protocol;
 * on an error it may be tried again. */
int recorder_finish(struct recording *recording, struct err *err);

/* The steps themselves; all but the first are done in the transaction that it begins. */
enum protocol_answer recording_begin(struct recording *recording, bool waits);
enum protocol_answer recording_holds(struct recording *recording);
enum protocol_answer recording_put(struct recording *recording);
enum protocol_answer recording_commit(struct recording *recording, bool waits);
void recording_roll_back(struct recording *recording);

/* What was recorded of a run that is over goes to a recorder that has nothing yet, of another rank,
 * which is then ended with the text of its summary. */
void recorder_put(const struct recorder *recorder, struct parcel *out);
void recorder_take(struct recorder *recorder, struct parcel *in);

/* Of memory that it holds. */
size_t recorder_bytes(const struct recorder *recorder);

/* Ends it; what was not written is dropped. NULL is fine. */
void recorder_close(struct recorder *recorder);

#endif
