/* Waiting requests in an order that is kept from call to call by what a scheduler is told, in its
 * memory of each request. A decision then costs as many as it starts, however many wait. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_RANKS_H
#define UNMASK_SIM_POLICY_SCHEDULER_RANKS_H

#include <stdbool.h>

#include "sim/policy/scheduler/scheduler.h"

/* ---- one after the other ---- */

/* Links are a slot and one, 0: none. */
struct lined {
    uint32_t before, after;
};

struct line {
    uint32_t first, last;
};
void line_append(struct line *line, struct lined *own, uint32_t slot);
void line_drop(struct line *line, struct lined *own, uint32_t slot);

/* ---- by a key, the least first, on a tie the one that was put there earlier ---- */

struct ranked {
    double key;
    uint64_t place;                      /* the n-th that was put there */
    uint32_t left, right, before, after; /* in the tree, and in its order */
    /* What turns.h keeps of a request: whether it runs, and from when on it need not start any
     * more, 0: at no time. The other two are left to the scheduler. */
    uint32_t runs, level;
    int64_t latest_ns, allowance;
};

/* Part of a scheduler's state, zeros at first. */
struct ranks {
    uint32_t root, first, last;
    uint64_t n_places;
};
bool ranked_is_before(const struct ranked *a, const struct ranked *b);
void ranks_put(struct ranks *ranks, struct ranked *own, uint32_t slot, double key);
void ranks_drop(struct ranks *ranks, struct ranked *own, uint32_t slot);

#endif
