/* The step graph: one forward pass as operators over tensors with symbolic sizes.
 *
 * A model, a cache policy and a runtime register it once; the cost model prices its operators, the
 * memory planner places its tensors, the engine executes it. A graph is a list of segments; an
 * operator belongs to a segment, and a segment repeats (the same layer 31 times). Tensors are
 * written once or updated in place by an alias; those carried from one repetition to the next
 * (the residual stream) are live throughout. */
#ifndef UNMASK_SIM_GRAPH_GRAPH_H
#define UNMASK_SIM_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/graph/shape.h"
#include "sim/model/model.h"

enum op_kind {
    OP_EMBED,
    OP_RMSNORM,
    OP_LINEAR,
    OP_ROPE,
    OP_ATTENTION_FULL,  /* spans that attend to themselves */
    OP_ATTENTION_BLOCK, /* spans that attend to cached and own keys */
    OP_GATHER,          /* copy cached rows together before attention */
    OP_SELECT,          /* score, pool and pick the KV rows to keep */
    OP_PACK,            /* write the picked rows as one dense buffer */
    OP_SIMILARITY,      /* compare fresh values with cached ones (dLLM-Cache) */
    OP_GATE_UP,         /* the gate and up products with the activation between them */
    OP_SWIGLU,
    OP_ADD,
    OP_MOE_ROUTE,
    OP_MOE_LINEAR,
    OP_CAST,
    OP_SOFTMAX,
    OP_HEAD,   /* logits, argmax and confidence of each row in one, the logits never stored */
    OP_SAMPLE, /* argmax and confidence of each logit row */
    OP_COMMIT,
};
enum { OP_KIND_COUNT = OP_COMMIT + 1 };
extern const char *const op_kind_names[OP_KIND_COUNT];

enum { GRAPH_MAX_OPS = 96, GRAPH_MAX_TENSORS = 96, GRAPH_MAX_SEGMENTS = 4, OP_MAX_TENSORS = 6 };

/* `per` bytes (or elements) for each unit of `symbol`. */
struct size {
    enum symbol symbol;
    int64_t per;
};

enum tensor_home {
    HOME_WORKSPACE, /* placed by the memory planner */
    HOME_CACHE,     /* in the KV pool: read and written, never placed */
};

struct tensor {
    const char *name;
    struct size bytes;
    enum tensor_home home;
    bool logits;           /* sized by the logits policy's chunk, not by all rows */
    bool carried;          /* lives across the repetitions of segments */
    int alias;             /* index of the tensor whose memory it takes over, or -1 */
    int first_op, last_op; /* liveness over the list of operators, inclusive */
};

struct op {
    const char *name;
    enum op_kind kind;
    uint32_t segment;
    enum symbol rows;                            /* linear: m; others: rows processed */
    enum symbol span_n, span_q, span_k, span_qk; /* attention: sequences and the sums over them */
    int64_t n, k;                                /* linear: output and input channels */
    uint32_t experts, experts_active;            /* MoE linear */
    int in[OP_MAX_TENSORS], out[OP_MAX_TENSORS]; /* -1 ends the list */
    int64_t weight_bytes;                        /* read once per execution */
    /* Eager passes through float32 temporaries, per row: all the bytes they move, and the
     * temporaries' own size. While these fit into the L2 cache they cost its bandwidth. */
    int64_t eager_bytes, temporary_bytes;
};

struct segment {
    const char *name;
    uint32_t repeat;
};

struct graph {
    const struct model *model;
    int64_t element_bytes; /* of an activation, a weight, a cached value */
    struct segment segments[GRAPH_MAX_SEGMENTS];
    uint32_t n_segments;
    struct op ops[GRAPH_MAX_OPS];
    uint32_t n_ops;
    struct tensor tensors[GRAPH_MAX_TENSORS];
    uint32_t n_tensors;
};

/* How a runtime executes the model: what the builder has to know of it. */
struct graph_options {
    bool fused;         /* one kernel per norm, rotation and activation; off: eager, in float32 */
    bool gathers_cache; /* reuse copies cached rows together per layer before attention */
    bool splits_first_layer; /* layer 0 runs over first_queries (dLLM-Cache) */
    bool selects;            /* refresh steps score and pack KV rows */
    bool compares_values;    /* dLLM-Cache's V projection and similarity */
    int64_t logits_bytes;    /* bytes of one logit as the head writes it */
    int64_t copy_bytes;      /* bytes of the copy cast before the softmax; 0: none */
    int64_t softmax_bytes;   /* bytes of the softmax result; 0: none is stored */
    int64_t element_bytes;   /* of activations, weights and cached values; 0: bf16's 2. Logits as
                                the head writes them are wider by as much. */
    bool fused_head;         /* the head's logits are reduced as they are made: one operator; the
                                three sizes of logits are not read */
    bool fused_gate_up;      /* gates and ups never leave their product: one operator */
    bool engine;             /* what our engine's kernels hold besides: a selection's indices, and
                                the layer's queries, keys and values until it is done */
};

/* What the fused head works in, whatever the rows (HEAD_SCRATCH_BYTES of the kernels). */
enum { GRAPH_HEAD_SCRATCH_BYTES = 60 << 20 };

/* Build the graph of one step. Never fails for models of the table. */
void graph_build(struct graph *graph, const struct model *model,
                 const struct graph_options *options);

static inline int64_t size_value(const struct size *size, const struct step_shape *shape) {
    return size->per * shape->sym[size->symbol];
}

/* Bytes of a tensor at this shape, when at most `logit_chunk_rows` rows of logits exist at once
 * (0: all). */
int64_t tensor_bytes(const struct tensor *tensor, const struct step_shape *shape,
                     int64_t logit_chunk_rows);

#endif
