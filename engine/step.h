/* One step as a back end is handed it: the batch's shape, where its tensors live, and what each
 * span reads and writes. The CPU and the CUDA back end take the same.
 *
 * All arrays are the caller's and stay put during the step. Arrays of a part are in host memory for
 * either back end; the pool is in the back end's own memory. */
#ifndef UNMASK_ENGINE_STEP_H
#define UNMASK_ENGINE_STEP_H

#include <stdint.h>

#include "sim/graph/shape.h"
#include "sim/memory/placement.h"

/* The cached rows of all requests: keys and values in two arrays of the weights' dtype, of which a
 * request's store takes the same elements. */
struct kv_pool {
    void *k, *v;
    int64_t n_elements; /* of each */
};

/* One request's cached rows: [layers, G, n_rows, D] from element `first` of either array, dense, so
 * that block attention reads a head's rows without a gather. A store that grows or shrinks is laid
 * out anew by the refresh that refills it. */
struct kv_store {
    int64_t first; /* a multiple of 8 */
    int32_t n_rows;
};

/* What the span of the same index in the shape brings. */
struct step_part {
    const int32_t *ids;        /* [queries] */
    const int32_t *positions;  /* [queries], the rotation's */
    const int32_t *kv_rows;    /* [queries], the store's row for the token's keys and values, -1:
                                  not kept; NULL: none is kept */
    const int32_t *logit_rows; /* [logit_rows], queries whose logits are wanted; NULL: the first */
    /* A span with context attends to all the rows of its store, which must be as many, and may not
     * write to it; a span without context may write to it. */
    struct kv_store kv;
};

struct step {
    const struct placement *placement; /* of the back end's graph at this shape */
    const struct step_shape *shape;    /* ragged, spans listed */
    const struct step_part *parts;     /* [shape->n_spans] */
    const struct kv_pool *pool;        /* NULL when no span keeps or reads rows */
};

/* Logit rows in batch order: those of the first span, then those of the second. */
struct step_result {
    int32_t *token;    /* [R], the highest logit, the lowest token on a tie */
    float *confidence; /* [R], its softmax probability */
    float *logits;     /* [R, V], or NULL */
};

/* How much a back end is opened for. */
struct step_limits {
    uint32_t max_requests, max_tokens, max_logit_rows;
    uint32_t max_positions;  /* positions are below it */
    int64_t workspace_bytes; /* the largest peak of a placement */
};

#endif
