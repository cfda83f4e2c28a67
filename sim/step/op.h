/* Operator types: what is true of an operator whatever graph it stands in.
 *
 * One const descriptor an operator, `op_type_FILE` in sim/step, and the list of all in ops.def. The
 * cost model, the memory models, the registrar and the figures read descriptors; none of them asks
 * which operator it has. An operator without a descriptor does not link. How the engine launches an
 * operator and what calibration measures of it is in engine/op. */
#ifndef UNMASK_SIM_STEP_OP_H
#define UNMASK_SIM_STEP_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/step/profile_rows.h"

struct graph;
struct op;

enum op_kind {
#define OP(id, file, name) OP_##id,
#include "sim/step/ops.def"
    OP_KIND_COUNT
};
extern const char *const op_kind_names[OP_KIND_COUNT];

/* What kind of work an operator is, and so how a profile is asked for its time. */
enum op_family {
    FAMILY_PASS,    /* rows read and written: a named pass, or bytes */
    FAMILY_PRODUCT, /* [rows, k] times a weight [k, n] */
    FAMILY_ROUTER,  /* the same for a mixture's router; in the rows of its experts where measured */
    FAMILY_EXPERTS, /* a weight for each expert; the rows hold both products of a layer */
    FAMILY_ATTENTION, /* spans of queries and keys */
    FAMILY_EXCHANGE,  /* between ranks */
};
enum { FAMILY_COUNT = FAMILY_EXCHANGE + 1 };

/* What eager PyTorch code asks its allocator for when it runs an operator (sim/memory/eager.h). */
enum op_memory {
    MEMORY_OUTPUTS, /* what the operator writes */
    MEMORY_NONE,
    MEMORY_EMBEDDING,
    MEMORY_NORM,
    MEMORY_ROTATION,
    MEMORY_ATTENTION,
    MEMORY_PRODUCT,
    MEMORY_EXPERTS,
    MEMORY_ACTIVATION,
    MEMORY_SUM,
    MEMORY_CAST,
    MEMORY_SOFTMAX,
    MEMORY_SAMPLE,
};
enum { MEMORY_COUNT = MEMORY_SAMPLE + 1 };

/* How much of an operator runs: rows in n_steps steps, each of which reads the weights; `hits`
 * experts of a mixture are hit in a step. Attention runs over sums over sequences instead of rows:
 * queries, keys, those of the keys that were cached, and pairs of query and key. */
struct op_amount {
    double rows, n_steps, hits;
    double sum_q, sum_kv, sum_cached, sum_q_kv;
};

/* What that takes: operations, and bytes by where they come from and go to. */
struct op_work {
    double flops;        /* a multiply and an add are two; those in double precision are apart */
    double fp8_flops;    /* of them, between numbers that are both in fp8 */
    double fp64_flops;   /* in double precision */
    double row_bytes;    /* activations, read and written; may stay in the L2 cache */
    double weight_bytes; /* from memory, as */
    double cached_bytes; /* cached keys and values are */
};

static inline double op_work_bytes(const struct op_work *work) {
    return work->row_bytes + work->weight_bytes + work->cached_bytes;
}

/* How many channels wide a named pass of a profile is. */
enum op_wide {
    WIDE_NONE, /* profiles have no such pass: PROFILE_ELEMENTWISE answers */
    WIDE_ONE,
    WIDE_HIDDEN,
    WIDE_KV, /* keys of all heads, or values */
    WIDE_VOCAB,
    WIDE_EXPERTS, /* those that are routed to */
    WIDE_ROTATED, /* queries, keys and values */
    WIDE_GATED,   /* what a gate and an up come to */
};

/* The named pass of a profile that an operator is, and how many channels wide. */
struct op_pass {
    enum profile_pass pass;
    int64_t channels;
};

/* What an operator becomes in eager PyTorch, where no kernel of its own exists (sim/step/eager.h).
 */
struct eager_pass {
    int64_t bytes;           /* of an element, read and written */
    int64_t temporary_bytes; /* of an element, alive at once */
    double sm_rate;
};

struct op_type {
    enum op_family family;
    enum op_memory memory;
    /* Products, experts, attention, exchange: the table of a profile that was measured for the
     * operator itself. Where a profile has none, a product is priced as PROFILE_GEMM, attention by
     * PROFILE_ATTENTION_CAUSAL and _DECODE, the rest by roofline. */
    enum profile_op table;
    /* Attention: whose rows it goes by in a profile that has none of `table`; 0: none. */
    enum profile_op table_instead;
    /* Passes, where `wide` says how much; with a second input it may be another. */
    enum profile_pass pass, pass_of_two;
    enum profile_pass pass_instead; /* the same for one of a profile without `pass`; 0: none */
    enum op_wide wide;
    struct op_work (*work)(const struct graph *graph, const struct op *op,
                           const struct op_amount *amount);
    struct eager_pass eager; /* of copies the graph says which of eager_passes they are */
    /* Operators in the middle of which the host decides: whether it has anything to decide in a
     * step whose symbols sum to `sym`, which then waits the operator's wait_ns. NULL: never. */
    bool (*waits)(const int64_t *sym);
    /* Products: of the n channels one half gates the other, and n / 2 are written. */
    bool activates;
    /* A mixture's: rows are pairs of a token and one of its experts. */
    bool by_pairs;
    /* A mixture's: imported MoE timings include this operator: it is free unless its own pass is
     * measured. */
    bool within_experts;
    /* Fused into the operator before it, except in our own kernels: without a pass of its own in
     * the profile it takes no time, and averages over operators and counts of launches leave it
     * out. */
    bool is_part;
    /* Attention: a step's single queries are decoding, which kernels for variable lengths serve in
     * their own way (sim/price/ladder.c). */
    bool decodes;
    /* Eager code binds the result to a variable of the layer, which outlives its last reader. */
    bool is_variable;
};

#define OP(id, file, name) extern const struct op_type op_type_##file;
#include "sim/step/ops.def"
extern const struct op_type *const op_types[OP_KIND_COUNT];

/* Of an operator whose type is not WIDE_NONE. */
struct op_pass op_pass_of(const struct graph *graph, const struct op *op);

/* Size key of an operator in profile tables: output and input channels of a product; of attention
 * those of queries and of keys; of all others the bytes that a row moves. */
struct op_size {
    int64_t n, k;
};
struct op_size op_size_of(const struct graph *graph, const struct op *op);

/* Of a product, by the types of the graph: whether it multiplies fp8 with fp8; bytes of its weight,
 * an expert's of a mixture, and of one row of its input; of a row of input and all n channels,
 * which a product writes by which rows of PROFILE_GEMM are measured, whatever follows it. */
bool op_is_fp8(const struct graph *graph, const struct op *op);
int64_t op_weight_bytes(const struct graph *graph, const struct op *op);
int64_t op_input_bytes(const struct graph *graph, const struct op *op);
int64_t op_plain_row_bytes(const struct graph *graph, const struct op *op);

/* The type of the rows that it is priced by; that of operators without a number in fp8. */
enum profile_type op_profile_type(const struct graph *graph, const struct op *op);
enum profile_type op_wide_type(const struct graph *graph);

/* Work that several descriptors share: every tensor that the operator names is read or written once
 * a row, whatever there is one of being too small to count; a product; nothing. */
struct op_work op_pass_work(const struct graph *graph, const struct op *op,
                            const struct op_amount *amount);
struct op_work op_product_work(const struct graph *graph, const struct op *op,
                               const struct op_amount *amount);
struct op_work op_no_work(const struct graph *graph, const struct op *op,
                          const struct op_amount *amount);

#endif
