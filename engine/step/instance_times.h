/* Device time of each operator instance of a step that is issued instance by instance: an event
 * follows each, so that the device's queue need not run dry in between. */
#ifndef UNMASK_ENGINE_STEP_INSTANCE_TIMES_H
#define UNMASK_ENGINE_STEP_INSTANCE_TIMES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/device/device.h"
#include "sim/step/graph.h"

struct instance_end {
    struct device_event *event;
    uint32_t op;
};

/* All zero at first; events of earlier steps are used again. */
struct instance_times {
    struct instance_end *ends; /* owned; `room` of them, some without an event yet */
    size_t n, room;
};

/* For a step of about this many instances: their events are opened now, while no rank waits for
 * another. enum device_status, as all below. */
int instance_times_begin(struct instance_times *times, const struct engine_device *device,
                         size_t n_instances);

/* A instance of this operator has been issued. */
int instance_times_end(struct instance_times *times, const struct engine_device *device,
                       uint32_t op);

/* Waits for the last instance; then ns[op] is the device time of all instances of each operator,
 * the first from `begin`. Where some of them ended more than `until_ns` after `begin` they all
 * count as the mean of those before; 0 where there is none before. */
int instance_times_sum(const struct instance_times *times, const struct engine_device *device,
                       struct device_event *begin, double until_ns, double ns[GRAPH_MAX_OPS]);

void instance_times_close(struct instance_times *times, const struct engine_device *device);

#endif
