#include "engine/device/mapping.h"

#include <stdio.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/num.h"

/* ---- calls, counted ---- */

static int counted(struct mapping *mapping, enum mapping_call call, int64_t bytes, int64_t start_ns,
                   int status) {
    struct mapping_cost *cost = &mapping->costs[call];
    cost->n++;
    cost->ns += monotonic_ns() - start_ns;
    cost->bytes += bytes;
    return status;
}

static int drain(struct mapping *mapping) {
    int64_t start = monotonic_ns();
    int status = mapping->device->table->finish(mapping->device->device);
    return counted(mapping, MAPPING_WAIT, 0, start, status);
}

static int create(struct mapping *mapping, int64_t bytes, struct device_handle **out) {
    int64_t start = monotonic_ns();
    int status = mapping->device->table->handle_open(mapping->device->device, bytes, out);
    return counted(mapping, MAPPING_CREATE, bytes, start, status);
}

static void release(struct mapping *mapping, const struct mapping_handle *handle) {
    int64_t start = monotonic_ns();
    mapping->device->table->handle_close(mapping->device->device, handle->handle);
    (void)counted(mapping, MAPPING_RELEASE, handle->bytes, start, DEVICE_OK);
}

static int map(struct mapping *mapping, int64_t at, const struct mapping_handle *handle) {
    int64_t start = monotonic_ns();
    int status = mapping->device->table->map(mapping->device->device, mapping->addresses + at,
                                             handle->handle);
    return counted(mapping, MAPPING_MAP, handle->bytes, start, status);
}

static int allow(struct mapping *mapping, int64_t at, int64_t bytes) {
    int64_t start = monotonic_ns();
    int status =
        mapping->device->table->allow(mapping->device->device, mapping->addresses + at, bytes);
    return counted(mapping, MAPPING_ALLOW, bytes, start, status);
}

static int unmap(struct mapping *mapping, const struct mapping_handle *handle) {
    int64_t start = monotonic_ns();
    int status = mapping->device->table->unmap(mapping->device->device, handle->handle);
    return counted(mapping, MAPPING_UNMAP, handle->bytes, start, status);
}

/* ---- the two ends ---- */

static int64_t gap_bytes(const struct mapping *mapping) {
    return mapping->bytes - mapping_mapped_bytes(mapping);
}

/* Where in the range `bytes` lie whose outer edge is so far from their end. */
static int64_t place(const struct mapping *mapping, enum mapping_end end, int64_t outer,
                     int64_t bytes) {
    return end == MAPPING_WORKSPACE ? outer : mapping->bytes - outer - bytes;
}

static bool is_needed(const struct mapping *mapping, int64_t at, int64_t bytes) {
    return at < mapping->workspace_bytes || at + bytes > mapping->rows_from;
}

static void note_use(struct mapping *mapping) {
    for (enum mapping_end end = MAPPING_WORKSPACE; end < MAPPING_ENDS; end++) {
        struct mapping_side *side = &mapping->sides[end];
        int64_t outer = 0;
        for (uint32_t i = 0; i < side->n; i++) {
            struct mapping_handle *handle = &side->handles[i];
            if (is_needed(mapping, place(mapping, end, outer, handle->bytes), handle->bytes)) {
                handle->last_used = mapping->n_steps;
            }
            outer += handle->bytes;
        }
    }
}

/* The innermost handle of an end, if it is not needed now and was unused in enough steps; else
 * NULL. */
static const struct mapping_handle *spare(const struct mapping *mapping, enum mapping_end end,
                                          uint64_t n_steps) {
    const struct mapping_side *side = &mapping->sides[end];
    const struct mapping_handle *last = side->n > 0 ? &side->handles[side->n - 1] : NULL;
    if (last == NULL || mapping->n_steps - last->last_used < n_steps) {
        return NULL;
    }
    int64_t at = place(mapping, end, side->bytes - last->bytes, last->bytes);
    return is_needed(mapping, at, last->bytes) ? NULL : last;
}

/* Unmaps the innermost handle of an end, once nothing can be using it. */
static int detach(struct mapping *mapping, enum mapping_end end, struct mapping_handle *out) {
    struct mapping_side *side = &mapping->sides[end];
    int status = drain(mapping);
    if (status == DEVICE_OK) {
        status = unmap(mapping, &side->handles[side->n - 1]);
    }
    if (status == DEVICE_OK) {
        *out = side->handles[--side->n];
        side->bytes -= out->bytes;
    }
    return status;
}

/* The handle goes where an end meets the gap; when that fails, back to the device. */
static int attach(struct mapping *mapping, enum mapping_end end, struct mapping_handle *handle) {
    struct mapping_side *side = &mapping->sides[end];
    int status = map(mapping, place(mapping, end, side->bytes, handle->bytes), handle);
    if (status != DEVICE_OK) {
        release(mapping, handle);
        return status;
    }
    handle->last_used = mapping->n_steps;
    side->handles[side->n++] = *handle;
    side->bytes += handle->bytes;
    int64_t mapped = mapping_mapped_bytes(mapping);
    mapping->most_bytes = mapped > mapping->most_bytes ? mapped : mapping->most_bytes;
    return status;
}

static int lend(struct mapping *mapping, enum mapping_end from, enum mapping_end to) {
    struct mapping_handle handle;
    int status = detach(mapping, from, &handle);
    if (status == DEVICE_OK) {
        mapping->n_lent++;
        mapping->lent_bytes += handle.bytes;
        status = attach(mapping, to, &handle);
    }
    return status;
}

static int create_and_attach(struct mapping *mapping, enum mapping_end end, int64_t bytes) {
    struct mapping_handle handle = {.bytes = bytes};
    int status = create(mapping, bytes, &handle.handle);
    return status == DEVICE_OK ? attach(mapping, end, &handle) : status;
}

/* ---- growing and shrinking ---- */

/* One more handle for an end that is to have `wanted` bytes. What the other end has left unused
 * goes first; when the device has no more, also what it does not need just now, and in the end no
 * more is asked for than what is missing. */
static int add_handle(struct mapping *mapping, enum mapping_end end, int64_t wanted) {
    enum mapping_end other = end == MAPPING_WORKSPACE ? MAPPING_ROWS : MAPPING_WORKSPACE;
    if (spare(mapping, other, MAPPING_LEND_STEPS) != NULL) {
        return lend(mapping, other, end);
    }
    int64_t gap = gap_bytes(mapping), missing = wanted - mapping->sides[end].bytes;
    int64_t share = align_up(wanted / MAPPING_HANDLE_SHARE, mapping->granule_bytes);
    int64_t least = align_up(MAPPING_HANDLE_BYTES, mapping->granule_bytes);
    int64_t bytes = share > least ? share : least;
    bytes = bytes < gap ? bytes : gap;
    int status = create_and_attach(mapping, end, bytes);
    if (status == DEVICE_NO_MEMORY && spare(mapping, other, 0) != NULL) {
        return lend(mapping, other, end);
    }
    return status == DEVICE_NO_MEMORY && missing < bytes ? create_and_attach(mapping, end, missing)
                                                         : status;
}

/* What is mapped by then may be used even if more could not be had. */
static int grow(struct mapping *mapping, enum mapping_end end, int64_t needed_bytes) {
    struct mapping_side *side = &mapping->sides[end];
    int64_t had = side->bytes, wanted = align_up(needed_bytes, mapping->granule_bytes);
    int status = DEVICE_OK;
    while (status == DEVICE_OK && side->bytes < wanted && gap_bytes(mapping) > 0) {
        status = add_handle(mapping, end, wanted);
    }
    if (side->bytes > had) {
        int allowed =
            allow(mapping, place(mapping, end, had, side->bytes - had), side->bytes - had);
        status = status == DEVICE_OK ? allowed : status;
    }
    return status;
}

static int mapping_err(const struct mapping *mapping, int status, struct err *err) {
    char workspace[32], rows[32], mapped[32], doing[160];
    snprintf(doing, sizeof doing,
             "mapping memory for %s of workspace and %s of cached rows, %s so far",
             num_format_bytes(workspace, sizeof workspace, (double)mapping->workspace_bytes),
             num_format_bytes(rows, sizeof rows, (double)(mapping->bytes - mapping->rows_from)),
             num_format_bytes(mapped, sizeof mapped, (double)mapping_mapped_bytes(mapping)));
    return engine_device_err(mapping->device, status, doing, err);
}

int mapping_cover(struct mapping *mapping, int64_t workspace_bytes, int64_t rows_from,
                  struct err *err) {
    ASSERT(workspace_bytes >= 0 && workspace_bytes <= mapping->bytes && rows_from >= 0 &&
           rows_from <= mapping->bytes);
    mapping->workspace_bytes = workspace_bytes;
    mapping->rows_from = rows_from;
    note_use(mapping);
    int status = grow(mapping, MAPPING_WORKSPACE, workspace_bytes);
    if (status == DEVICE_OK) {
        status = grow(mapping, MAPPING_ROWS, mapping->bytes - rows_from);
    }
    return status == DEVICE_OK ? 0 : mapping_err(mapping, status, err);
}

int mapping_next_step(struct mapping *mapping, struct err *err) {
    int status = DEVICE_OK;
    for (enum mapping_end end = MAPPING_WORKSPACE; end < MAPPING_ENDS; end++) {
        while (status == DEVICE_OK && spare(mapping, end, MAPPING_RELEASE_STEPS) != NULL) {
            struct mapping_handle handle;
            status = detach(mapping, end, &handle);
            if (status == DEVICE_OK) {
                release(mapping, &handle);
            }
        }
    }
    mapping->n_steps++;
    return engine_device_err(mapping->device, status, "giving unused memory back", err);
}

/* ---- facts ---- */

int64_t mapping_mapped_bytes(const struct mapping *mapping) {
    return mapping->sides[MAPPING_WORKSPACE].bytes + mapping->sides[MAPPING_ROWS].bytes;
}

struct mapping_cost mapping_total(const struct mapping *mapping) {
    struct mapping_cost total = {0};
    for (int i = 0; i < MAPPING_CALLS; i++) {
        total.n += mapping->costs[i].n;
        total.ns += mapping->costs[i].ns;
    }
    return total;
}

/* ---- opening ---- */

static int reserve(struct mapping *mapping, int64_t bytes) {
    const struct device_table *table = mapping->device->table;
    struct device *device = mapping->device->device;
    void *addresses = NULL;
    int64_t start = monotonic_ns();
    int status = table->granule(device, &mapping->granule_bytes);
    if (status == DEVICE_OK) {
        mapping->bytes = align_up(bytes, mapping->granule_bytes);
        status = table->range_open(device, mapping->bytes, &addresses);
    }
    mapping->addresses = addresses;
    return counted(mapping, MAPPING_RESERVE, mapping->bytes, start, status);
}

int mapping_open(struct mapping *mapping, const struct engine_device *device, int64_t bytes,
                 struct err *err) {
    *mapping = (struct mapping){.device = device};
    int status = engine_device_err(device, reserve(mapping, bytes),
                                   "reserving addresses for workspace and cached rows", err);
    if (status != 0) {
        *mapping = (struct mapping){0};
        return status;
    }
    mapping->rows_from = mapping->bytes;
    /* As many handles as there may be granules, so that nothing is allocated later. */
    size_t most = (size_t)(mapping->bytes / mapping->granule_bytes);
    for (enum mapping_end end = MAPPING_WORKSPACE; end < MAPPING_ENDS; end++) {
        mapping->sides[end].handles = mem_zeroed(most, sizeof *mapping->sides[end].handles);
    }
    return 0;
}

void mapping_close(struct mapping *mapping) {
    if (mapping->device == NULL) {
        return;
    }
    const struct device_table *table = mapping->device->table;
    struct device *device = mapping->device->device;
    for (enum mapping_end end = MAPPING_WORKSPACE; end < MAPPING_ENDS; end++) {
        for (uint32_t i = 0; i < mapping->sides[end].n; i++) {
            table->handle_close(device, mapping->sides[end].handles[i].handle);
        }
        free(mapping->sides[end].handles);
    }
    table->range_close(device, mapping->addresses);
    *mapping = (struct mapping){0};
}
