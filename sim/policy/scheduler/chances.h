/* How likely a masked position that runs is to be committed, by what is known of it before: learned
 * from what became of those that ran. For schedulers that say which of them run (says_rows). */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_CHANCES_H
#define UNMASK_SIM_POLICY_SCHEDULER_CHANCES_H

#include <stdbool.h>

#include "sim/policy/scheduler/scheduler.h"

enum { CHANCES_MOST_POSITIONS = 256, CHANCES_KINDS = 64 };

/* A scheduler's own, zeros at first: of each kind of position how many ran and were committed. A
 * kind of which none has run is taken to be committed for certain, so that it is tried. */
struct chances {
    double ran[CHANCES_KINDS], committed[CHANCES_KINDS];
};

/* Of a request, in its scheduler's memory: the masked positions that its last step ran. */
struct chances_told {
    uint32_t first; /* of the window that they were in */
    uint32_t n;
    uint16_t offset[CHANCES_MOST_POSITIONS];
    uint8_t kind[CHANCES_MOST_POSITIONS];
};

static inline double chances_of(const struct chances *chances, uint32_t kind) {
    return (chances->committed[kind] + 1) / (chances->ran[kind] + 1);
}

/* What became of those that the request's last step ran; `masked`: its masked positions now. */
void chances_learn(struct chances *chances, struct chances_told *told,
                   const struct request *request, const struct masked_seen *masked, uint32_t n);

/* One more that its next step runs. */
static inline void chances_tell(struct chances_told *told, const struct request *request,
                                uint32_t offset, uint32_t kind) {
    told->first = window_first(request);
    told->offset[told->n] = (uint16_t)offset;
    told->kind[told->n++] = (uint8_t)kind;
}

/* Positions that a step is expected to commit that runs the first 1, 2, ... n of positions of these
 * chances: their sum, and what a decoder commits in any case where none of them would be. out[n]:
 * what each adds, made never to increase, so that the best of several requests' are the first of
 * each. */
void chances_gains(const double *chances, uint32_t n, double *out);

#endif
