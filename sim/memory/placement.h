/* Where a step's tensors live: a planner's answer for a step graph, which can be checked.
 *
 * The workspace tensors of a graph that own their memory are the buffers of a packing problem, live
 * from their first operator to their last. The engine obeys the offsets; the simulator charges the
 * peak. The lower bound is the largest sum of bytes live at one operator: no plan can be smaller.
 */
#ifndef UNMASK_SIM_MEMORY_PLACEMENT_H
#define UNMASK_SIM_MEMORY_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/graph/graph.h"
#include "sim/memory/planner.h"

enum { PLACEMENT_ALIGN_BYTES = 512 }; /* vectorised kernels and cuBLAS need 16; sectors 32 */

struct placement {
    int64_t offset_bytes[GRAPH_MAX_TENSORS]; /* -1: lives in the KV pool or in another's memory */
    int64_t bytes[GRAPH_MAX_TENSORS];        /* rounded up to the alignment */
    int64_t peak_bytes, lower_bound_bytes;
    int64_t proven_bound_bytes; /* no plan ends below this */
    uint64_t n_nodes;           /* of a search */
    bool stopped;               /* which ended at its budget */
    int64_t logit_chunk_rows;   /* 0: logits exist at once */
};

/* A step of the serving loop waits for no longer search than this. Of 5,000 random steps of all
 * models none needed any: the greedy plans of the portfolio reach the lower bound (2026-11-21). */
enum { PLACEMENT_MAX_NODES = 20000 };

/* Sizes, lower bound and offsets. `logit_chunk_rows` bounds the logits held at once (0: all).
 * Allocates nothing. */
void placement_make(const struct planner *planner, const struct graph *graph,
                    const struct step_shape *shape, int64_t logit_chunk_rows,
                    struct placement *out);

/* The same with a planner that may fail and allocate, without a bound of time, and with its
 * options: `request` names no problem. */
int placement_try(const struct planner *planner, const struct plan_request *request,
                  const struct graph *graph, const struct step_shape *shape,
                  int64_t logit_chunk_rows, struct placement *out, struct err *err);

/* The tensors whose memory others take over: the end of the alias chain. */
int placement_root(const struct graph *graph, int tensor);

/* First and last operator at which a root tensor, or anything in its memory, is live. */
void placement_lifetime(const struct graph *graph, int root, int *first_op, int *last_op);

/* True when no two live tensors overlap and the peak is what it says; `err` names the pair else. */
int placement_verify(const struct graph *graph, const struct placement *placement, struct err *err);

#endif
