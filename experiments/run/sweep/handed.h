/* A run that one rank has computed and rank 0 records: its records and the row that it gets. */
#ifndef UNMASK_EXPERIMENTS_RUN_SWEEP_HANDED_H
#define UNMASK_EXPERIMENTS_RUN_SWEEP_HANDED_H

#include "experiments/run/compose.h"
#include "experiments/run/ranks/parcel.h"
#include "experiments/run/recorder.h"

struct handed;

/* Of a run that is over and whole. */
void handed_put(const struct composition *composition, const struct recorder *recorder,
                struct parcel *out);

/* `store` is borrowed. The caller closes it; NULL is fine. */
struct handed *handed_take(struct store *store, enum store_level level, struct parcel *in);
void handed_close(struct handed *handed);

/* What recorder.h records of it. */
struct recording handed_recording(const struct handed *handed);

size_t handed_bytes(const struct handed *handed); /* of memory that it holds; of NULL: none */

#endif
