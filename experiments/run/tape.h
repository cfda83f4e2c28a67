/* A tape: a run's records kept, to be played into another sink later.
 *
 * A run is taped and then written to a database, so that it holds no lock while it goes on, and
 * runs that go on at the same time are written one after the other, whatever the number of threads.
 * A long tape goes on in a file without a name, which is gone when the program ends. */
#ifndef UNMASK_EXPERIMENTS_RUN_TAPE_H
#define UNMASK_EXPERIMENTS_RUN_TAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/store/store.h"

struct tape {
    const char *beside;   /* whose folder a long tape may use; NULL: none, all is memory */
    unsigned char *bytes; /* what is not in the file */
    size_t size, room;
    size_t n_filed; /* bytes in the file */
    int file;       /* open where n_filed is above 0 */
};

/* Appends what `level` keeps to the tape, which starts zeroed and must outlive the sink. */
struct sink tape_sink(struct tape *tape, enum store_level level);

/* Who has arrived is kept only where the caller says so. */
void tape_arrival(struct tape *tape, const struct arrival *arrival);

/* Everything in the order in which it was taped. */
int tape_play(const struct tape *tape, const struct sink *sink, struct err *err);

static inline bool tape_is_empty(const struct tape *tape) {
    return tape->size == 0 && tape->n_filed == 0;
}

/* Forgets what is on it. */
void tape_clear(struct tape *tape);
void tape_fini(struct tape *tape);

#endif
