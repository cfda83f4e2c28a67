/* Where a step's tensors live: planners and their checkable answer.
 *
 * A planner gives every workspace tensor of a graph an offset in one workspace, so that no two
 * tensors live at the same time overlap. The engine obeys these offsets; the simulator charges the
 * peak. The lower bound is the largest sum of bytes live at one operator: no plan can be smaller.
 */
#ifndef UNMASK_SIM_MEMORY_PLACEMENT_H
#define UNMASK_SIM_MEMORY_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/graph/graph.h"

enum { PLACEMENT_ALIGN_BYTES = 512 }; /* vectorised kernels and cuBLAS need 16; sectors 32 */

struct placement {
    int64_t offset_bytes[GRAPH_MAX_TENSORS]; /* -1: lives in the KV pool or in another's memory */
    int64_t bytes[GRAPH_MAX_TENSORS];        /* rounded up to the alignment */
    int64_t peak_bytes, lower_bound_bytes;
    int64_t logit_chunk_rows; /* 0: logits exist at once */
};

struct planner {
    const char *name, *doc;
    void (*place)(const struct graph *graph, const struct step_shape *shape,
                  struct placement *placement);
};

extern const struct planner planner_table[];
extern const size_t planner_table_size;
const struct planner *planner_find(const char *name, struct err *err);

/* Sizes, lower bound and offsets. `logit_chunk_rows` bounds the logits held at once (0: all). */
void placement_make(const struct planner *planner, const struct graph *graph,
                    const struct step_shape *shape, int64_t logit_chunk_rows,
                    struct placement *out);

/* The tensors whose memory others take over: the end of the alias chain. */
int placement_root(const struct graph *graph, int tensor);

/* First and last operator at which a root tensor, or anything in its memory, is live. */
void placement_lifetime(const struct graph *graph, int root, int *first_op, int *last_op);

/* True when no two live tensors overlap and the peak is what it says; `err` names the pair else. */
int placement_verify(const struct graph *graph, const struct placement *placement, struct err *err);

#endif
