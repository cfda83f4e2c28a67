#include "engine/step/instance_times.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

enum { ROOM_AT_FIRST = 64 };

static void make_room(struct instance_times *times, size_t room) {
    times->ends = mem_resized(times->ends, room, sizeof *times->ends);
    for (size_t i = times->room; i < room; i++) {
        times->ends[i] = (struct instance_end){0};
    }
    times->room = room;
}

static int open_event(struct instance_end *end, const struct engine_device *device) {
    return end->event != NULL ? DEVICE_OK : device->table->event_open(device->device, &end->event);
}

int instance_times_begin(struct instance_times *times, const struct engine_device *device,
                         size_t n_instances) {
    int status = DEVICE_OK;
    times->n = 0;
    if (n_instances > times->room) {
        make_room(times, n_instances);
    }
    for (size_t i = 0; status == DEVICE_OK && i < n_instances; i++) {
        status = open_event(&times->ends[i], device);
    }
    return status;
}

int instance_times_end(struct instance_times *times, const struct engine_device *device,
                       uint32_t op) {
    if (times->n == times->room) {
        make_room(times, times->room > 0 ? 2 * times->room : ROOM_AT_FIRST);
    }
    struct instance_end *end = &times->ends[times->n];
    end->op = op;
    int status = open_event(end, device);
    status = status == DEVICE_OK ? device->table->event_record(device->device, end->event) : status;
    times->n += status == DEVICE_OK;
    return status;
}

int instance_times_sum(const struct instance_times *times, const struct engine_device *device,
                       struct device_event *begin, double until_ns, double ns[GRAPH_MAX_OPS]) {
    const struct device_table *table = device->table;
    struct device_event *before = begin;
    double n[GRAPH_MAX_OPS] = {0}, n_before[GRAPH_MAX_OPS] = {0}, now_ns = 0;
    memset(ns, 0, GRAPH_MAX_OPS * sizeof *ns);
    int status = times->n > 0 ? table->event_wait(device->device, times->ends[times->n - 1].event)
                              : DEVICE_OK;
    for (size_t i = 0; status == DEVICE_OK && i < times->n; i++) {
        const struct instance_end *end = &times->ends[i];
        double instance_ns = 0;
        status = table->event_elapsed(device->device, before, end->event, &instance_ns);
        now_ns += instance_ns;
        n[end->op]++;
        if (now_ns <= until_ns) {
            ns[end->op] += instance_ns;
            n_before[end->op]++;
        }
        before = end->event;
    }
    for (size_t op = 0; op < GRAPH_MAX_OPS; op++) {
        ns[op] *= n_before[op] > 0 ? n[op] / n_before[op] : 0;
    }
    return status;
}

void instance_times_close(struct instance_times *times, const struct engine_device *device) {
    for (size_t i = 0; i < times->room; i++) {
        if (times->ends[i].event != NULL) {
            device->table->event_close(device->device, times->ends[i].event);
        }
    }
    free(times->ends);
    *times = (struct instance_times){0};
}
