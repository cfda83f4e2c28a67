/* Warming up: products are run once at sizes up to the largest, so that a device that chooses how
 * to run them by trying has chosen before anyone waits. */
#ifndef UNMASK_ENGINE_STEP_WARM_H
#define UNMASK_ENGINE_STEP_WARM_H

#include "engine/op/issue.h"
#include "engine/op/step.h"

/* Who is told how far warming up is, and may end it: 0, or an error. */
struct warm_watch {
    int (*told)(void *state, uint64_t n_done, uint64_t n_total, struct err *err);
    void *state;
};

struct warming {
    const struct issue *issue; /* of the graph's steps; the room's workspace is overwritten */
    const struct step_limits *limits;
    struct room *room;              /* the same as the issue's */
    const struct warm_watch *watch; /* NULL: no one */
};

/* Nothing on a device that chooses nothing. */
int warm_products(const struct warming *warming, struct err *err);

/* Whether the device has chosen for all products of a step; have it choose, and wait until it is
 * done. Of a step that evicts for whatever number of tokens may be left. What the workspace holds
 * of the step before is lost. */
bool warm_knows_step(const struct warming *warming, const struct step *step);
int warm_step(const struct warming *warming, const struct step *step, struct err *err);

#endif
