/* Steps in memory as a record that is replayed. */
#ifndef UNMASK_TESTS_SUPPORT_PLAYED_H
#define UNMASK_TESTS_SUPPORT_PLAYED_H

#include "sim/serve/executor_replay.h"

/* Steps [0, n) in the order of their ends; `next` is 0 before a replay begins. */
struct played {
    struct replay_step *steps;
    size_t n, next;
};

static inline int played_read(void *state, struct replay_step **out, struct err *err) {
    struct played *played = (struct played *)state;
    (void)err;
    *out = played->next < played->n ? &played->steps[played->next++] : NULL;
    return 0;
}

static inline void played_drop(struct replay_step *step) {
    (void)step;
}

static inline struct replay_record played_record(struct played *played) {
    struct replay_record record = {0};
    record.state = played;
    record.read = played_read;
    record.drop = played_drop;
    record.n_steps = played->n;
    record.shares_prefixes = true;
    record.has_positions = played->n > 0 && played->steps[0].positions != NULL;
    return record;
}

#endif
