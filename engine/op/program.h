/* The step graph as a program: the order in which the engine executes its operators.
 *
 * Operators run in the order of the graph, a segment as often as it repeats; of layers with a
 * window and those between them that see everything, which are two segments, in the order of
 * layers. Those of a loop run once for every chunk of rows that the placement allows to exist at
 * once. */
#ifndef UNMASK_ENGINE_OP_PROGRAM_H
#define UNMASK_ENGINE_OP_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/memory/placement.h"
#include "sim/step/graph.h"

struct program {
    const struct graph *graph;
    struct model global_kind;         /* the model as its layers that see everything have it */
    uint32_t op_layer[GRAPH_MAX_OPS]; /* the layer of its segment's first repetition */
    uint32_t first_op[GRAPH_MAX_SEGMENTS + 1]; /* of each segment */
    /* Of a product whose outputs the operator after it adds to the residual stream, and nothing
     * else reads: that stream. A device that adds within products does so there; else -1. */
    int added_to[GRAPH_MAX_OPS];
    uint32_t evict_op; /* from here on operators run over what is left, or what joins; n_ops: all
                          run the same */
};

/* ERR_USAGE naming the first operator that the engine does not run. */
int program_make(struct program *program, const struct graph *graph, struct err *err);

/* One execution of one operator, over rows [first_row, first_row + n_rows). */
struct op_instance {
    uint32_t op, layer;
    uint32_t repetition; /* of its segment */
    int64_t first_row, n_rows;
};

/* The first instance of a step, and the one after `instance`; false when that was the last. */
void program_start(const struct program *program, const struct placement *placement,
                   const struct step_shape *shape, struct op_instance *instance);
/* The rows of a instance anew, after the shape has changed. */
void program_settle(const struct program *program, const struct placement *placement,
                    const struct step_shape *shape, struct op_instance *instance);
bool program_next(const struct program *program, const struct placement *placement,
                  const struct step_shape *shape, struct op_instance *instance);

/* Of a tensor that kernels count in elements: those of fp8 are bytes, its scales' among them. */
static inline int64_t tensor_element_bytes(const struct graph *graph, int tensor) {
    return number_is_fp8(graph->tensors[tensor].type) ? FP8_BYTES : graph_element_bytes(graph);
}

/* Elements from one row of a tensor to the next. */
static inline int64_t tensor_row_elements(const struct graph *graph, int tensor) {
    return tensor_holds_logits(graph, tensor)
               ? graph->model->vocab
               : graph->tensors[tensor].bytes.per / tensor_element_bytes(graph, tensor);
}

#endif
