/* Holding a step: the same step again and again, from a card that has rested, until its clock has
 * settled; what it took at first and in the end, what it drew, and how long the change took. */
#ifndef UNMASK_ENGINE_CALIBRATE_HOLD_H
#define UNMASK_ENGINE_CALIBRATE_HOLD_H

#include "engine/calibrate/power_fit.h"
#include "engine/device/device.h"

struct hold_request {
    const struct engine_device *device;
    int (*run)(void *state, double *device_ns, struct err *err); /* one step */
    void *state;
    int64_t (*now_ns)(void *state); /* the host's clock */
    void *clock_state;
};

/* Fills the measured part of *out, its watts beside a rest that draws `idle_w`. */
int hold_step(const struct hold_request *request, double idle_w, struct power_sample *out,
              struct err *err);

/* What the device draws at rest, its context open; 0 where it does not say. */
double hold_idle_w(const struct hold_request *request);

/* How long a hold takes, its rests and the step that is under way in the end among it. */
double hold_takes_ns(void);

#endif
