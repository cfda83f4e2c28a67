/* A device that is the CPU and seems late: what was issued counts as under way until it was asked
 * for often enough or waited for; and that copies no range over itself, which a copy engine may do
 * in any order.
 *
 * One at a time: its state is below, for tests to set and read. */
#ifndef UNMASK_TESTS_SUPPORT_LATE_DEVICE_H
#define UNMASK_TESTS_SUPPORT_LATE_DEVICE_H

#include <signal.h>

#include "kernels/device.h"

static struct late {
    int n_queries; /* the nth query after a mark finds it reached */
    int n_left;    /* queries until the last mark is reached; 0: nothing is under way */
    int n_asked, n_waited, n_copied;
    int raise_at;                    /* the wait, counted from 1, that raises the flag; 0: none */
    volatile sig_atomic_t is_raised; /* as a signal would */
    const char *trouble;
} late;

static int late_event_record(struct device *device, struct device_event *mark) {
    late.n_left = late.n_queries;
    return device_cpu.event_record(device, mark);
}

static int late_event_reached(struct device *device, struct device_event *mark, bool *out) {
    (void)device, (void)mark;
    late.n_asked++;
    late.n_left -= late.n_left > 0;
    *out = late.n_left == 0;
    return DEVICE_OK;
}

static int late_event_wait(struct device *device, struct device_event *mark) {
    late.n_left = 0;
    late.is_raised = ++late.n_waited == late.raise_at || late.is_raised;
    return device_cpu.event_wait(device, mark);
}

static int late_finish(struct device *device) {
    late.n_left = 0;
    return device_cpu.finish(device);
}

static int late_download(struct device *device, void *to, const void *from, int64_t bytes) {
    late.n_left = 0;
    return device_cpu.download(device, to, from, bytes);
}

static int late_copy(struct device *device, void *to, const void *from, int64_t bytes) {
    const uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if ((a > b ? a - b : b - a) < (uintptr_t)bytes) {
        late.trouble = "a range copied over itself";
        return DEVICE_REFUSED;
    }
    late.n_copied++;
    return device_cpu.copy(device, to, from, bytes);
}

static const char *late_trouble(const struct device *device) {
    return late.trouble != NULL ? late.trouble : device_cpu.trouble(device);
}

/* Sets everything back. n_queries as above, at least 1. */
static inline struct device_table late_device(int n_queries) {
    late = (struct late){.n_queries = n_queries};
    struct device_table table = device_cpu;
    table.name = "late";
    table.trouble = late_trouble;
    table.event_record = late_event_record;
    table.event_reached = late_event_reached;
    table.event_wait = late_event_wait;
    table.finish = late_finish;
    table.download = late_download;
    table.copy = late_copy;
    return table;
}

#endif
