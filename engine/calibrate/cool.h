/* Measuring at the highest clock: a GPU that has worked rests so long that the power it takes on
 * average stays far below its limit, and its clock where it was. */
#ifndef UNMASK_ENGINE_CALIBRATE_COOL_H
#define UNMASK_ENGINE_CALIBRATE_COOL_H

#include <time.h>

#include "engine/device/device.h"

/* Wait after `ns` of work. A device that does not say what it draws has one clock, for all that we
 * know, and needs none. */
static inline void cool(const struct engine_device *device, double ns) {
    static const double rest = 1.0, billion = 1e9;
    double wait = device->counts_energy ? rest * ns : 0;
    struct timespec span = {(time_t)(wait / billion),
                            (long)(wait - billion * (double)(time_t)(wait / billion))};
    if (wait > 0) {
        nanosleep(&span, NULL);
    }
}

#endif
