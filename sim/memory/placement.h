/* Where a step's tensors live: a planner's answer for a step graph, which can be checked.
 *
 * The workspace tensors of a graph that own their memory are the buffers of a packing problem, live
 * from their first operator to their last. The engine obeys the offsets and runs the chunks; the
 * simulator charges the peak. The lower bound is the largest sum of bytes live at one operator: no
 * plan can be smaller. */
#ifndef UNMASK_SIM_MEMORY_PLACEMENT_H
#define UNMASK_SIM_MEMORY_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/memory/planner/planner.h"
#include "sim/step/graph.h"

enum { PLACEMENT_ALIGN_BYTES = 512 }; /* vectorised kernels and cuBLAS need 16; sectors 32 */

struct placement {
    int64_t offset_bytes[GRAPH_MAX_TENSORS]; /* -1: lives in the KV pool or in another's memory */
    int64_t bytes[GRAPH_MAX_TENSORS];        /* rounded up to the alignment */
    int64_t peak_bytes, lower_bound_bytes;
    int64_t proven_bound_bytes;         /* no plan ends below this */
    uint64_t n_nodes;                   /* of a search */
    bool stopped;                       /* which ended at its budget */
    struct chunk_rows chunks;           /* as asked for */
    uint32_t n_chunks[GRAPH_MAX_LOOPS]; /* that each loop then comes in; 0 where it has no rows */
};

/* A step of the serving loop waits for no longer search than this. Of 5,000 random steps of all
 * models none needed any: the greedy plans of the portfolio reach the lower bound (2026-11-21). */
enum { PLACEMENT_MAX_NODES = 20000 };

/* Sizes, lower bound and offsets, where no more rows of a loop exist at once than `chunks` says.
 * Allocates nothing. */
void placement_make(const struct planner *planner, const struct graph *graph,
                    const struct step_shape *shape, struct chunk_rows chunks,
                    struct placement *out);

/* The same with a planner that may fail and allocate, without a bound of time, and with its
 * options: `request` names no problem. */
int placement_try(const struct planner *planner, const struct plan_request *request,
                  const struct graph *graph, const struct step_shape *shape,
                  struct chunk_rows chunks, struct placement *out, struct err *err);

/* The first half of both: sizes and numbers of chunks, and bytes that are live at each operator,
 * live[n_ops]. */
void placement_measure(const struct graph *graph, const struct step_shape *shape,
                       struct chunk_rows chunks, struct placement *out, int64_t *live);

/* The tensors whose memory others take over: the end of the alias chain. */
int placement_root(const struct graph *graph, int tensor);

/* First and last operator at which a root tensor, or anything in its memory, is live: a loop that
 * comes in chunks is lived through as struct chunk_loop says. */
void placement_lifetime(const struct graph *graph, const struct placement *placement, int root,
                        int *first_op, int *last_op);

/* True when no two live tensors overlap and the peak is correct; else `err` names the pair. */
int placement_verify(const struct graph *graph, const struct placement *placement, struct err *err);

#endif
