/* What the parts of the builder share; no other file includes this. */
#ifndef UNMASK_SIM_STEP_BUILDER_PARTS_H
#define UNMASK_SIM_STEP_BUILDER_PARTS_H

#include "sim/model/ranks.h"
#include "sim/step/builder.h"
#include "sim/step/eager.h"
#include "sim/step/registrar.h"

#define LIST(...) ((const int[]){__VA_ARGS__, -1})

/* What a norm gives: in the wide type, and as the input of products in fp8; -1: not that. */
struct normed {
    int wide, codes;
};

struct builder {
    struct graph *g;
    const struct model *m;
    const struct graph_options *options;
    enum symbol tokens;        /* of the segment being built */
    enum symbol sampled;       /* rows of logits that are looked at */
    int64_t hidden_bytes;      /* one token's hidden state */
    struct model_heads heads;  /* of the segment's layers, as what follows: */
    int64_t q_dim, kv_dim;     /* channels of queries, and of keys */
    int64_t q_bytes, kv_bytes; /* one token's queries, its keys and values, one layer */
    int64_t cached_bytes;      /* the latter as they are cached */
    int64_t kv_numbers;        /* and how many numbers they are */
    int residual;
    int importance; /* of the layer before the one that evicts; else -1 */
};

/* The operator is a product of [rows, k] and a weight [k, n]. */
static inline void set_product(struct op *op, enum weight_slot weight, int64_t n, int64_t k) {
    op->weight = weight;
    op->n = n;
    op->k = k;
}

static inline struct op *add_linear(struct graph *g, const char *name, enum weight_slot weight,
                                    enum symbol rows, int64_t n, int64_t k, int in, int out) {
    struct op *op = graph_add_op(g, name, OP_LINEAR, rows, LIST(in), LIST(out));
    set_product(op, weight, n, k);
    return op;
}

/* Passes over `elements` of a row; none where the runtime has a kernel of its own for the operator.
 */
static inline void add_pass(struct op *op, const struct graph_options *options,
                            const struct eager_pass *pass, int64_t elements) {
    if (!options->fused) {
        op->eager_bytes = pass->bytes * elements;
        op->temporary_bytes = pass->temporary_bytes * elements;
        op->eager_sm_rate = pass->sm_rate;
    }
}

/* The operator's own, and one of the copies. */
static inline void add_eager(struct op *op, const struct graph_options *options, int64_t elements) {
    add_pass(op, options, &op_type_of(op)->eager, elements);
}

static inline void add_copy(struct op *op, const struct graph_options *options,
                            enum eager_kind kind, int64_t elements) {
    add_pass(op, options, &eager_passes[kind], elements);
}

/* What a rank has of a sum over all of them becomes the sum. */
static inline void add_all_reduce(struct builder *b, const char *name, int tensor) {
    if (model_ranks(b->m) > 1) {
        graph_add_op(b->g, name, OP_ALL_REDUCE, b->g->tensors[tensor].bytes.symbol, LIST(tensor),
                     LIST(tensor));
    }
}

/* The input of a product with that weight, rows of `numbers`, `n_rows` of them for each of the
 * tensor's: a copy of `input` in fp8 where the product reads that, else `input` itself. */
int builder_quantised(struct builder *b, const char *name, enum weight_slot weight, int input,
                      int64_t n_rows, int64_t numbers);

/* The last segment of the graph. */
void builder_add_head(struct builder *b);

#endif
