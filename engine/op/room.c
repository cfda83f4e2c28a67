#include "engine/op/room.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/memory/placement.h"

enum { BOUNCE_BYTES = 4 << 20 };

static int device_err(const struct room *room, int status, const char *what, struct err *err) {
    return engine_device_err(room->device, status, what, err);
}

/* ---- opening ---- */

/* Device memory, with a sentence that says how much was wanted and for what. */
static void *allocate(struct room *room, int64_t bytes, const char *what, struct err *err) {
    void *memory = NULL;
    int status = room->device->table->allocate(room->device->device, bytes, &memory);
    if (status != DEVICE_OK) {
        char size[32], doing[128];
        num_format_bytes(size, sizeof size, (double)bytes);
        snprintf(doing, sizeof doing, "making room for %s of %s", size, what);
        device_err(room, status, doing, err);
    }
    return memory;
}

/* The same for memory other than workspace and pool. */
static void *allocate_side(struct room *room, int64_t bytes, const char *what, struct err *err) {
    void *memory = allocate(room, bytes, what, err);
    room->side_bytes += memory != NULL ? bytes : 0;
    return memory;
}

static bool open_region(struct room *room, const struct step_limits *limits, struct err *err) {
    int64_t workspace = align_up(limits->workspace_bytes, PLACEMENT_ALIGN_BYTES),
            pool = limits->pool_bytes;
    int64_t bytes = limits->shares_pool ? (workspace > pool ? workspace : pool) : workspace + pool;
    if (!limits->maps) {
        room->workspace = allocate(room, bytes, "workspace and cached rows", err);
    } else if (mapping_open(&room->mapping, room->device, bytes, err) == 0) {
        room->workspace = room->mapping.addresses;
    }
    if (room->workspace != NULL) {
        room->pool = room->workspace + (limits->shares_pool ? 0 : workspace);
    }
    room->pool_bytes = room->pool_held = pool;
    return room->workspace != NULL;
}

static int64_t canvas_bytes(const struct step_limits *limits) {
    return limits->canvas_tokens * (int64_t)sizeof(int32_t);
}

static int64_t rotation_bytes(const struct step_limits *limits, const struct model *model) {
    const int64_t all = (int64_t)model_rotary_dim(model) + model->global_head_dim;
    return limits->max_positions * all * (int64_t)sizeof(float);
}

/* What is kept by place. */
static bool open_places(struct room *room, const struct model *model,
                        const struct step_limits *limits, bool smooths, struct err *err) {
    int64_t words = limits->credit_slots > 0 ? 2 * (int64_t)limits->credit_slots + 2 : 0;
    bool opened = true;
    room->credit_bytes = words * (int64_t)sizeof *room->credit;
    room->expected_bytes = smooths ? model->hidden * engine_element_bytes(room->device) : 0;
    if (room->credit_bytes > 0) {
        room->credit = allocate_side(room, limits->places * room->credit_bytes, "credit", err);
        opened = room->credit != NULL;
    }
    if (opened && smooths) {
        const int64_t before = model->conditioning_ffn > 0 ? room->expected_bytes : 0;
        const int64_t bytes = before + limits->places * room->expected_bytes;
        room->expected_memory = allocate_side(room, bytes, "expected embeddings", err);
        opened = room->expected_memory != NULL;
        room->expected = opened ? room->expected_memory + before : NULL;
    }
    if (opened && smooths) {
        room->thresholds = allocate_side(
            room, limits->max_requests * (int64_t)sizeof *room->thresholds, "thresholds", err);
        opened = room->thresholds != NULL;
    }
    return opened;
}

static bool open_sides(struct room *room, const struct model *model,
                       const struct step_limits *limits, int64_t array_bytes, struct err *err) {
    int64_t rows = align_up(limits->max_logit_rows, PLACEMENT_ALIGN_BYTES);
    int64_t decisions = limits->max_requests * (int64_t)sizeof(int32_t);
    int64_t unrolled = limits->max_unrolled > 1 ? limits->max_unrolled * decisions : 0;
    room->bounce_bytes =
        align_up(limits->pool_bytes < BOUNCE_BYTES ? limits->pool_bytes + 1 : (int64_t)BOUNCE_BYTES,
                 PLACEMENT_ALIGN_BYTES);
    room->canvases = allocate_side(room, canvas_bytes(limits), "canvases", err);
    if (room->canvases != NULL) {
        room->cos_sin = allocate_side(room, rotation_bytes(limits, model), "rotations", err);
    }
    if (room->cos_sin != NULL) {
        room->arrays = allocate_side(room, array_bytes, "steps", err);
    }
    if (room->arrays != NULL) {
        room->committed = allocate_side(room, rows + decisions + unrolled, "decisions", err);
    }
    if (room->committed != NULL) {
        room->n_committed = (int32_t *)(void *)(room->committed + rows);
        room->unrolled = unrolled > 0 ? room->n_committed + limits->max_requests : NULL;
        room->bounce = allocate_side(room, room->bounce_bytes, "moves", err);
    }
    return room->bounce != NULL;
}

static int open_host(struct room *room, int64_t array_bytes, struct err *err) {
    const struct device_table *table = room->device->table;
    struct device *device = room->device->device;
    void *memory = NULL;
    int status = table->allocate_host(device, ROOM_STAGING_BYTES, &memory);
    room->staging = memory;
    for (int i = 0; status == DEVICE_OK && i < ROOM_UPLOADS; i++) {
        memory = NULL;
        status = table->allocate_host(device, array_bytes, &memory);
        room->uploads[i] = memory;
    }
    for (int i = 0; status == DEVICE_OK && i < EVENT_COUNT; i++) {
        status = table->event_open(device, &room->events[i]);
    }
    return device_err(room, status, "making room to talk to it", err);
}

/* The table of rotations, and canvases without chance values. */
static int fill(struct room *room, const struct model *model, const struct step_limits *limits,
                const struct rotation *rotation, struct err *err) {
    const struct device_table *table = room->device->table;
    struct device *device = room->device->device;
    int64_t bytes = rotation_bytes(limits, model);
    void *cos_sin = NULL;
    int status = table->allocate_host(device, bytes, &cos_sin);
    if (status == DEVICE_OK) {
        const int32_t n = (int32_t)limits->max_positions, rotary = (int32_t)model_rotary_dim(model);
        rotation_table(rotation, n, rotary, cos_sin);
        if (model->global_head_dim > 0) {
            rotation_table(rotation, n, (int32_t)model->global_head_dim,
                           (float *)cos_sin + (int64_t)n * rotary);
        }
        status = table->upload(device, room->cos_sin, cos_sin, bytes);
    }
    if (status == DEVICE_OK) {
        status = table->clear(device, room->canvases, canvas_bytes(limits));
    }
    if (status == DEVICE_OK && room->expected != room->expected_memory) {
        status = table->clear(device, room->expected_memory, room->expected_bytes);
    }
    status = status == DEVICE_OK ? table->finish(device) : status;
    table->release_host(device, cos_sin);
    return device_err(room, status, "uploading rotations", err);
}

int room_open(struct room *room, const struct engine_device *device, const struct model *model,
              const struct step_limits *limits, int64_t array_bytes, bool smooths,
              const struct rotation *rotation, struct err *err) {
    *room = (struct room){.device = device};
    bool has_memory = open_region(room, limits, err) &&
                      open_sides(room, model, limits, array_bytes, err) &&
                      open_places(room, model, limits, smooths, err);
    int status = has_memory ? open_host(room, array_bytes, err) : err_status(err);
    status = status == 0 ? fill(room, model, limits, rotation, err) : status;
    if (status != 0) {
        room_close(room);
    }
    return status;
}

void room_close(struct room *room) {
    if (room->device == NULL) {
        return;
    }
    const struct device_table *table = room->device->table;
    struct device *device = room->device->device;
    for (int i = 0; i < EVENT_COUNT; i++) {
        if (room->events[i] != NULL) {
            table->event_close(device, room->events[i]);
        }
    }
    for (int i = 0; i < ROOM_UPLOADS; i++) {
        table->release_host(device, room->uploads[i]);
    }
    table->release_host(device, room->staging);
    table->release(device, room->bounce);
    table->release(device, room->committed);
    table->release(device, room->credit);
    table->release(device, room->expected_memory);
    table->release(device, room->thresholds);
    table->release(device, room->arrays);
    table->release(device, room->cos_sin);
    table->release(device, room->canvases);
    if (room->mapping.device != NULL) {
        mapping_close(&room->mapping);
    } else {
        table->release(device, room->workspace);
    }
    *room = (struct room){0};
}

/* ---- memory that is mapped ---- */

static int cover(struct room *room, struct err *err) {
    int64_t rows_from = room->pool_held < room->pool_bytes
                            ? room->pool - room->workspace + room->pool_held
                            : room->mapping.bytes;
    return mapping_cover(&room->mapping, room->workspace_needed, rows_from, err);
}

int room_use_workspace(struct room *room, int64_t bytes, struct err *err) {
    if (room->mapping.device == NULL) {
        return 0;
    }
    room->workspace_needed = bytes;
    int status = cover(room, err);
    return status == 0 ? mapping_next_step(&room->mapping, err) : status;
}

int room_hold_pool(struct room *room, int64_t first_byte, struct err *err) {
    room->pool_held = first_byte;
    return room->mapping.device != NULL ? cover(room, err) : 0;
}

/* ---- tokens and rows on their way ---- */

/* Through memory that copies reach, in the queue; `from` may go at once. */
static int stage(struct room *room, void *to, const void *from, int64_t bytes) {
    const struct device_table *table = room->device->table;
    struct device *device = room->device->device;
    int status = DEVICE_OK;
    for (int64_t done = 0; status == DEVICE_OK && done < bytes;) {
        if (room->staged_bytes == ROOM_STAGING_BYTES) {
            status = table->finish(device);
            room->staged_bytes = 0;
            continue;
        }
        const int64_t left = ROOM_STAGING_BYTES - room->staged_bytes;
        const int64_t piece = bytes - done < left ? bytes - done : left;
        unsigned char *staged = room->staging + room->staged_bytes;
        memcpy(staged, (const unsigned char *)from + done, (size_t)piece);
        status = table->upload(device, (unsigned char *)to + done, staged, piece);
        room->staged_bytes += piece;
        done += piece;
    }
    return status;
}

int room_write(struct room *room, int64_t first, const int32_t *tokens, int64_t n,
               struct err *err) {
    const int status = stage(room, room->canvases + first, tokens, n * (int64_t)sizeof *tokens);
    return device_err(room, status, "writing to a canvas", err);
}

int room_clear_places(struct room *room, int64_t first, int64_t n, struct err *err) {
    const struct device_table *table = room->device->table;
    struct device *device = room->device->device;
    int status = DEVICE_OK;
    if (room->credit != NULL) {
        unsigned char *lists = (unsigned char *)room->credit;
        status = table->clear(device, lists + first * room->credit_bytes, n * room->credit_bytes);
    }
    if (status == DEVICE_OK && room->expected != NULL) {
        status = table->clear(device, room->expected + first * room->expected_bytes,
                              n * room->expected_bytes);
    }
    return device_err(room, status, "emptying the places of a block", err);
}

int64_t room_place_bytes(const struct room *room) {
    return room->credit_bytes + room->expected_bytes;
}

int room_read_places(struct room *room, int64_t first, int64_t n, unsigned char *to,
                     struct err *err) {
    const struct device_table *table = room->device->table;
    struct device *device = room->device->device;
    const unsigned char *lists = (const unsigned char *)room->credit;
    int status = DEVICE_OK;
    if (room->credit != NULL) {
        status =
            table->download(device, to, lists + first * room->credit_bytes, n * room->credit_bytes);
    }
    if (status == DEVICE_OK && room->expected != NULL) {
        status = table->download(device, to + n * room->credit_bytes,
                                 room->expected + first * room->expected_bytes,
                                 n * room->expected_bytes);
    }
    return device_err(room, status, "reading the places of a block", err);
}

int room_write_places(struct room *room, int64_t first, int64_t n, const unsigned char *from,
                      struct err *err) {
    unsigned char *lists = (unsigned char *)room->credit;
    int status = DEVICE_OK;
    if (room->credit != NULL) {
        status = stage(room, lists + first * room->credit_bytes, from, n * room->credit_bytes);
    }
    if (status == DEVICE_OK && room->expected != NULL) {
        status = stage(room, room->expected + first * room->expected_bytes,
                       from + n * room->credit_bytes, n * room->expected_bytes);
    }
    return device_err(room, status, "writing the places of a block", err);
}

static int copy(const struct room *room, void *to, const void *from, int64_t bytes) {
    return room->device->table->copy(room->device->device, to, from, bytes);
}

/* A piece at a time through the bounce buffer, from the end that the move goes towards, so that
 * what is overwritten has been moved already. */
static int move_over_itself(const struct room *room, int64_t to, int64_t from, int64_t bytes) {
    int status = DEVICE_OK;
    for (int64_t done = 0; status == DEVICE_OK && done < bytes;) {
        int64_t left = bytes - done;
        int64_t piece = left < room->bounce_bytes ? left : room->bounce_bytes;
        int64_t at = to > from ? left - piece : done;
        status = copy(room, room->bounce, room->pool + from + at, piece);
        if (status == DEVICE_OK) {
            status = copy(room, room->pool + to + at, room->bounce, piece);
        }
        done += piece;
    }
    return status;
}

int room_move(struct room *room, int64_t to, int64_t from, int64_t bytes, struct err *err) {
    int64_t distance = to > from ? to - from : from - to;
    int status = DEVICE_OK;
    if (distance > 0 && bytes > 0) {
        status = distance >= bytes ? copy(room, room->pool + to, room->pool + from, bytes)
                                   : move_over_itself(room, to, from, bytes);
    }
    return device_err(room, status, "moving cached rows", err);
}
