#include "sim/memory/instance.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "sim/base/num.h"

enum column { COLUMN_ID, COLUMN_LOWER, COLUMN_UPPER, COLUMN_SIZE, COLUMN_ALIGNMENT };
enum { COLUMN_COUNT = COLUMN_ALIGNMENT + 1 };
static const char *const column_names[COLUMN_COUNT] = {"id", "lower", "upper", "size", "alignment"};

struct reader {
    const char *path;
    FILE *file;
    char *line;
    size_t line_room;
    uint64_t line_number;
    enum column columns[COLUMN_COUNT]; /* in the order of the file */
    int n_columns;
    struct instance *instance;
    uint64_t *line_numbers; /* of the buffers */
    uint32_t room;
    int64_t total_bytes; /* of buffers and alignments so far */
};

#define BAD_LINE(r, err, format, ...)                                                              \
    err_world((err), "%s:%" PRIu64 ": " format, (r)->path, (r)->line_number, __VA_ARGS__)

/* The next line without its ending, or NULL at the end. */
static char *next_line(struct reader *r, struct err *err) {
    ssize_t length = getline(&r->line, &r->line_room, r->file);
    if (length < 0) {
        if (ferror(r->file)) {
            err_world(err, "%s: cannot be read: %s", r->path, strerror(errno));
        }
        return NULL;
    }
    r->line_number++;
    if (strlen(r->line) != (size_t)length) {
        BAD_LINE(r, err, "found a NUL byte at column %zu", strlen(r->line) + 1);
        return NULL;
    }
    r->line[strcspn(r->line, "\r\n")] = '\0';
    return r->line;
}

static int read_header(struct reader *r, struct err *err) {
    char *line = next_line(r, err), *rest = line;
    bool seen[COLUMN_COUNT] = {false};
    if (line == NULL && err->kind == ERR_NONE) {
        return err_world(err, "%s: empty, expected a header line 'id,lower,upper,size'", r->path);
    }
    for (char *name = strsep(&rest, ","); name != NULL; name = strsep(&rest, ",")) {
        int column = 0;
        while (column < COLUMN_COUNT && strcmp(name, column_names[column]) != 0) {
            column++;
        }
        if (column == COLUMN_COUNT || seen[column]) {
            return BAD_LINE(r, err, "%s column '%.64s', expected id,lower,upper,size[,alignment]",
                            column == COLUMN_COUNT ? "unknown" : "second", name);
        }
        seen[column] = true;
        r->columns[r->n_columns++] = (enum column)column;
    }
    for (int column = 0; line != NULL && column <= COLUMN_SIZE; column++) {
        if (!seen[column]) {
            return BAD_LINE(r, err, "no column '%s', expected id,lower,upper,size[,alignment]",
                            column_names[column]);
        }
    }
    return line == NULL ? err_status(err) : 0;
}

/* Room for one more buffer; what there was stays valid when there is no memory. */
static int make_room(struct reader *r, struct err *err) {
    struct instance *instance = r->instance;
    if (instance->packing.n_buffers < r->room) {
        return 0;
    }
    uint32_t room = r->room == 0 ? 64 : 2 * r->room;
    struct packing_buffer *buffers = realloc(instance->buffers, room * sizeof *buffers);
    if (buffers == NULL) {
        return err_world(err, "%s: out of memory", r->path);
    }
    instance->buffers = buffers;
    char **ids = realloc(instance->ids, room * sizeof *ids);
    if (ids == NULL) {
        return err_world(err, "%s: out of memory", r->path);
    }
    instance->ids = ids;
    uint64_t *line_numbers = realloc(r->line_numbers, room * sizeof *line_numbers);
    if (line_numbers == NULL) {
        return err_world(err, "%s: out of memory", r->path);
    }
    r->line_numbers = line_numbers;
    r->room = room;
    return 0;
}

static int read_number(const struct reader *r, enum column column, const char *text, int64_t min,
                       int64_t max, int64_t *out, struct err *err) {
    uint64_t value;
    if (!num_u64(text, (uint64_t)max, &value) || (int64_t)value < min) {
        return BAD_LINE(r, err,
                        "found %s '%.64s', expected a whole number from %" PRId64 " to %" PRId64,
                        column_names[column], text, min, max);
    }
    *out = (int64_t)value;
    return 0;
}

/* One field of a row. `upper` waits in last_time until the row is complete. */
static int read_field(const struct reader *r, enum column column, const char *text,
                      struct packing_buffer *buffer, char **id, struct err *err) {
    switch (column) {
    case COLUMN_ID:
        if (text[0] == '\0') {
            return BAD_LINE(r, err, "found an empty %s, expected a name of the buffer's own",
                            column_names[column]);
        }
        *id = strdup(text);
        return *id == NULL ? err_world(err, "%s: out of memory", r->path) : 0;
    case COLUMN_LOWER:
        return read_number(r, column, text, 0, INT64_MAX, &buffer->first_time, err);
    case COLUMN_UPPER:
        return read_number(r, column, text, 0, INT64_MAX, &buffer->last_time, err);
    case COLUMN_SIZE:
        return read_number(r, column, text, 1, PACKING_MAX_BYTES, &buffer->bytes, err);
    case COLUMN_ALIGNMENT:
        return read_number(r, column, text, 1, PACKING_MAX_BYTES, &buffer->align_bytes, err);
    }
    return 0;
}

static int check_row(struct reader *r, struct packing_buffer *buffer, struct err *err) {
    if (buffer->last_time <= buffer->first_time) {
        return BAD_LINE(r, err, "upper %" PRId64 " is not after lower %" PRId64, buffer->last_time,
                        buffer->first_time);
    }
    buffer->last_time--;
    if (buffer->bytes + (buffer->align_bytes - 1) > PACKING_MAX_BYTES - r->total_bytes) {
        return BAD_LINE(r, err, "sizes and alignments up to here add up to more than %" PRId64,
                        PACKING_MAX_BYTES);
    }
    r->total_bytes += buffer->bytes + (buffer->align_bytes - 1);
    return 0;
}

static int read_row(struct reader *r, char *line, struct err *err) {
    struct instance *instance = r->instance;
    uint32_t n = instance->packing.n_buffers;
    if (n == PACKING_MAX_BUFFERS) {
        return BAD_LINE(r, err, "more than %d buffers", PACKING_MAX_BUFFERS);
    }
    int status = make_room(r, err), n_fields = 0;
    if (status != 0) {
        return status;
    }
    struct packing_buffer *buffer = &instance->buffers[n];
    *buffer = (struct packing_buffer){.align_bytes = 1};
    instance->ids[n] = NULL;
    r->line_numbers[n] = r->line_number;
    instance->packing.n_buffers++;
    char *rest = line;
    for (char *text = strsep(&rest, ","); text != NULL; text = strsep(&rest, ",")) {
        if (n_fields < r->n_columns) {
            status = read_field(r, r->columns[n_fields], text, buffer, &instance->ids[n], err);
            if (status != 0) {
                return status;
            }
        }
        n_fields++;
    }
    if (n_fields != r->n_columns) {
        return BAD_LINE(r, err, "found %d fields, expected %d as in the header", n_fields,
                        r->n_columns);
    }
    return check_row(r, buffer, err);
}

struct named {
    const char *id;
    uint64_t line_number;
};

static int by_id(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    return order != 0 ? order
                      : (x->line_number > y->line_number) - (x->line_number < y->line_number);
}

static int check_ids(const struct reader *r, struct err *err) {
    uint32_t n = r->instance->packing.n_buffers;
    struct named *named = malloc(n * sizeof *named);
    if (named == NULL) {
        return err_world(err, "%s: out of memory", r->path);
    }
    for (uint32_t i = 0; i < n; i++) {
        named[i] = (struct named){r->instance->ids[i], r->line_numbers[i]};
    }
    qsort(named, n, sizeof named[0], by_id);
    int status = 0;
    for (uint32_t i = 1; i < n && status == 0; i++) {
        if (strcmp(named[i - 1].id, named[i].id) == 0) {
            status =
                err_world(err, "%s:%" PRIu64 ": id '%.64s' is that of line %" PRIu64 " already",
                          r->path, named[i].line_number, named[i].id, named[i - 1].line_number);
        }
    }
    free(named);
    return status;
}

static int read_all(struct reader *r, struct err *err) {
    int status = read_header(r, err);
    for (char *line; status == 0 && (line = next_line(r, err)) != NULL;) {
        status = read_row(r, line, err);
    }
    status = status == 0 && err->kind != ERR_NONE ? err_status(err) : status;
    if (status == 0 && r->instance->packing.n_buffers == 0) {
        return err_world(err, "%s: no buffers behind the header", r->path);
    }
    return status == 0 ? check_ids(r, err) : status;
}

int instance_read(const char *path, struct instance *out, struct err *err) {
    struct reader reader = {.path = path, .instance = out, .file = fopen(path, "r")};
    *out = (struct instance){0};
    if (reader.file == NULL) {
        return err_world(err, "%s: %s", path, strerror(errno));
    }
    int status = read_all(&reader, err);
    fclose(reader.file);
    free(reader.line);
    free(reader.line_numbers);
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
    *instance = (struct instance){0};
}
