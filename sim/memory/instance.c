#include "sim/memory/instance.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/csv.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"

enum {
    COLUMN_ID,
    COLUMN_LOWER,
    COLUMN_UPPER,
    COLUMN_SIZE,
    COLUMN_ALIGNMENT,
    COLUMN_OFFSET,
    COLUMN_HINT,
    COLUMN_GAPS,
    COLUMN_BUFFER,
    COLUMN_BUFFER_ID,
    COLUMN_START,
    COLUMN_BEGIN,
    COLUMN_END,
    N_COLUMNS
};
static const char *const column_names[] = {"id",     "lower", "upper", "size",   "alignment",
                                           "offset", "hint",  "gaps",  "buffer", "buffer_id",
                                           "start",  "begin", "end",   NULL};
/* Other names of the first three. */
static const int other_names[][2] = {{COLUMN_BUFFER, COLUMN_ID},
                                     {COLUMN_BUFFER_ID, COLUMN_ID},
                                     {COLUMN_START, COLUMN_LOWER},
                                     {COLUMN_BEGIN, COLUMN_LOWER},
                                     {COLUMN_END, COLUMN_UPPER}};

struct reader {
    struct csv csv;
    struct instance *instance;
    size_t room, room_ids, room_offsets;
    bool has_end;        /* upper is the last time, not the one after it */
    int64_t total_bytes; /* of buffers and alignments so far */
};

static int bad_row(const struct reader *r, const char *what, struct err *err) {
    return err_world(err, "%s:%" PRIu64 ": %s", r->csv.line.path, r->csv.line.number, what);
}

static int read_buffer(struct reader *r, struct packing_buffer *buffer, struct err *err) {
    const struct csv *csv = &r->csv;
    int64_t upper;
    if (csv_field(csv, COLUMN_ID)[0] == '\0') {
        return csv_bad(csv, COLUMN_ID, "a name of the buffer's own", err);
    }
    if (csv_whole(csv, COLUMN_LOWER, 0, INT64_MAX, &buffer->first_time, err) != 0 ||
        csv_whole(csv, COLUMN_UPPER, 0, INT64_MAX - r->has_end, &upper, err) != 0 ||
        csv_whole(csv, COLUMN_SIZE, 1, PACKING_MAX_BYTES, &buffer->bytes, err) != 0 ||
        (csv->position[COLUMN_ALIGNMENT] >= 0 &&
         csv_whole(csv, COLUMN_ALIGNMENT, 1, PACKING_MAX_BYTES, &buffer->align_bytes, err) != 0)) {
        return (int)err->kind;
    }
    if (r->has_end ? upper < buffer->first_time : upper <= buffer->first_time) {
        return bad_row(r, r->has_end ? "end is before start" : "upper is not after lower", err);
    }
    buffer->last_time = r->has_end ? upper : upper - 1;
    if (buffer->bytes + (buffer->align_bytes - 1) > PACKING_MAX_BYTES - r->total_bytes) {
        return bad_row(r, "sizes and alignments up to here add up to more than 2^61", err);
    }
    r->total_bytes += buffer->bytes + (buffer->align_bytes - 1);
    return 0;
}

static int read_row(struct reader *r, struct err *err) {
    struct instance *instance = r->instance;
    uint32_t n = instance->packing.n_buffers;
    struct packing_buffer buffer = {.align_bytes = 1};
    if (n == PACKING_MAX_BUFFERS) {
        return bad_row(r, "more than 8192 buffers", err);
    }
    if (csv_row(&r->csv, err) != 0 || read_buffer(r, &buffer, err) != 0) {
        return (int)err->kind;
    }
    instance->buffers = mem_grown(instance->buffers, n, &r->room, sizeof buffer);
    instance->ids = mem_grown(instance->ids, n, &r->room_ids, sizeof *instance->ids);
    if (r->csv.position[COLUMN_OFFSET] >= 0) {
        instance->offset_bytes =
            mem_grown(instance->offset_bytes, n, &r->room_offsets, sizeof *instance->offset_bytes);
        if (csv_whole(&r->csv, COLUMN_OFFSET, 0, PACKING_MAX_BYTES, &instance->offset_bytes[n],
                      err) != 0) {
            return err_status(err);
        }
    }
    instance->buffers[n] = buffer;
    instance->ids[n] = mem_text(csv_field(&r->csv, COLUMN_ID));
    instance->packing.n_buffers++;
    return 0;
}

/* Ids are the buffers' own; rows stand on lines from 2 on. */
static int by_id(const void *a, const void *b) {
    char *const *x = *(char *const *const *)a, *const *y = *(char *const *const *)b;
    int order = strcmp(*x, *y);
    return order != 0 ? order : (x > y) - (x < y);
}

static int check_ids(const struct reader *r, struct err *err) {
    const struct instance *instance = r->instance;
    uint32_t n = instance->packing.n_buffers;
    char *const **ids = mem_unwritten(n, sizeof *ids);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = &instance->ids[i];
    }
    qsort(ids, n, sizeof *ids, by_id);
    int status = 0;
    for (uint32_t i = 1; i < n && status == 0; i++) {
        if (strcmp(*ids[i - 1], *ids[i]) == 0) {
            status =
                err_world(err, "%s:%td: id '%.64s' is that of line %td already", r->csv.line.path,
                          ids[i] - instance->ids + 2, *ids[i], ids[i - 1] - instance->ids + 2);
        }
    }
    free(ids);
    return status;
}

/* One name of each column that must be there. */
static int read_header(struct reader *r, struct err *err) {
    struct csv *csv = &r->csv;
    int status = csv_first(csv, column_names, (1u << N_COLUMNS) - 1, false, err);
    for (size_t i = 0; status == 0 && i < sizeof other_names / sizeof other_names[0]; i++) {
        int other = other_names[i][0], column = other_names[i][1];
        if (csv->position[other] >= 0 && csv->position[column] >= 0) {
            return err_world(err, "%s:1: both '%s' and another column for '%s'", csv->line.path,
                             column_names[other], column_names[column]);
        }
        if (csv->position[other] >= 0) {
            csv->position[column] = csv->position[other];
        }
    }
    for (int c = 0; status == 0 && c < COLUMN_ALIGNMENT; c++) {
        status = csv->position[c] >= 0
                     ? 0
                     : err_world(err, "%s:1: no column '%s'", csv->line.path, column_names[c]);
    }
    for (int i = 0; status == 0 && i < csv->n_fields; i++) {
        status =
            name_find(column_names, csv->fields[i]) >= 0
                ? 0
                : err_world(err, "%s:1: unknown column '%.64s'", csv->line.path, csv->fields[i]);
    }
    r->has_end = csv->position[COLUMN_END] >= 0;
    r->instance->has_hints = csv->position[COLUMN_HINT] >= 0;
    r->instance->has_gaps = csv->position[COLUMN_GAPS] >= 0;
    return status;
}

static int read_all(struct reader *r, struct err *err) {
    bool more;
    int status = read_header(r, err);
    while (status == 0 && (status = csv_line(&r->csv, &more, err)) == 0 && more) {
        status = read_row(r, err);
    }
    if (status == 0 && r->instance->packing.n_buffers == 0) {
        return err_world(err, "%s: no buffers after the header", r->csv.line.path);
    }
    return status == 0 ? check_ids(r, err) : status;
}

int instance_read(const char *path, struct instance *out, struct err *err) {
    struct reader reader = {.instance = out};
    *out = (struct instance){0};
    int status = csv_open(&reader.csv, path, "instance", err);
    reader.csv.is_open_end = true;
    status = status == 0 ? read_all(&reader, err) : status;
    csv_close(&reader.csv);
    out->packing.buffers = out->buffers;
    if (status != 0) {
        instance_fini(out);
    }
    return status;
}

void instance_fini(struct instance *instance) {
    for (uint32_t i = 0; i < instance->packing.n_buffers; i++) {
        free(instance->ids[i]);
    }
    free(instance->ids);
    free(instance->buffers);
    free(instance->offset_bytes);
    *instance = (struct instance){0};
}
