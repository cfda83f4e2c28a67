/* A pool: numbered pieces of work shared out to threads, of this program and of other ranks. */
#ifndef UNMASK_EXPERIMENTS_RUN_RANKS_POOL_H
#define UNMASK_EXPERIMENTS_RUN_RANKS_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "experiments/run/ranks/parcel.h"

enum { POOL_MOST_THREADS = 256 };

struct pool {
    size_t n;
    unsigned n_threads; /* of each rank */
    void *state;
    /* Called once for every i < n, each from one of the threads, lower numbers begun first. */
    void (*work)(void *state, size_t i);

    /* What goes between ranks; `put` NULL: rank 0 does it all, as it does where there are no
     * others. Of a piece that another rank works on, rank 0 puts what that has to know and the
     * other takes it, then works; then that one puts what it found, and rank 0 takes it instead of
     * working itself. Rank 0 calls them from one thread, while its others work. */
    void (*put)(void *state, size_t i, struct parcel *out);
    void (*take)(void *state, size_t i, struct parcel *in);
    /* On rank 0, in the same thread: the answer to pool_ask. NULL: pool_ask is not used. */
    void (*answer)(void *state, struct parcel *question, struct parcel *answer);
};

/* Returns when all pieces are done: on another rank than 0, when there are no more for it. Where
 * the program is interrupted it returns soon, and what other ranks had begun may be undone. */
void pool_run(const struct pool *pool);

/* From `work` on another rank: puts a question to rank 0 and waits for its answer, the caller's to
 * end. False: there is none, the command is over. */
bool pool_ask(const struct parcel *question, struct parcel *answer);

#endif
