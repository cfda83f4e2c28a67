/* Warming up: products are run once at sizes up to the largest, so that a device that chooses how
 * to run them by trying has chosen before anyone waits. */
#ifndef UNMASK_ENGINE_WARM_H
#define UNMASK_ENGINE_WARM_H

#include "engine/program.h"
#include "engine/room.h"
#include "engine/weights.h"

struct warming {
    const struct engine_device *device;
    const struct program *program;
    const struct weights *weights;
    const struct step_limits *limits;
    struct room *room; /* its workspace is overwritten */
};

/* Nothing on a device that records nothing. */
int warm_products(const struct warming *warming, struct err *err);

#endif
