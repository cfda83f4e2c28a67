/* Allocation streams: a program's calls of a GPU memory allocator, in order.
 *
 * A stream is a list of events: memory allocated, memory freed, the allocator's cache emptied, a
 * new compiled graph begun. It may carry what a real allocator did in answer, which is what an
 * allocator model is checked against. experiments/study/reference/record_allocations.py records
 * streams from PyTorch.
 *
 * As a file, a stream is text: lines `# key = value` (source, model, limit_bytes, max_split_bytes,
 * gc_threshold), one line that names the columns, one line an event. The columns:
 *
 *   event            alloc, free, oom (an allocation that was refused), empty, graph
 *   id               of the allocation; 0, 1, 2... in the order of alloc and oom
 *   bytes            asked for, >= 1; of alloc and oom
 *   address          given; of alloc
 *   segment_address  of the segment that the driver gave for this event
 *   reserved_bytes, allocated_bytes, inactive_bytes, segments   after the event
 *
 * The first three are required, the others may be missing; what is not known stays empty. A stream
 * is of one CUDA stream. PyTorch's memory snapshot is read as well (sim/memory/snapshot.h). */
#ifndef UNMASK_SIM_MEMORY_STREAM_H
#define UNMASK_SIM_MEMORY_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

enum stream_event_kind {
    STREAM_ALLOC,
    STREAM_FREE,
    STREAM_OOM,
    STREAM_EMPTY,
    STREAM_GRAPH, /* events up to the next one belong to one compiled graph */
    N_STREAM_EVENT_KINDS,
};

/* What an allocator holds. STREAM_UNKNOWN in a recording: not known. */
struct allocator_counts {
    int64_t reserved_bytes;  /* held of the device */
    int64_t allocated_bytes; /* of these, in use by the program; whole blocks */
    int64_t inactive_bytes;  /* of these, free but not to be given back to the device */
    int64_t n_segments;      /* pieces in which the device gave them */
};

#define STREAM_UNKNOWN INT64_C(-1)

/* No allocation is larger; sums of all that a stream may hold stay far from overflow. */
#define STREAM_MAX_BYTES (INT64_C(1) << 40)
#define STREAM_MAX_WHOLE (INT64_C(1) << 61) /* of addresses and recorded sums */
enum { STREAM_MAX_EVENTS = 1 << 22 };

struct stream_event {
    enum stream_event_kind kind;
    uint32_t id;             /* of alloc, free and oom */
    uint32_t line;           /* where in the file; 0 without one */
    int64_t bytes;           /* of alloc and oom */
    int64_t address;         /* or STREAM_UNKNOWN */
    int64_t segment_address; /* or STREAM_UNKNOWN */
    struct allocator_counts recorded;
};

/* How an allocator was or is to be set. */
struct allocator_settings {
    int64_t limit_bytes;     /* it may not hold more of the device; 0: none */
    int64_t max_split_bytes; /* blocks this large are not split; 0: all are */
    double gc_threshold;     /* share of the limit above which idle segments go back; 0: never */
};

enum { STREAM_NAME_CHARS = 32, STREAM_SOURCE_CHARS = 256 };

struct stream {
    char source[STREAM_SOURCE_CHARS]; /* where it comes from; "" unknown */
    char model[STREAM_NAME_CHARS];    /* the allocator model it was recorded under; "" unknown */
    struct allocator_settings settings;
    struct stream_event *events;
    size_t n_events, room;
    uint32_t n_ids;
};

void stream_init(struct stream *stream);
void stream_fini(struct stream *stream);

/* Append an event as it is. The program must keep the rules that stream_read enforces: ids count
 * up, what is freed is allocated. */
void stream_append(struct stream *stream, const struct stream_event *event);

/* An event about which nothing was recorded. */
struct stream_event stream_event_make(enum stream_event_kind kind, uint32_t id, int64_t bytes);

/* Read a file into an initialised, empty stream. ERR_WORLD names file and line and what was found
 * there: malformed lines, ids out of order, a free of what is not allocated. */
int stream_read(const char *path, struct stream *stream, struct err *err);

#endif
