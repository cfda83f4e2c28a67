/* How many batches of two recorded runs of the same requests are equal.
 *
 * A batch is a step of a replica: who takes part in which order, after how many steps of its own,
 * and how many of them are in each phase. So a batch that came one step later than in the other run
 * is still the same decision about the same state. */
#ifndef UNMASK_EXPERIMENTS_RUN_SAME_BATCHES_H
#define UNMASK_EXPERIMENTS_RUN_SAME_BATCHES_H

#include <jansson.h>
#include <stdio.h>

#include "analysis/store/store.h"

enum { SAME_BATCHES_WHY_CHARS = 160 };

struct same_batches {
    int64_t run, other;
    uint64_t n, n_equal; /* of the run that has more steps, and those that both have */
    uint64_t first;      /* the first step of `run` that the other has not, from 0; n where all are
                            equal */
    char why[SAME_BATCHES_WHY_CHARS]; /* "" where all are equal */
};

/* Both runs are recorded with their steps. ERR_USAGE where one has none, or is not there. */
int same_batches_count(struct store *store, int64_t run, int64_t other, struct same_batches *out,
                       struct err *err);

/* One line, and the same as JSON, which the caller owns. */
void same_batches_print(const struct same_batches *same, FILE *out);
json_t *same_batches_json(const struct same_batches *same);

#endif
