/* CUDA graphs of steps, by everything that goes into a step's launches except what the arrays hold:
 * a step that comes a second time is captured, and from then on its graph is launched.
 *
 * The steps used longest ago are forgotten first. Nothing is allocated here after opening. */
#ifndef UNMASK_ENGINE_STEP_CAPTURES_H
#define UNMASK_ENGINE_STEP_CAPTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/step/packed.h"
#include "kernels/device.h"
#include "sim/graph/graph.h"

enum { MAX_CAPTURES = 64, MAX_KNOWN_STEPS = 2 * MAX_CAPTURES };

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
    uint64_t last_used;         /* 0: free */
    struct device_graph *graph; /* NULL: it was issued, but not captured */
};

struct captures {
    const struct device_table *table;
    struct device *device;
    struct known_step *steps; /* [MAX_KNOWN_STEPS], owned; NULL: the device captures nothing */
    uint64_t n_uses;
    uint32_t n_captured;
};

void captures_open(struct captures *captures, const struct device_table *table,
                   struct device *device);
void captures_close(struct captures *captures);

/* The entry of a key, used now; a new one forgets the step without a graph that was used
 * longest ago. `is_new` says which. */
struct known_step *captures_find(struct captures *captures, const struct step_key *key,
                                 bool *is_new);

/* Gives the entry a graph, for which the one used longest ago makes room. */
void captures_keep(struct captures *captures, struct known_step *step, struct device_graph *graph);

#endif
