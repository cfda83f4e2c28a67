/* The CPU back end behind a table of which any call may fail. Unlike tests/support/faulty_device.h
 * it neither records nor queues, and ranks may share it. */
#define device_cpu __real_device_cpu
#include "kernels/device.h"
#undef device_cpu
#include <string.h>

#include "tests/torture/fault.h"

#define real __real_device_cpu

extern struct device_table __wrap_device_cpu;
struct device_table __wrap_device_cpu;

static const char *_Atomic trouble;

static bool hits(const char *place) {
    bool is_hit = fault_hits(FAULT_DEVICE, place);
    if (is_hit) {
        trouble = "as the test wants it";
    }
    return is_hit;
}

#define FAULTY(entry, failure, parameters, arguments)                                              \
    static int faulty_##entry parameters {                                                         \
        return hits(#entry) ? failure : real.entry arguments;                                      \
    }

FAULTY(facts, DEVICE_FAILED, (struct device * device, struct device_facts *out), (device, out))
FAULTY(allocate, DEVICE_NO_MEMORY, (struct device * device, int64_t bytes, void **out),
       (device, bytes, out))
FAULTY(allocate_host, DEVICE_NO_MEMORY, (struct device * device, int64_t bytes, void **out),
       (device, bytes, out))
FAULTY(granule, DEVICE_REFUSED, (struct device * device, int64_t *bytes), (device, bytes))
FAULTY(range_open, DEVICE_NO_MEMORY, (struct device * device, int64_t bytes, void **out),
       (device, bytes, out))
FAULTY(handle_open, DEVICE_NO_MEMORY,
       (struct device * device, int64_t bytes, struct device_handle **out), (device, bytes, out))
FAULTY(map, DEVICE_FAILED, (struct device * device, void *at, struct device_handle *handle),
       (device, at, handle))
FAULTY(allow, DEVICE_FAILED, (struct device * device, void *at, int64_t bytes), (device, at, bytes))
FAULTY(unmap, DEVICE_FAILED, (struct device * device, struct device_handle *handle),
       (device, handle))
FAULTY(upload, DEVICE_FAILED, (struct device * device, void *to, const void *from, int64_t bytes),
       (device, to, from, bytes))
FAULTY(download, DEVICE_FAILED, (struct device * device, void *to, const void *from, int64_t bytes),
       (device, to, from, bytes))
FAULTY(copy, DEVICE_FAILED, (struct device * device, void *to, const void *from, int64_t bytes),
       (device, to, from, bytes))
FAULTY(clear, DEVICE_FAILED, (struct device * device, void *to, int64_t bytes), (device, to, bytes))
FAULTY(finish, DEVICE_FAILED, (struct device * device), (device))
FAULTY(event_open, DEVICE_NO_MEMORY, (struct device * device, struct device_event **out),
       (device, out))
FAULTY(event_record, DEVICE_FAILED, (struct device * device, struct device_event *event),
       (device, event))
FAULTY(event_reached, DEVICE_FAILED,
       (struct device * device, struct device_event *event, bool *out), (device, event, out))
FAULTY(event_wait, DEVICE_FAILED, (struct device * device, struct device_event *event),
       (device, event))
FAULTY(event_elapsed, DEVICE_FAILED,
       (struct device * device, struct device_event *from, struct device_event *to, double *ns),
       (device, from, to, ns))

#define KERNEL(name, cuda, cpu)                                                                    \
    FAULTY(name, DEVICE_FAILED, (struct device * device, const struct call_##name *call),          \
           (device, call))
#define RANK_KERNEL(...) KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"

static int faulty_open(int32_t index, enum kernel_dtype dtype, struct device **out, char *text) {
    if (hits("open")) {
        memcpy(text, "absent", sizeof "absent");
        return DEVICE_ABSENT;
    }
    return real.open(index, dtype, out, text);
}

static int faulty_ranks_open(struct device *const *devices, int32_t n) {
    return hits("ranks_open") ? DEVICE_NO_MEMORY : real.ranks_open(devices, n);
}

static const char *faulty_trouble(const struct device *device) {
    return trouble != NULL ? trouble : real.trouble(device);
}

void fault_device(void) {
    struct device_table *table = &__wrap_device_cpu;
    *table = real;
#define ENTRY(entry) table->entry = faulty_##entry
    ENTRY(open), ENTRY(trouble), ENTRY(facts), ENTRY(allocate), ENTRY(allocate_host),
        ENTRY(granule), ENTRY(range_open), ENTRY(handle_open), ENTRY(map), ENTRY(allow),
        ENTRY(unmap), ENTRY(upload), ENTRY(download), ENTRY(copy), ENTRY(clear), ENTRY(finish),
        ENTRY(event_open), ENTRY(event_record), ENTRY(event_reached), ENTRY(event_wait),
        ENTRY(event_elapsed), ENTRY(ranks_open);
#undef ENTRY
#define KERNEL(name, cuda, cpu) table->name = faulty_##name;
#define RANK_KERNEL(...)        KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"
}
