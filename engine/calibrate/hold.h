/* Holding a step: repeating it, from an idle card, until the clock is stable; its time at first and
 * in the end, its power, and how long the change took. */
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

/* Fills the measured part of *out, its watts corrected for idling at `idle_w`. */
int hold_step(const struct hold_request *request, double idle_w, struct power_sample *out,
              struct err *err);

/* The device's idle power, its context open; 0 where it does not report it. */
double hold_idle_w(const struct hold_request *request);

/* How long a hold takes, its rests and the step that is under way in the end among it. */
double hold_takes_ns(void);

#endif
