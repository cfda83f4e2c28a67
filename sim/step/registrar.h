/* The registrar: how a step graph is written down, operator by operator, and checked.
 *
 * Tensors are added before the operators that use them; operators run in the order in which they
 * are added. Their uses make the tensors' lives. What does not fit into the graph's tables, or is
 * added to nothing, is the caller's own mistake; what a graph must be besides, graph_check says. */
#ifndef UNMASK_SIM_STEP_REGISTRAR_H
#define UNMASK_SIM_STEP_REGISTRAR_H

#include "sim/base/err.h"
#include "sim/step/graph.h"

void graph_add_segment(struct graph *graph, const char *name, uint32_t repeat);

/* A tensor of the workspace, or of the pool; while a loop is open, one of the loop's own. */
int graph_add_tensor(struct graph *graph, const char *name, enum symbol symbol, int64_t per);
int graph_add_cache(struct graph *graph, const char *name, enum symbol symbol, int64_t per);

/* A new value in the memory of `of`, which is not read any more once this one is written. */
int graph_add_alias(struct graph *graph, const char *name, int of);

/* Append an operator to the segment added last; `in` and `out` are -1-ended lists. */
struct op *graph_add_op(struct graph *graph, const char *name, enum op_kind kind, enum symbol rows,
                        const int *in, const int *out);

/* The tensor's memory is needed until the operator added last. */
void graph_add_barrier(struct graph *graph, int tensor);

/* The operators and tensors added between the two are a loop's own, but for `output`, which it
 * fills chunk by chunk. */
void graph_begin_loop(struct graph *graph, enum chunk_kind kind, enum symbol rows);
void graph_end_loop(struct graph *graph, int output);

/* No step has more rows, and no graph of so large a step more bytes. */
#define GRAPH_MAX_ROWS  (INT64_C(1) << 31)
#define GRAPH_MAX_BYTES (INT64_C(1) << 61)

/* ERR_USAGE naming the first thing that is wrong: an operator that reads what none before it has
 * made (as in a circle), or what an alias has taken over, or that writes a tensor over other rows
 * than its own; a size that is zero or beyond GRAPH_MAX_BYTES; a product wider than its input; a
 * loop whose operators are not one run over its rows, or whose own tensors others use. */
int graph_check(const struct graph *graph, struct err *err);

#endif
