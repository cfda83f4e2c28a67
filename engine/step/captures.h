/* CUDA graphs of steps, by everything that goes into a step's launches except what the arrays hold.
 * Which steps are captured, and which are forgotten, sim/price/captured.h says, by which the
 * simulator foresees it. Nothing is allocated here after opening. */
#ifndef UNMASK_ENGINE_STEP_CAPTURES_H
#define UNMASK_ENGINE_STEP_CAPTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/op/packed.h"
#include "kernels/device.h"
#include "sim/price/captured.h"
#include "sim/step/graph.h"

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
    struct device_graph *graph; /* NULL: it was issued, but not captured */
};

struct captures {
    const struct device_table *table;
    struct device *device;
    struct captured which;
    struct known_step *steps; /* [MAX_KNOWN_STEPS], owned; NULL: the device captures nothing */
    bool is_off;              /* for now all steps are issued */
};

void captures_open(struct captures *captures, const struct device_table *table,
                   struct device *device);
void captures_close(struct captures *captures);

/* Makes and closes as many graphs as are ever kept, each of the given number of launches: now and
 * then a driver takes 4 to 29 milliseconds to get memory for them, which it keeps. Launches write
 * to `scratch`, of an element. enum device_status. */
int captures_warm(struct captures *captures, void *scratch, enum kernel_dtype dtype,
                  uint32_t n_launches);

/* The entry of a key, used now; `is_new` says that it was not there. NULL: nothing is captured. */
struct known_step *captures_find(struct captures *captures, const struct step_key *key,
                                 bool *is_new);

/* Gives the entry, found last, a graph, for which the one used longest ago makes room. */
void captures_keep(struct captures *captures, struct known_step *step, struct device_graph *graph);

#endif
