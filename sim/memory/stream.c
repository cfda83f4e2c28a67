#include "sim/memory/stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/csv.h"
#include "sim/base/input/inputs.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/param.h"
#include "sim/memory/snapshot.h"

void stream_init(struct stream *stream) {
    *stream = (struct stream){0};
}

void stream_fini(struct stream *stream) {
    free(stream->events);
    stream_init(stream);
}

void stream_append(struct stream *stream, const struct stream_event *event) {
    stream->events =
        mem_grown(stream->events, stream->n_events, &stream->room, sizeof *stream->events);
    stream->events[stream->n_events++] = *event;
    if ((event->kind == STREAM_ALLOC || event->kind == STREAM_OOM) && event->id >= stream->n_ids) {
        stream->n_ids = event->id + 1;
    }
}

struct stream_event stream_event_make(enum stream_event_kind kind, uint32_t id, int64_t bytes) {
    return (struct stream_event){
        .kind = kind,
        .id = id,
        .bytes = bytes,
        .address = STREAM_UNKNOWN,
        .segment_address = STREAM_UNKNOWN,
        .recorded = {STREAM_UNKNOWN, STREAM_UNKNOWN, STREAM_UNKNOWN, STREAM_UNKNOWN},
    };
}

/* ---- reading ---- */

enum { COLUMN_EVENT, COLUMN_ID, COLUMN_BYTES, COLUMN_ADDRESS, COLUMN_SEGMENT_ADDRESS };
enum { FIRST_RECORDED = COLUMN_SEGMENT_ADDRESS + 1, N_RECORDED = 4 };
static const char *const column_names[] = {"event",           "id",
                                           "bytes",           "address",
                                           "segment_address", "reserved_bytes",
                                           "allocated_bytes", "inactive_bytes",
                                           "segments",        NULL};
static const uint64_t optional_columns = ~UINT64_C(0) << COLUMN_ADDRESS;

static const char *const event_names[] = {"alloc", "free", "oom", "empty", "graph", NULL};

#define SETTING(field, type, unit, most)                                                           \
    { #field, type, 0, unit, "0", 0, most, NULL, offsetof(struct allocator_settings, field), "" }
static const struct param settings[] = {
    SETTING(limit_bytes, PARAM_I64, "bytes", (double)STREAM_MAX_BYTES),
    SETTING(max_split_bytes, PARAM_I64, "bytes", (double)STREAM_MAX_BYTES),
    SETTING(gc_threshold, PARAM_F64, "1", 1),
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

struct reading {
    struct csv csv;
    struct stream *stream;
    bool *is_live; /* by id */
    size_t room_ids;
};

/* "# key = value" */
static int take_setting(struct reading *reading, struct err *err) {
    struct stream *stream = reading->stream;
    const struct line *line = &reading->csv.line;
    char *text = reading->csv.text, *equals = strstr(text, " = ");
    char place[sizeof err->text / 2];
    snprintf(place, sizeof place, "%s:%" PRIu64, line->path, line->number);
    if (name_behind(text, "# ") == NULL || equals == NULL) {
        return err_world(err, "%s: found '%.40s', expected '# key = value'", place, text);
    }
    *equals = '\0';
    const char *key = text + 2, *value = equals + 3;
    const struct {
        const char *key;
        char *text;
        size_t size;
    } texts[] = {{"source", stream->source, sizeof stream->source},
                 {"model", stream->model, sizeof stream->model}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(key, texts[i].key) == 0) {
            int n = snprintf(texts[i].text, texts[i].size, "%s", value);
            return (size_t)n < texts[i].size
                       ? 0
                       : err_world(err, "%s: %s is '%.40s', expected at most %zu characters", place,
                                   key, value, texts[i].size - 1);
        }
    }
    return param_set(settings, N_SETTINGS, &stream->settings, "the stream", place, key, value, err);
}

static void set_live(struct reading *reading, uint32_t id, bool is_live) {
    reading->is_live =
        mem_grown(reading->is_live, id, &reading->room_ids, sizeof *reading->is_live);
    reading->is_live[id] = is_live;
}

static int check_id(struct reading *reading, const struct stream_event *event, int64_t id,
                    struct err *err) {
    const struct csv *csv = &reading->csv;
    const int64_t n_ids = reading->stream->n_ids;
    switch (event->kind) {
    case STREAM_ALLOC:
    case STREAM_OOM:
        if (id != n_ids) {
            return csv_bad(csv, COLUMN_ID, "the next number: allocations count up from 0", err);
        }
        if (event->bytes < 1 || event->bytes > STREAM_MAX_BYTES) {
            return csv_bad(csv, COLUMN_BYTES, "1 to 2^40", err);
        }
        set_live(reading, (uint32_t)id, event->kind == STREAM_ALLOC);
        return 0;
    case STREAM_FREE:
        if (id < 0 || id >= n_ids || !reading->is_live[id]) {
            return csv_bad(csv, COLUMN_ID, "an allocation that was not freed", err);
        }
        reading->is_live[id] = false;
        return 0;
    default:
        return id == STREAM_UNKNOWN ? 0 : csv_bad(csv, COLUMN_ID, "none", err);
    }
}

static int take_event(struct reading *reading, struct err *err) {
    const struct csv *csv = &reading->csv;
    struct stream_event event = {.line = (uint32_t)csv->line.number};
    struct allocator_counts *recorded = &event.recorded;
    int64_t id = STREAM_UNKNOWN;
    int64_t *const wholes[] = {&id,
                               &event.bytes,
                               &event.address,
                               &event.segment_address,
                               &recorded->reserved_bytes,
                               &recorded->allocated_bytes,
                               &recorded->inactive_bytes,
                               &recorded->n_segments};
    if (csv_row(&reading->csv, err) != 0) {
        return (int)err->kind;
    }
    int kind = name_find(event_names, csv_field(csv, COLUMN_EVENT));
    if (kind < 0) {
        return csv_bad(csv, COLUMN_EVENT, "alloc, free, oom, empty or graph", err);
    }
    event.kind = (enum stream_event_kind)kind;
    for (int c = COLUMN_ID; c < FIRST_RECORDED + N_RECORDED; c++) {
        int64_t *out = wholes[c - COLUMN_ID];
        *out = STREAM_UNKNOWN;
        if (csv_field(csv, c)[0] != '\0' && csv_whole(csv, c, 0, STREAM_MAX_WHOLE, out, err) != 0) {
            return (int)err->kind;
        }
    }
    if (check_id(reading, &event, id, err) != 0) {
        return (int)err->kind;
    }
    if (reading->stream->n_events == STREAM_MAX_EVENTS) {
        return err_world(err, "%s: more than %d events", csv->line.path, STREAM_MAX_EVENTS);
    }
    event.id = id >= 0 ? (uint32_t)id : 0;
    stream_append(reading->stream, &event);
    return 0;
}

static int take_lines(struct reading *reading, struct err *err) {
    struct csv *csv = &reading->csv;
    bool more;
    int status;
    while ((status = csv_line(csv, &more, err)) == 0 && more) {
        status = csv->n_fields > 0     ? take_event(reading, err)
                 : csv->text[0] == '#' ? take_setting(reading, err)
                                       : csv_header(csv, column_names, optional_columns, true, err);
        if (status != 0) {
            return status;
        }
    }
    return status != 0 || csv->n_fields > 0
               ? status
               : err_world(err, "%s:%" PRIu64 ": no line that names the columns", csv->line.path,
                           csv->line.number + 1);
}

int stream_read(const char *path, struct stream *stream, struct err *err) {
    struct reading reading = {.stream = stream};
    if (snapshot_is(path)) {
        return snapshot_read(path, stream, err);
    }
    int status = csv_open(&reading.csv, path, "stream", err);
    reading.csv.is_open_end = true;
    status = status == 0 ? take_lines(&reading, err) : status;
    csv_close(&reading.csv);
    free(reading.is_live);
    if (status != 0) {
        err->kind = ERR_WORLD; /* a file that is not as it must be, its settings too */
    }
    return status != 0 ? (int)ERR_WORLD : 0;
}
