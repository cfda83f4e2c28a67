#include "sim/memory/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/num.h"

enum column {
    COLUMN_EVENT,
    COLUMN_ID,
    COLUMN_BYTES,
    N_REQUIRED_COLUMNS,
    COLUMN_ADDRESS = N_REQUIRED_COLUMNS,
    COLUMN_SEGMENT_ADDRESS,
    COLUMN_RESERVED,
    COLUMN_ALLOCATED,
    COLUMN_INACTIVE,
    COLUMN_SEGMENTS,
    N_COLUMNS,
};

static const char *const column_names[N_COLUMNS] = {
    "event",           "id",
    "bytes",           "address",
    "segment_address", "reserved_bytes",
    "allocated_bytes", "inactive_bytes",
    "segments",
};

static const char *const event_names[N_STREAM_EVENT_KINDS] = {"alloc", "free", "oom", "empty",
                                                              "graph"};

/* A line being read: where it stands, and its fields by column. */
struct reading {
    const char *path;
    uint32_t line;
    struct stream *stream;
    bool *is_live; /* by id */
    size_t room_ids;
    int position[N_COLUMNS]; /* of each column in the line; -1: the file has none */
    int n_fields;            /* 0 until the line that names the columns */
    char *fields[N_COLUMNS];
};

void stream_init(struct stream *stream) {
    *stream = (struct stream){0};
}

void stream_fini(struct stream *stream) {
    free(stream->events);
    stream_init(stream);
}

void stream_append(struct stream *stream, const struct stream_event *event) {
    if (stream->n_events == stream->room) {
        stream->room = 2 * stream->room + 256;
        stream->events = realloc(stream->events, stream->room * sizeof *stream->events);
        ASSERT(stream->events != NULL);
    }
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

const char *stream_event_name(enum stream_event_kind kind) {
    return event_names[kind];
}

/* ---- reading ---- */

static int bad_setting(const struct reading *reading, const char *key, const char *value,
                       const char *expected, struct err *err) {
    return err_world(err, "%s:%" PRIu32 ": %s is '%.40s', expected %s", reading->path,
                     reading->line, key, value, expected);
}

static int set_text(const struct reading *reading, const char *key, const char *value, char *out,
                    size_t size, struct err *err) {
    if (strlen(value) >= size) {
        char expected[48];
        snprintf(expected, sizeof expected, "at most %zu characters", size - 1);
        return bad_setting(reading, key, value, expected, err);
    }
    memcpy(out, value, strlen(value) + 1);
    return 0;
}

static int set_bytes(const struct reading *reading, const char *key, const char *value,
                     int64_t *out, struct err *err) {
    uint64_t bytes;
    if (!num_u64(value, (uint64_t)STREAM_MAX_BYTES, &bytes) || bytes == 0) {
        return bad_setting(reading, key, value, "a whole number of bytes from 1 to 2^40", err);
    }
    *out = (int64_t)bytes;
    return 0;
}

static int set_threshold(const struct reading *reading, const char *key, const char *value,
                         double *out, struct err *err) {
    if (!num_f64(value, out) || *out <= 0 || *out >= 1) {
        return bad_setting(reading, key, value, "a number between 0 and 1", err);
    }
    return 0;
}

/* "# key = value"; `text` is modified. */
static int take_setting(struct reading *reading, char *text, struct err *err) {
    struct stream *stream = reading->stream;
    char *equals = strstr(text, " = ");
    if (strncmp(text, "# ", 2) != 0 || equals == NULL) {
        return err_world(err, "%s:%" PRIu32 ": found '%.40s', expected '# key = value'",
                         reading->path, reading->line, text);
    }
    *equals = '\0';
    const char *key = text + 2, *value = equals + 3;
    if (strcmp(key, "source") == 0) {
        return set_text(reading, key, value, stream->source, sizeof stream->source, err);
    }
    if (strcmp(key, "model") == 0) {
        return set_text(reading, key, value, stream->model, sizeof stream->model, err);
    }
    if (strcmp(key, "limit_bytes") == 0) {
        return set_bytes(reading, key, value, &stream->settings.limit_bytes, err);
    }
    if (strcmp(key, "max_split_bytes") == 0) {
        return set_bytes(reading, key, value, &stream->settings.max_split_bytes, err);
    }
    if (strcmp(key, "gc_threshold") == 0) {
        return set_threshold(reading, key, value, &stream->settings.gc_threshold, err);
    }
    return err_world(err,
                     "%s:%" PRIu32 ": unknown key '%.40s'; known are source, model, limit_bytes, "
                     "max_split_bytes and gc_threshold",
                     reading->path, reading->line, key);
}

/* Cut `text` at its commas; returns how many fields there are, of which N_COLUMNS are kept. */
static int split(char *text, char **fields) {
    int n = 0;
    for (;;) {
        if (n < N_COLUMNS) {
            fields[n] = text;
        }
        n++;
        char *comma = strchr(text, ',');
        if (comma == NULL) {
            return n;
        }
        *comma = '\0';
        text = comma + 1;
    }
}

static int column_of(const char *name) {
    for (int c = 0; c < N_COLUMNS; c++) {
        if (strcmp(column_names[c], name) == 0) {
            return c;
        }
    }
    return -1;
}

static int take_columns(struct reading *reading, char *text, struct err *err) {
    char *names[N_COLUMNS];
    int n = split(text, names);
    for (int i = 0; i < n && i < N_COLUMNS; i++) {
        int c = column_of(names[i]);
        if (c < 0 || reading->position[c] >= 0) {
            return err_world(err, "%s:%" PRIu32 ": %s column '%.40s'", reading->path, reading->line,
                             c < 0 ? "unknown" : "second", names[i]);
        }
        reading->position[c] = i;
    }
    for (int c = 0; c < N_REQUIRED_COLUMNS; c++) {
        if (reading->position[c] < 0) {
            return err_world(err, "%s:%" PRIu32 ": no column '%s'", reading->path, reading->line,
                             column_names[c]);
        }
    }
    reading->n_fields = n;
    return 0;
}

/* The field under a column, "" when the file has no such column. */
static const char *field(const struct reading *reading, enum column column) {
    int position = reading->position[column];
    return position >= 0 ? reading->fields[position] : "";
}

/* STREAM_UNKNOWN where the field is empty. */
static int take_whole(const struct reading *reading, enum column column, int64_t *out,
                      struct err *err) {
    const char *text = field(reading, column);
    uint64_t value;
    *out = STREAM_UNKNOWN;
    if (text[0] == '\0') {
        return 0;
    }
    if (!num_u64(text, (uint64_t)STREAM_MAX_WHOLE, &value)) {
        return err_world(err, "%s:%" PRIu32 ": %s is '%.40s', expected a whole number up to 2^61",
                         reading->path, reading->line, column_names[column], text);
    }
    *out = (int64_t)value;
    return 0;
}

static int take_kind(const struct reading *reading, enum stream_event_kind *out, struct err *err) {
    const char *text = field(reading, COLUMN_EVENT);
    for (int kind = 0; kind < N_STREAM_EVENT_KINDS; kind++) {
        if (strcmp(event_names[kind], text) == 0) {
            *out = (enum stream_event_kind)kind;
            return 0;
        }
    }
    return err_world(err,
                     "%s:%" PRIu32 ": event is '%.40s', expected alloc, free, oom, empty or graph",
                     reading->path, reading->line, text);
}

static void set_live(struct reading *reading, uint32_t id, bool is_live) {
    if (id >= reading->room_ids) {
        reading->room_ids = 2 * (size_t)id + 256;
        reading->is_live = realloc(reading->is_live, reading->room_ids * sizeof *reading->is_live);
        ASSERT(reading->is_live != NULL);
    }
    reading->is_live[id] = is_live;
}

static int check_request(struct reading *reading, struct stream_event *event, int64_t id,
                         struct err *err) {
    if (id != reading->stream->n_ids) {
        return err_world(err,
                         "%s:%" PRIu32 ": id is '%.40s', expected %" PRIu32
                         ": allocations are numbered in order",
                         reading->path, reading->line, field(reading, COLUMN_ID),
                         reading->stream->n_ids);
    }
    if (event->bytes < 1 || event->bytes > STREAM_MAX_BYTES) {
        return err_world(err, "%s:%" PRIu32 ": bytes is '%.40s', expected 1 to 2^40", reading->path,
                         reading->line, field(reading, COLUMN_BYTES));
    }
    set_live(reading, (uint32_t)id, event->kind == STREAM_ALLOC);
    return 0;
}

static int check_free(struct reading *reading, int64_t id, struct err *err) {
    if (id < 0 || id >= reading->stream->n_ids) {
        return err_world(err, "%s:%" PRIu32 ": free of '%.40s', which was never allocated",
                         reading->path, reading->line, field(reading, COLUMN_ID));
    }
    if (!reading->is_live[id]) {
        return err_world(err,
                         "%s:%" PRIu32 ": free of %" PRId64 ", which is not allocated any more",
                         reading->path, reading->line, id);
    }
    set_live(reading, (uint32_t)id, false);
    return 0;
}

static int check_event(struct reading *reading, struct stream_event *event, int64_t id,
                       struct err *err) {
    switch (event->kind) {
    case STREAM_ALLOC:
    case STREAM_OOM:
        return check_request(reading, event, id, err);
    case STREAM_FREE:
        return check_free(reading, id, err);
    default:
        if (id != STREAM_UNKNOWN) {
            return err_world(err, "%s:%" PRIu32 ": %s takes no id", reading->path, reading->line,
                             event_names[event->kind]);
        }
        return 0;
    }
}

static int take_event(struct reading *reading, char *text, struct err *err) {
    int n = split(text, reading->fields);
    if (n != reading->n_fields) {
        return err_world(err, "%s:%" PRIu32 ": found %d fields, expected %d as there are columns",
                         reading->path, reading->line, n, reading->n_fields);
    }
    if (reading->stream->n_events == STREAM_MAX_EVENTS) {
        return err_world(err, "%s:%" PRIu32 ": more than %d events", reading->path, reading->line,
                         STREAM_MAX_EVENTS);
    }
    struct stream_event event = {.line = reading->line};
    struct allocator_counts *recorded = &event.recorded;
    int64_t id = STREAM_UNKNOWN;
    int64_t *const wholes[N_COLUMNS] = {
        [COLUMN_ID] = &id,
        [COLUMN_BYTES] = &event.bytes,
        [COLUMN_ADDRESS] = &event.address,
        [COLUMN_SEGMENT_ADDRESS] = &event.segment_address,
        [COLUMN_RESERVED] = &recorded->reserved_bytes,
        [COLUMN_ALLOCATED] = &recorded->allocated_bytes,
        [COLUMN_INACTIVE] = &recorded->inactive_bytes,
        [COLUMN_SEGMENTS] = &recorded->n_segments,
    };
    int status = take_kind(reading, &event.kind, err);
    for (int c = COLUMN_ID; status == 0 && c < N_COLUMNS; c++) {
        status = take_whole(reading, (enum column)c, wholes[c], err);
    }
    if (status == 0) {
        status = check_event(reading, &event, id, err);
    }
    if (status == 0) {
        event.id = id >= 0 ? (uint32_t)id : 0;
        stream_append(reading->stream, &event);
    }
    return status;
}

static int take_line(struct reading *reading, char *text, struct err *err) {
    if (reading->n_fields > 0) {
        return take_event(reading, text, err);
    }
    return text[0] == '#' ? take_setting(reading, text, err) : take_columns(reading, text, err);
}

static int take_lines(struct reading *reading, FILE *file, struct err *err) {
    char *text = NULL;
    size_t room = 0;
    int status = 0;
    errno = 0;
    for (ssize_t length; status == 0 && (length = getline(&text, &room, file)) > 0;) {
        reading->line++;
        if (text[length - 1] == '\n') {
            text[--length] = '\0';
        }
        status = strlen(text) == (size_t)length
                     ? take_line(reading, text, err)
                     : err_world(err, "%s:%" PRIu32 ": a byte 0 in the line", reading->path,
                                 reading->line);
    }
    if (status == 0 && ferror(file)) {
        status = err_world(err, "cannot read %s: %s", reading->path, strerror(errno));
    }
    if (status == 0 && reading->n_fields == 0) {
        status = err_world(err, "%s:%" PRIu32 ": no line that names the columns", reading->path,
                           reading->line + 1);
    }
    free(text);
    return status;
}

int stream_read(const char *path, struct stream *stream, struct err *err) {
    struct reading reading = {.path = path, .stream = stream};
    for (int c = 0; c < N_COLUMNS; c++) {
        reading.position[c] = -1;
    }
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return err_world(err, "cannot open %s: %s", path, strerror(errno));
    }
    int status = take_lines(&reading, file, err);
    fclose(file);
    free(reading.is_live);
    return status;
}

/* ---- writing ---- */

static void write_settings(const struct stream *stream, FILE *file) {
    const struct allocator_settings *settings = &stream->settings;
    if (stream->source[0] != '\0') {
        fprintf(file, "# source = %s\n", stream->source);
    }
    if (stream->model[0] != '\0') {
        fprintf(file, "# model = %s\n", stream->model);
    }
    if (settings->limit_bytes > 0) {
        fprintf(file, "# limit_bytes = %" PRId64 "\n", settings->limit_bytes);
    }
    if (settings->max_split_bytes > 0) {
        fprintf(file, "# max_split_bytes = %" PRId64 "\n", settings->max_split_bytes);
    }
    if (settings->gc_threshold > 0) {
        fprintf(file, "# gc_threshold = %.17g\n", settings->gc_threshold);
    }
}

static void write_whole(FILE *file, int64_t value) {
    if (value == STREAM_UNKNOWN) {
        fputc(',', file);
    } else {
        fprintf(file, ",%" PRId64, value);
    }
}

static void write_event(const struct stream_event *event, FILE *file) {
    bool is_request = event->kind == STREAM_ALLOC || event->kind == STREAM_OOM;
    fputs(event_names[event->kind], file);
    write_whole(file, is_request || event->kind == STREAM_FREE ? event->id : STREAM_UNKNOWN);
    write_whole(file, is_request ? event->bytes : STREAM_UNKNOWN);
    write_whole(file, event->address);
    write_whole(file, event->segment_address);
    write_whole(file, event->recorded.reserved_bytes);
    write_whole(file, event->recorded.allocated_bytes);
    write_whole(file, event->recorded.inactive_bytes);
    write_whole(file, event->recorded.n_segments);
    fputc('\n', file);
}

int stream_write(const struct stream *stream, FILE *file, const char *name, struct err *err) {
    write_settings(stream, file);
    for (int c = 0; c < N_COLUMNS; c++) {
        fprintf(file, "%s%s", c > 0 ? "," : "", column_names[c]);
    }
    fputc('\n', file);
    for (size_t i = 0; i < stream->n_events; i++) {
        write_event(&stream->events[i], file);
    }
    errno = 0;
    if (fflush(file) != 0 || ferror(file)) {
        return err_world(err, "cannot write %s: %s", name,
                         errno != 0 ? strerror(errno) : "a closed pipe or a full disk");
    }
    return 0;
}
