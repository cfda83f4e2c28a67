/* Recorded steps of a device, by everything that goes into a step's launches except what the arrays
 * hold: a step that comes a second time is recorded, and from then on played.
 *
 * The steps used longest ago are forgotten first. Nothing is allocated here after opening. */
#ifndef UNMASK_ENGINE_DEVICE_RECORDINGS_H
#define UNMASK_ENGINE_DEVICE_RECORDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/step/packed.h"
#include "kernels/device.h"
#include "sim/graph/graph.h"

enum { MAX_RECORDINGS = 64, MAX_KNOWN_STEPS = 2 * MAX_RECORDINGS };

/* Without gaps, so that equal keys are equal bytes. */
struct step_key {
    int64_t offset_bytes[GRAPH_MAX_TENSORS];
    struct chunk_rows chunks;
    struct packed_counts counts;
};
_Static_assert(sizeof(struct step_key) == (GRAPH_MAX_TENSORS + CHUNK_KINDS) * sizeof(int64_t) +
                                              sizeof(struct packed_counts),
               "a key has no gaps");

struct known_step {
    struct step_key key;
    uint64_t last_used;             /* 0: free */
    struct device_graph *recording; /* NULL: it was issued, but not recorded */
};

struct recordings {
    const struct device_table *table;
    struct device *device;
    struct known_step *steps; /* [MAX_KNOWN_STEPS], owned; NULL: the device records nothing */
    uint64_t n_uses;
    uint32_t n_recorded;
};

/* false when memory ran out. */
void recordings_open(struct recordings *recordings, const struct device_table *table,
                     struct device *device);
void recordings_close(struct recordings *recordings);

/* The entry of a key, used now; a new one forgets the step without a recording that was used
 * longest ago. `is_new` says which. */
struct known_step *recordings_find(struct recordings *recordings, const struct step_key *key,
                                   bool *is_new);

/* Gives the entry a recording, for which the one used longest ago makes room. */
void recordings_keep(struct recordings *recordings, struct known_step *step,
                     struct device_graph *recording);

#endif
