/* What launchers share: where an operator's tensors, weights, arrays and cached rows lie. */
#ifndef UNMASK_ENGINE_OP_LAUNCH_H
#define UNMASK_ENGINE_OP_LAUNCH_H

#include "engine/op/issue.h"
#include "engine/op/points.h"
#include "engine/op/trial.h"

static inline unsigned char *input(const struct launch *l, int i) {
    return tensor_at(l->issue, l->op->in[i]);
}

static inline unsigned char *output(const struct launch *l, int i) {
    return tensor_at(l->issue, l->op->out[i]);
}

static inline int64_t row_elements(const struct launch *l, int tensor) {
    return tensor_row_elements(l->graph, tensor);
}

/* The instance's first row of a tensor; where it holds a chunk, the chunk's first. */
static inline unsigned char *rows_at(const struct launch *l, int tensor) {
    int64_t first = l->graph->tensors[tensor].loop >= 0 ? 0 : l->instance->first_row;
    return tensor_at(l->issue, tensor) +
           first * row_elements(l, tensor) * tensor_element_bytes(l->graph, tensor);
}

static inline const void *weight(const struct launch *l, enum weight_slot slot) {
    return weights_at(l->issue->weights, slot, l->instance->layer);
}

static inline const void *op_weight(const struct launch *l) {
    const enum weight_slot slot = (enum weight_slot)l->op->weight;
    const unsigned char *whole = weight(l, slot);
    return whole + l->op->weight_rows_before * l->op->k *
                       number_bytes(storage_weight(&l->graph->storage, slot));
}

/* What of a product is in fp8. */
static inline struct call_fp8 op_fp8(const struct launch *l) {
    const enum weight_slot slot = (enum weight_slot)l->op->weight;
    const enum number_type type = storage_weight(&l->graph->storage, slot);
    const float *scales = weights_scales_at(l->issue->weights, slot, l->instance->layer);
    struct call_fp8 fp8 = {.w_scale = scales};
    if (scales != NULL) {
        fp8.w_rows = (int32_t)number_scale_rows(type);
        fp8.w_columns = (int32_t)number_scale_columns(type, l->op->k);
        fp8.x_too = number_is_fp8(l->graph->tensors[l->op->in[0]].type);
    }
    return fp8;
}

static inline int32_t *narrow(const struct launch *l, enum packed_array array) {
    return (int32_t *)(void *)(l->arrays + l->packed->offset_bytes[array]);
}

static inline int64_t *wide(const struct launch *l, enum packed_array array) {
    return (int64_t *)(void *)(l->arrays + l->packed->offset_bytes[array]);
}

/* By which an instance's logit rows are drawn from. */
static inline const struct draw_rule *draw_rules(const struct launch *l) {
    return (const struct draw_rule *)(const void *)wide(l, PACKED_DRAW_RULES) +
           l->instance->first_row;
}

/* The first of a rank's tokens among all of them: of its rows of the output head. */
static inline int32_t first_token(const struct launch *l) {
    return l->model->whole_head ? 0 : (int32_t)(l->issue->weights->layout.rank * l->model->vocab);
}

static inline const struct packed_counts *counts(const struct launch *l) {
    return &l->packed->n;
}

/* The stores of this layer, of the packed spans from the first on. */
static inline const int64_t *cache_start(const struct launch *l) {
    const struct packed_counts *n = counts(l);
    int64_t n_spans = n->n_plain + n->n_select + n->n_block + n->n_silent;
    return wide(l, PACKED_CACHE_START) + l->cache_layer * n_spans;
}

/* What the step picked for an operator instance that runs over such rows: for each the position,
 * its row of the values, its row of the stream (call_pick). */
struct picks {
    int32_t *positions, *value_rows, *stream_rows;
};

static inline struct picks picks_in(const struct launch *l, int tensor) {
    int32_t *first = (int32_t *)(void *)tensor_at(l->issue, tensor);
    const int64_t n = counts(l)->n_tokens;
    return (struct picks){first, first + n, first + 2 * n};
}

/* Where queries, keys and values lie in a row of the rotated product, or of that part of it which
 * was projected apart. */
struct qkv {
    unsigned char *q, *k, *v;
    int64_t stride;
};

/* From the row at `first` on, with query_channels channels of queries before its keys. */
static inline struct qkv split_at(const struct launch *l, int tensor, unsigned char *first,
                                  int64_t query_channels) {
    int64_t key_bytes =
        (int64_t)l->model->kv_heads * l->model->head_dim * graph_element_bytes(l->graph);
    unsigned char *k = first + query_channels * graph_element_bytes(l->graph);
    return (struct qkv){first, k, k + key_bytes, row_elements(l, tensor)};
}

static inline struct qkv split(const struct launch *l, int tensor) {
    return split_at(l, tensor, rows_at(l, tensor), (int64_t)l->model->heads * l->model->head_dim);
}

/* This layer's rows of a pool of pages: keys, then values. */
static inline struct qkv pool_rows(const struct launch *l) {
    const struct packed *packed = l->packed;
    const bool global = l->graph->segments[l->op->segment].global;
    const int64_t row =
        global ? packed->global_row_elements : (int64_t)l->model->kv_heads * packed->head_elements;
    int64_t plane_bytes =
        packed->pool_pages * packed->limits.page_rows * row * packed->element_bytes;
    unsigned char *k =
        l->issue->room->pool + packed_layer_start(packed, l->cache_layer) * packed->element_bytes;
    return (struct qkv){NULL, k, k + plane_bytes, row};
}

static inline bool caches_fp8(const struct launch *l) {
    return l->graph->storage.cache == NUMBER_FP8;
}

#endif
