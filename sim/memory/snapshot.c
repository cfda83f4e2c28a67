#include "sim/memory/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/input/unpack.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"
#include "sim/memory/pickle.h"

/* Of a file that can be read twice; else EOF. */
static int first_byte(const char *path) {
    struct stat facts;
    if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return EOF;
    }
    FILE *file = unpack_open(path, NULL);
    int c = file != NULL ? fgetc(file) : EOF;
    if (file != NULL) {
        fclose(file);
    }
    return c;
}

static const int pickle_byte = 0x80; /* the opcode PROTO of every pickle since Python 2.3 */

bool snapshot_is(const char *path) {
    int c = first_byte(path);
    return c == '{' || c == pickle_byte;
}

/* Live allocations by their address. */
struct live {
    int64_t address;
    uint32_t id;
};

struct snapshot {
    const char *path;
    struct stream *stream;
    void *live; /* of tsearch */
    int64_t cuda_stream;
    bool has_stream;
    uint64_t n_unknown; /* frees of what the trace did not see allocated */
};

static int by_address(const void *a, const void *b) {
    const struct live *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

static void release(struct snapshot *s, int64_t address) {
    const struct live wanted = {.address = address};
    struct live *const *found = tfind(&wanted, &s->live, by_address);
    if (found == NULL) {
        s->n_unknown++;
        return;
    }
    struct live *live = *found;
    struct stream_event event = stream_event_make(STREAM_FREE, live->id, 0);
    stream_append(s->stream, &event);
    tdelete(&wanted, &s->live, by_address);
    free(live);
}

static void allocate(struct snapshot *s, enum stream_event_kind kind, int64_t address,
                     int64_t bytes) {
    struct stream_event event = stream_event_make(kind, s->stream->n_ids, bytes);
    if (kind == STREAM_ALLOC) {
        const struct live wanted = {.address = address};
        if (tfind(&wanted, &s->live, by_address) != NULL) {
            release(s, address); /* its free was lost */
        }
        struct live *live = mem_unwritten(1, sizeof *live);
        *live = (struct live){address, event.id};
        (void)mem_given(tsearch(live, &s->live, by_address));
    }
    stream_append(s->stream, &event);
}

static int bad(const struct snapshot *s, size_t place, const char *what, struct err *err) {
    return err_world(err, "%s: event %zu of device_traces: %s", s->path, place, what);
}

static int take(struct snapshot *s, const json_t *entry, size_t place, struct err *err) {
    const char *action = json_string_value(json_object_get(entry, "action"));
    const json_t *stream = json_object_get(entry, "stream");
    json_int_t address = json_integer_value(json_object_get(entry, "addr"));
    json_int_t bytes = json_integer_value(json_object_get(entry, "size"));
    bool allocates = action != NULL && (strcmp(action, "alloc") == 0 || strcmp(action, "oom") == 0);
    bool frees = action != NULL && strcmp(action, "free_completed") == 0;
    if (action == NULL) {
        return bad(s, place, "found no 'action', expected alloc, free_completed and the like", err);
    }
    if (!allocates && !frees) {
        return 0; /* requests to the driver, and those that are completed later */
    }
    if (json_is_integer(stream)) {
        if (s->has_stream && s->cuda_stream != json_integer_value(stream)) {
            return bad(s, place, "found a second CUDA stream, expected the events of one", err);
        }
        s->has_stream = true;
        s->cuda_stream = json_integer_value(stream);
    }
    if (frees) {
        release(s, address);
        return 0;
    }
    if (bytes < 1 || bytes > STREAM_MAX_BYTES || s->stream->n_events >= STREAM_MAX_EVENTS) {
        return bad(s, place, "found another 'size', expected 1 to 2^40 bytes of up to 2^22 events",
                   err);
    }
    allocate(s, strcmp(action, "oom") == 0 ? STREAM_OOM : STREAM_ALLOC, address, bytes);
    return 0;
}

/* The only device that has a trace. */
static int find_trace(const json_t *snapshot, const char *path, const json_t **out,
                      struct err *err) {
    const json_t *traces = json_object_get(snapshot, "device_traces"), *trace;
    size_t i;
    *out = NULL;
    json_array_foreach((json_t *)traces, i, trace) {
        if (json_array_size(trace) > 0 && *out != NULL) {
            return err_world(err, "%s: several devices have traces, expected one", path);
        }
        *out = json_array_size(trace) > 0 ? trace : *out;
    }
    return *out != NULL ? 0
                        : err_world(err,
                                    "%s: found no events in 'device_traces', expected a memory "
                                    "snapshot of PyTorch with its history "
                                    "(torch.cuda.memory._record_memory_history)",
                                    path);
}

/* How the allocator was set, as far as the snapshot says. */
static void take_settings(const json_t *snapshot, struct stream *stream) {
    const json_t *settings = json_object_get(snapshot, "allocator_settings");
    bool is_expandable = json_is_true(json_object_get(settings, "expandable_segments"));
    json_int_t max_split = json_integer_value(json_object_get(settings, "max_split_size"));
    if (settings != NULL) {
        snprintf(stream->model, sizeof stream->model, "%s",
                 is_expandable ? "torch-expandable" : "torch");
        stream->settings.max_split_bytes =
            max_split > 0 && max_split < STREAM_MAX_BYTES ? max_split : 0;
        double threshold =
            json_number_value(json_object_get(settings, "garbage_collection_threshold"));
        stream->settings.gc_threshold = threshold > 0 && threshold <= 1 ? threshold : 0;
    }
}

static int take_all(struct snapshot *s, const json_t *snapshot, struct err *err) {
    const json_t *trace, *entry;
    size_t i;
    int status = find_trace(snapshot, s->path, &trace, err);
    if (status != 0) {
        return status;
    }
    take_settings(snapshot, s->stream);
    json_array_foreach((json_t *)trace, i, entry) {
        if ((status = take(s, entry, i, err)) != 0) {
            return status;
        }
    }
    if (s->stream->n_events == 0) {
        return err_world(err, "%s: found no allocation in 'device_traces'", s->path);
    }
    int n = snprintf(s->stream->source, sizeof s->stream->source, "PyTorch's memory snapshot");
    if (s->n_unknown > 0) {
        snprintf(s->stream->source + n, sizeof s->stream->source - (size_t)n,
                 ", %" PRIu64 " frees of what was allocated before it passed over", s->n_unknown);
    }
    return 0;
}

int snapshot_read(const char *path, struct stream *stream, struct err *err) {
    struct snapshot s = {.path = path, .stream = stream};
    const bool is_pickle = first_byte(path) == pickle_byte;
    FILE *file = unpack_open(path, "stream");
    json_error_t trouble = {0};
    int cause = errno;
    json_t *snapshot = file == NULL ? NULL
                       : is_pickle  ? pickle_read(file, path, err)
                                    : json_loadf(file, 0, &trouble);
    if (file != NULL) {
        fclose(file);
    }
    int status = file == NULL ? err_world(err, "cannot open '%s': %s", path, strerror(cause))
                 : snapshot == NULL && is_pickle ? err_status(err)
                 : snapshot == NULL
                     ? err_world(err, "%s:%d: found no JSON (%s)", path, trouble.line, trouble.text)
                     : take_all(&s, snapshot, err);
    system_tree_free(s.live, free);
    json_decref(snapshot);
    return status;
}
