/* A tape: a run's records kept in memory, to be played into another sink later.
 *
 * Runs that go on at the same time are taped and then written to a database one after the other, so
 * that the database does not depend on the number of threads. */
#ifndef UNMASK_EXPERIMENTS_RUN_TAPE_H
#define UNMASK_EXPERIMENTS_RUN_TAPE_H

#include <stddef.h>

#include "analysis/store.h"

struct tape {
    unsigned char *bytes;
    size_t size, room;
};

/* Appends what `level` keeps to the tape, which starts zeroed and must outlive the sink. */
struct sink tape_sink(struct tape *tape, enum store_level level);

/* Everything in the order in which it was taped. */
int tape_play(const struct tape *tape, const struct sink *sink, struct err *err);

void tape_fini(struct tape *tape);

#endif
