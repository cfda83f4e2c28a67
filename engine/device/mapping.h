/* One range of addresses with as much memory as is needed, mapped from both ends: a step's
 * workspace grows from the first byte up, cached rows from the last byte down, towards a gap.
 *
 * The addresses are reserved once; they are what a budget allows, so that neither end ever has to
 * be refused what the other does not use: where the gap is closed, memory that one end brought
 * serves the other where it is. Until then memory comes in few large handles, because every call of
 * the driver costs the same whatever its size, and more of them than just needed. A handle that has
 * not been used for a while goes to the other end as it is when that grows, and back to the device
 * after a longer while; a step that finds mapped what it needs makes no call at all. This is
 * Mosaic's allocator (section 4.5 of the paper), shared with the cached rows.
 *
 * What is in use keeps its place and its contents. Memory is taken away from addresses only when
 * the device's queue is empty, for which this waits; it may be called at any time. */
#ifndef UNMASK_ENGINE_DEVICE_MAPPING_H
#define UNMASK_ENGINE_DEVICE_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/device/device.h"
#include "sim/base/err.h"

enum {
    /* The least that is created at once, and the share of an end that is: an eighth. */
    MAPPING_HANDLE_BYTES = 64 << 20,
    MAPPING_HANDLE_SHARE = 8,
    /* Steps in a row that leave a handle unused, after which the other end may have it and after
     * which the device gets it back. A block of 32 positions takes at most 32 steps, of which the
     * first, over the whole canvas, uses the most. */
    MAPPING_LEND_STEPS = 64,
    MAPPING_RELEASE_STEPS = 512,
};

enum mapping_end { MAPPING_WORKSPACE, MAPPING_ROWS, MAPPING_ENDS };

/* What the device was asked for. */
enum mapping_call {
    MAPPING_RESERVE, /* and what the granule is */
    MAPPING_WAIT,    /* for the queue, before memory is taken away */
    MAPPING_CREATE,
    MAPPING_MAP,
    MAPPING_ALLOW,
    MAPPING_UNMAP,
    MAPPING_RELEASE,
    MAPPING_CALLS,
};

struct mapping_cost {
    int64_t n, ns, bytes;
};

struct mapping_handle {
    struct device_handle *handle;
    int64_t bytes;
    uint64_t last_used; /* the step */
};

/* From the end of the range inwards. */
struct mapping_side {
    struct mapping_handle *handles; /* owned */
    uint32_t n;
    int64_t bytes;
};

/* Everything is written by the functions below; costs and sizes are for reading. */
struct mapping {
    const struct engine_device *device;
    unsigned char *addresses;
    int64_t bytes, granule_bytes; /* of all addresses, in whole granules */
    struct mapping_side sides[MAPPING_ENDS];
    uint64_t n_steps;
    int64_t workspace_bytes, rows_from; /* needed: [0, workspace_bytes), [rows_from, bytes) */
    int64_t most_bytes;                 /* mapped at once so far */
    int64_t n_lent, lent_bytes;
    struct mapping_cost costs[MAPPING_CALLS];
};

/* Reserves addresses for `bytes`, rounded up to whole granules; no memory. ERR_WORLD when the
 * device has none or maps no memory. On error nothing needs closing. */
int mapping_open(struct mapping *mapping, const struct engine_device *device, int64_t bytes,
                 struct err *err);
void mapping_close(struct mapping *mapping); /* one that was not opened is fine */

/* Maps memory under [0, workspace_bytes) and [rows_from, bytes); what was mapped there keeps its
 * contents. ERR_WORLD when the device has too little; what was needed before then stays mapped.
 */
int mapping_cover(struct mapping *mapping, int64_t workspace_bytes, int64_t rows_from,
                  struct err *err);

/* What is covered now is what one more step needs: gives back what many in a row have not. */
int mapping_next_step(struct mapping *mapping, struct err *err);

int64_t mapping_mapped_bytes(const struct mapping *mapping);

/* All calls so far, and the time they took; no bytes. */
struct mapping_cost mapping_total(const struct mapping *mapping);

#endif
