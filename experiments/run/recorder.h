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

#include "analysis/store/store.h"
#include "experiments/ranks/parcel.h"

struct recorder;

/* What a run that is written as it goes says of itself until it is over. */
extern const char recorder_unfinished[];

/* `store` is borrowed, and texts of the facts have to stay; without a store the run can only be
 * handed over. With `as_it_goes` records are written
 * while the run is under way, and the store is nobody else's until recorder_end. */
struct recorder *recorder_open(struct store *store, const struct run_facts *facts,
                               const struct slo *slo, enum store_level level, bool as_it_goes);

/* Its sink, which one thread at a time may call. */
struct sink recorder_sink(struct recorder *recorder);

/* The run is over. */
void recorder_end(struct recorder *recorder);

/* Writes what is not written. `*run` is its number. On an error that part of the run is in the
 * database, as an incomplete one, that had been written before; *run is then its number, or 0 where
 * there is none; and it may be tried again. */
int recorder_finish(struct recorder *recorder, const struct summary *summary,
                    const struct run_facts *facts, int64_t *run, struct err *err);

/* What was recorded of a run that is over goes to a recorder that has nothing yet, of another rank,
 * which is then ended with the text of its summary. */
void recorder_put(const struct recorder *recorder, struct parcel *out);
void recorder_take(struct recorder *recorder, struct parcel *in);
int recorder_finish_text(struct recorder *recorder, const char *summary,
                         const struct run_facts *facts, int64_t *run, struct err *err);

/* Of memory that it holds. */
size_t recorder_bytes(const struct recorder *recorder);

/* Ends it; what was not written is dropped. NULL is fine. */
void recorder_close(struct recorder *recorder);

#endif
