/* How long each turn of a step took that is issued turn by turn: an event behind each of them, so
 * that the device's queue need not run dry in between. */
#ifndef UNMASK_ENGINE_STEP_TURN_TIMES_H
#define UNMASK_ENGINE_STEP_TURN_TIMES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/device/device.h"

struct turn_end {
    struct device_event *event;
    uint32_t op;
};

/* All zero at first; events of earlier steps are used again. */
struct turn_times {
    struct turn_end *ends; /* owned; `room` of them, some without an event yet */
    size_t n, room;
};

/* Of a step of about so many turns: their events are opened now, while no rank waits for another.
 * enum device_status, as all below. */
int turn_times_begin(struct turn_times *times, const struct engine_device *device, size_t n_turns);

/* A turn of this operator has been issued. */
int turn_times_end(struct turn_times *times, const struct engine_device *device, uint32_t op);

/* Waits for the last turn and adds the device time of each to ns[op], the first from `begin`. */
int turn_times_add(const struct turn_times *times, const struct engine_device *device,
                   struct device_event *begin, double *ns);

void turn_times_close(struct turn_times *times, const struct engine_device *device);

#endif
