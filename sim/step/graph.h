/* The step graph: one forward pass as operators over tensors with symbolic sizes.
 *
 * A model, a cache policy and a runtime register it once; the cost model prices its operators, the
 * memory planner places its tensors, the engine executes it. A graph is a list of segments; an
 * operator belongs to a segment, and a segment repeats (the same layer 31 times). Tensors are
 * written once or updated in place by an alias; those carried from one repetition to the next
 * (the residual stream) are live throughout. */
#ifndef UNMASK_SIM_STEP_GRAPH_H
#define UNMASK_SIM_STEP_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/base/provenance.h"
#include "sim/model/model.h"
#include "sim/model/storage.h"
#include "sim/model/weight_slot.h"
#include "sim/step/op.h"
#include "sim/step/shape.h"

enum {
    GRAPH_MAX_OPS = 96,
    GRAPH_MAX_TENSORS = 96,
    GRAPH_MAX_SEGMENTS = 8,
    GRAPH_MAX_LOOPS = 12,
    OP_MAX_TENSORS = 6
};

/* What a chunk loop works out: the kinds that are given their own numbers of rows. */
enum chunk_kind { CHUNK_ATTENTION, CHUNK_FFN, CHUNK_LOGITS };
enum { CHUNK_KINDS = CHUNK_LOGITS + 1 };
extern const char *const chunk_kind_names[CHUNK_KINDS];

/* The most rows of a loop of each kind that exist at once; 0: all. */
struct chunk_rows {
    int64_t of[CHUNK_KINDS];
};

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
    bool carried; /* lives across the repetitions of segments */
    bool single;  /* a number or a few of a token, in single precision: what ranks sum is that or
                     channels */
    enum number_type type; /* of its numbers, where it has such: ids, scores and lists have widths
                              of their own */
    bool is_logits;        /* logits, or as many numbers made of them */
    int loop;              /* whose chunk it holds, instead of all rows; or -1 */
    int alias;             /* index of the tensor whose memory it takes over, or -1 */
    int first_op, last_op; /* liveness over the list of operators, inclusive */
};

struct op {
    const char *name;
    enum op_kind kind;
    uint32_t segment;
    int loop;                                    /* that it belongs to, or -1 */
    enum symbol rows;                            /* linear: m; others: rows processed */
    enum symbol span_n, span_q, span_k, span_qk; /* attention: sequences and the sums over them */
    /* linear: output and input channels; rope: query and key channels; cast to fp8: rows in each of
     * the tensors', and numbers of each */
    int64_t n, k;
    uint32_t experts, experts_active;            /* of a mixture's operators */
    int in[OP_MAX_TENSORS], out[OP_MAX_TENSORS]; /* -1 ends the list */
    int picks; /* the tensor that lists the rows it runs over, where the step picks them; or -1 */
    uint32_t feature; /* of a layer's, which one it keeps or adds: attention's, the FFN's */
    uint32_t part;    /* of what ranks do in several parts with exchanges in between, which one */
    bool cuts;        /* of a draw by ranks: there are parts that search for what is kept */
    double wait_ns;   /* that an execution waits for the host, at the reference host's speed */
    enum provenance_kind wait_kind; /* what that number is */
    int weight; /* enum weight_slot: the matrix or norm that it reads; or WEIGHT_NONE */
    /* Rows of that weight which are not the operator's. */
    int64_t weight_rows_before, weight_rows_after;
    /* Eager passes (sim/step/eager.h), per row: all the bytes they move, and the temporaries' own
     * size. While these fit into the L2 cache they cost its bandwidth, and never less than the rate
     * of their kernels, bytes a nanosecond of a multiprocessor; 0: memory's alone. */
    int64_t eager_bytes, temporary_bytes;
    double eager_sm_rate;
};

static inline const struct op_type *op_type_of(const struct op *op) {
    return op_types[op->kind];
}

/* Whether it multiplies rows with a weight, or with its experts'. */
static inline bool op_is_product(const struct op *op) {
    enum op_family family = op_type_of(op)->family;
    return family == FAMILY_PRODUCT || family == FAMILY_ROUTER || family == FAMILY_EXPERTS;
}

static inline bool op_is_attention(const struct op *op) {
    return op_type_of(op)->family == FAMILY_ATTENTION;
}

struct segment {
    const char *name;
    uint32_t repeat;
    bool global; /* layers that see everything, of a model whose others have a window */
};

/* A run of operators of one segment that may repeat chunk by chunk over the rows of one symbol.
 * Between chunks its inputs are still needed and its outputs are partly written: where there is
 * more than one, a tensor that is not the loop's own and that the loop reads last lives to the
 * loop's end, and one that it fills lives from the loop's beginning. */
struct chunk_loop {
    enum chunk_kind kind;
    enum symbol rows;
    int first_op, last_op;
};

struct graph {
    const struct model *model;
    struct storage storage; /* of weights, activations and cached rows */
    struct segment segments[GRAPH_MAX_SEGMENTS];
    uint32_t n_segments;
    struct chunk_loop loops[GRAPH_MAX_LOOPS];
    uint32_t n_loops;
    struct op ops[GRAPH_MAX_OPS];
    uint32_t n_ops;
    struct tensor tensors[GRAPH_MAX_TENSORS];
    uint32_t n_tensors;
};

/* The type of what no fp8 product reads, and the bytes of one of their numbers. */
static inline enum number_type graph_wide(const struct graph *graph) {
    return (enum number_type)graph->storage.wide;
}

static inline int64_t graph_element_bytes(const struct graph *graph) {
    return number_bytes(graph_wide(graph));
}

/* Bytes of what cached rows are counted in: of one of their numbers, in fp8 a byte of these or of
 * their scales. */
static inline int64_t graph_cache_element_bytes(const struct graph *graph) {
    return graph->storage.cache == NUMBER_FP8 ? FP8_BYTES : graph_element_bytes(graph);
}

/* Of `rows` rows of a loop, or of operators in none (-1), those of a chunk. */
static inline int64_t chunk_of(const struct graph *graph, int loop, int64_t rows,
                               struct chunk_rows chunks) {
    int64_t most = loop >= 0 ? chunks.of[graph->loops[loop].kind] : 0;
    return most > 0 && most < rows ? most : rows;
}

/* Rows of a loop's chunk at this shape (the last may have fewer), and how many chunks there are.
 */
static inline int64_t loop_chunk_rows(const struct graph *graph, int loop,
                                      const struct step_shape *shape, struct chunk_rows chunks) {
    return chunk_of(graph, loop, shape->sym[graph->loops[loop].rows], chunks);
}

int64_t loop_n_chunks(const struct graph *graph, int loop, const struct step_shape *shape,
                      struct chunk_rows chunks);

/* Bytes of a tensor at this shape, of one chunk of it where it is a loop's own. */
int64_t tensor_bytes(const struct graph *graph, int tensor, const struct step_shape *shape,
                     struct chunk_rows chunks);

/* The heads of the layers that an operator is of. */
static inline struct model_heads graph_heads(const struct graph *graph, const struct op *op) {
    return model_heads_of(graph->model, graph->segments[op->segment].global);
}

static inline bool tensor_holds_logits(const struct graph *graph, int tensor) {
    return graph->tensors[tensor].is_logits;
}

#endif
