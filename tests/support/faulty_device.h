/* A device that is the CPU, fails on demand, records, and queues: the nth call that may fail does;
 * recorded calls are kept and issued again, and queued ones run when somebody waits, as on a GPU.
 *
 * One at a time: its state is below, for tests to set and read. */
#ifndef UNMASK_TESTS_SUPPORT_FAULTY_DEVICE_H
#define UNMASK_TESTS_SUPPORT_FAULTY_DEVICE_H

#include <string.h>

#include "kernels/device.h"
#include "tests/support/suite.h"

enum { RECORDED_CALLS = 4096, RECORDED_BYTES = 320 };

/* A call as it was made, and how to make it. */
struct recorded_call {
    int (*issue)(struct device *device, const void *call);
    unsigned char call[RECORDED_BYTES];
};

struct device_graph {
    int n_calls;
    struct recorded_call calls[RECORDED_CALLS];
};

enum { QUEUED_CALLS = 1 << 14 };

static struct faulty {
    bool queues;  /* work is done when somebody waits for it */
    int n_queued; /* calls */
    struct recorded_call queue[QUEUED_CALLS];
    long fail_at;                     /* the call that fails, counted from 1; 0: none */
    long n_calls;                     /* so far that might have failed */
    struct device_graph *recording;   /* under way */
    int n_recorded, n_played, n_open; /* recordings made, played, and not closed */
    int n_issued;                     /* kernels, copies and clears not out of a recording */
    int n_waits;                      /* of the host, for what was queued */
    int n_host_pieces, n_marks;       /* that are not given back */
    int n_ranges, n_handles;          /* the same */
    int64_t most_bytes;               /* that may be allocated, as handles see it; 0: any */
    int n_mapping_calls;              /* about addresses and the memory behind them */
    const char *trouble;
} faulty;

static inline bool faulty_trips(void) {
    bool trips = ++faulty.n_calls == faulty.fail_at;
    faulty.trouble = trips ? "as the test wants it" : faulty.trouble;
    return trips;
}

static inline int faulty_issue(struct device *device,
                               int (*issue)(struct device *device, const void *call),
                               const void *call, size_t size) {
    if (faulty_trips()) {
        return DEVICE_FAILED;
    }
    struct device_graph *recording = faulty.recording;
    faulty.n_issued += recording == NULL;
    if (recording == NULL && !faulty.queues) {
        return issue(device, call);
    }
    struct recorded_call *to;
    if (recording != NULL) {
        ck_assert_int_lt(recording->n_calls, RECORDED_CALLS);
        to = &recording->calls[recording->n_calls++];
    } else {
        ck_assert_int_lt(faulty.n_queued, QUEUED_CALLS);
        to = &faulty.queue[faulty.n_queued++];
    }
    ck_assert_uint_le(size, RECORDED_BYTES);
    to->issue = issue;
    memcpy(to->call, call, size);
    return DEVICE_OK;
}

/* Everything that is queued gets done. */
static inline int faulty_drain(struct device *device) {
    int status = DEVICE_OK;
    faulty.n_waits += faulty.n_queued > 0;
    for (int i = 0; status == DEVICE_OK && i < faulty.n_queued; i++) {
        status = faulty.queue[i].issue(device, faulty.queue[i].call);
    }
    faulty.n_queued = 0;
    return status;
}

#define KERNEL(kernel, cuda, cpu)                                                                  \
    static int faulty_issue_##kernel(struct device *device, const void *call) {                    \
        return device_cpu.kernel(device, call);                                                    \
    }                                                                                              \
    static int faulty_##kernel(struct device *device, const struct call_##kernel *call) {          \
        return faulty_issue(device, faulty_issue_##kernel, call, sizeof *call);                    \
    }
#include "kernels/kernels.def"

struct faulty_move {
    void *to;
    const void *from;
    int64_t bytes;
};

static int faulty_issue_copy(struct device *device, const void *call) {
    const struct faulty_move *c = call;
    return device_cpu.copy(device, c->to, c->from, c->bytes);
}

static int faulty_issue_clear(struct device *device, const void *call) {
    const struct faulty_move *c = call;
    return device_cpu.clear(device, c->to, c->bytes);
}

static int faulty_copy(struct device *device, void *to, const void *from, int64_t bytes) {
    const struct faulty_move call = {to, from, bytes};
    return faulty_issue(device, faulty_issue_copy, &call, sizeof call);
}

struct faulty_swap {
    void *to;
    const void *from;
    int64_t bytes, pitch, n;
};

static int faulty_issue_swap_out(struct device *device, const void *call) {
    const struct faulty_swap *c = call;
    return device_cpu.swap_out(device, c->to, c->from, c->bytes, c->pitch, c->n);
}

static int faulty_issue_swap_in(struct device *device, const void *call) {
    const struct faulty_swap *c = call;
    return device_cpu.swap_in(device, c->to, c->from, c->bytes, c->pitch, c->n);
}

static int faulty_swap_out(struct device *device, void *host, const void *memory, int64_t bytes,
                           int64_t pitch, int64_t n) {
    const struct faulty_swap call = {host, memory, bytes, pitch, n};
    return faulty_issue(device, faulty_issue_swap_out, &call, sizeof call);
}

static int faulty_swap_in(struct device *device, void *memory, const void *host, int64_t bytes,
                          int64_t pitch, int64_t n) {
    const struct faulty_swap call = {memory, host, bytes, pitch, n};
    return faulty_issue(device, faulty_issue_swap_in, &call, sizeof call);
}

static int faulty_clear(struct device *device, void *to, int64_t bytes) {
    const struct faulty_move call = {to, NULL, bytes};
    return faulty_issue(device, faulty_issue_clear, &call, sizeof call);
}

static int faulty_capture_begin(struct device *device) {
    (void)device;
    if (faulty_trips()) {
        return DEVICE_FAILED;
    }
    faulty.recording = calloc(1, sizeof *faulty.recording);
    return DEVICE_OK;
}

static int faulty_capture_end(struct device *device, struct device_graph **out) {
    (void)device;
    struct device_graph *recording = faulty.recording;
    faulty.recording = NULL;
    if (faulty_trips()) {
        free(recording);
        return DEVICE_FAILED;
    }
    *out = recording;
    faulty.n_recorded++;
    faulty.n_open++;
    return DEVICE_OK;
}

static int faulty_graph_launch(struct device *device, struct device_graph *recording) {
    int status = faulty_trips() ? DEVICE_FAILED : DEVICE_OK;
    for (int i = 0; status == DEVICE_OK && i < recording->n_calls; i++) {
        if (faulty.queues) {
            ck_assert_int_lt(faulty.n_queued, QUEUED_CALLS);
            faulty.queue[faulty.n_queued++] = recording->calls[i];
        } else {
            status = recording->calls[i].issue(device, recording->calls[i].call);
        }
    }
    faulty.n_played++;
    return status;
}

static void faulty_graph_close(struct device *device, struct device_graph *recording) {
    (void)device;
    free(recording);
    faulty.n_open--;
}

static int faulty_open(int32_t index, enum kernel_dtype dtype, struct device **out, char *text) {
    if (faulty_trips()) {
        memcpy(text, "absent", sizeof "absent");
        return DEVICE_ABSENT;
    }
    return device_cpu.open(index, dtype, out, text);
}

/* Calls that fail, or do what the CPU does and are counted. */
#define FAULTY(entry, failure, count, parameters, arguments)                                       \
    static int faulty_##entry parameters {                                                         \
        if (faulty_trips()) {                                                                      \
            return failure;                                                                        \
        }                                                                                          \
        count;                                                                                     \
        return device_cpu.entry arguments;                                                         \
    }

FAULTY(facts, DEVICE_FAILED, (void)0, (struct device * device, struct device_facts *out),
       (device, out))
FAULTY(allocate, DEVICE_NO_MEMORY, (void)0, (struct device * device, int64_t bytes, void **out),
       (device, bytes, out))
FAULTY(allocate_host, DEVICE_NO_MEMORY, faulty.n_host_pieces++,
       (struct device * device, int64_t bytes, void **out), (device, bytes, out))
FAULTY(granule, DEVICE_REFUSED, faulty.n_mapping_calls++, (struct device * device, int64_t *bytes),
       (device, bytes))
FAULTY(map, DEVICE_FAILED, faulty.n_mapping_calls++,
       (struct device * device, void *at, struct device_handle *handle), (device, at, handle))
FAULTY(allow, DEVICE_FAILED, faulty.n_mapping_calls++,
       (struct device * device, void *at, int64_t bytes), (device, at, bytes))
FAULTY(event_open, DEVICE_NO_MEMORY, faulty.n_marks++,
       (struct device * device, struct device_event **out), (device, out))
FAULTY(event_record, DEVICE_FAILED, (void)0, (struct device * device, struct device_event *event),
       (device, event))
FAULTY(event_elapsed, DEVICE_FAILED, (void)0,
       (struct device * device, struct device_event *from, struct device_event *to, double *ns),
       (device, from, to, ns))

static const char *faulty_trouble(const struct device *device) {
    return faulty.trouble != NULL ? faulty.trouble : device_cpu.trouble(device);
}

static void faulty_release_host(struct device *device, void *memory) {
    faulty.n_host_pieces -= memory != NULL;
    device_cpu.release_host(device, memory);
}

static int faulty_range_open(struct device *device, int64_t bytes, void **out) {
    faulty.n_mapping_calls++;
    if (faulty_trips()) {
        return DEVICE_NO_MEMORY;
    }
    faulty.n_ranges++;
    return device_cpu.range_open(device, bytes, out);
}

static void faulty_range_close(struct device *device, void *range) {
    faulty.n_mapping_calls++;
    faulty.n_ranges -= range != NULL;
    device_cpu.range_close(device, range);
}

/* Memory that has run out once does not come back. */
static int faulty_handle_open(struct device *device, int64_t bytes, struct device_handle **out) {
    int64_t allocated = device_cpu.allocated_bytes(device);
    faulty.n_mapping_calls++;
    faulty.most_bytes = faulty_trips() ? allocated + 1 : faulty.most_bytes;
    if (faulty.most_bytes > 0 && allocated + bytes > faulty.most_bytes) {
        faulty.trouble = "as the test wants it";
        return DEVICE_NO_MEMORY;
    }
    faulty.n_handles++;
    return device_cpu.handle_open(device, bytes, out);
}

static void faulty_handle_close(struct device *device, struct device_handle *handle) {
    faulty.n_mapping_calls++;
    faulty.n_handles -= handle != NULL;
    device_cpu.handle_close(device, handle);
}

static int faulty_unmap(struct device *device, struct device_handle *handle) {
    faulty.n_mapping_calls++;
    ck_assert_int_eq(faulty.n_queued, 0); /* which may want to read it */
    return faulty_trips() ? DEVICE_FAILED : device_cpu.unmap(device, handle);
}

static int faulty_upload(struct device *device, void *to, const void *from, int64_t bytes) {
    const struct faulty_move call = {to, from, bytes};
    if (!faulty.queues) {
        return faulty_trips() ? DEVICE_FAILED : device_cpu.upload(device, to, from, bytes);
    }
    return faulty_issue(device, faulty_issue_copy, &call, sizeof call);
}

static int faulty_download(struct device *device, void *to, const void *from, int64_t bytes) {
    return faulty_trips() || faulty_drain(device) != DEVICE_OK
               ? DEVICE_FAILED
               : device_cpu.download(device, to, from, bytes);
}

static int faulty_swap_wait(struct device *device) {
    return faulty_trips() ? DEVICE_FAILED : faulty_drain(device);
}

static int faulty_finish(struct device *device) {
    return faulty_trips() ? DEVICE_FAILED : faulty_drain(device);
}

static void faulty_event_close(struct device *device, struct device_event *mark) {
    faulty.n_marks--;
    device_cpu.event_close(device, mark);
}

static int faulty_event_reached(struct device *device, struct device_event *mark, bool *out) {
    (void)device, (void)mark;
    *out = faulty.n_queued == 0;
    return faulty_trips() ? DEVICE_FAILED : DEVICE_OK;
}

static int faulty_event_wait(struct device *device, struct device_event *mark) {
    (void)mark;
    return faulty_trips() ? DEVICE_FAILED : faulty_drain(device);
}

/* Sets everything back. fail_at as above. */
static inline struct device_table faulty_device(long fail_at) {
    faulty = (struct faulty){.fail_at = fail_at};
    struct device_table table = device_cpu; /* what cannot fail */
    table.name = "faulty";
#define ENTRY(entry) table.entry = faulty_##entry
    ENTRY(open), ENTRY(trouble), ENTRY(facts), ENTRY(allocate), ENTRY(allocate_host),
        ENTRY(release_host), ENTRY(granule), ENTRY(range_open), ENTRY(range_close),
        ENTRY(handle_open), ENTRY(handle_close), ENTRY(map), ENTRY(allow), ENTRY(unmap),
        ENTRY(upload), ENTRY(download), ENTRY(copy), ENTRY(clear), ENTRY(finish), ENTRY(swap_out),
        ENTRY(swap_in), ENTRY(swap_wait), ENTRY(event_open), ENTRY(event_close),
        ENTRY(event_record), ENTRY(event_reached), ENTRY(event_wait), ENTRY(event_elapsed),
        ENTRY(capture_begin), ENTRY(capture_end), ENTRY(graph_launch), ENTRY(graph_close);
#undef ENTRY
#define KERNEL(kernel, cuda, cpu) table.kernel = faulty_##kernel;
#include "kernels/kernels.def"
    return table;
}

#endif
