/* The builder: from a model, a cache policy and a runtime to the step graph. */
#ifndef UNMASK_SIM_STEP_BUILDER_H
#define UNMASK_SIM_STEP_BUILDER_H

#include "sim/step/graph.h"

/* How a runtime executes the model: what the builder has to know of it. */
struct graph_options {
#define GRAPH_FLAG(field, doc)                        bool field;
#define GRAPH_BYTES(field, initial, least, most, doc) int64_t field;
#include "sim/step/runtime_part.def"
    bool splits_first_layer; /* layer 0 runs over first_queries (dLLM-Cache) */
    bool selects;            /* refresh steps score and pack KV rows */
    bool selects_together;   /* the same rows for all heads, whichever rank has them */
    bool has_patterns;    /* each head attends to blocks of keys that it chose before (SparseD) */
    bool compares_values; /* values are projected apart and compared (dLLM-Cache) */
    bool exact;           /* fresh keys and values are rows of the pool; masks of blocks, tokens */
    uint32_t
        evict_layer; /* which lets some queries go no further (FOCUS: 1, the second); 0: none */
    uint32_t lead_layers; /* the first layers run over first_queries, the others over queries
                             (BiCache); 0: all run over queries */
    double evict_wait_ns; /* and what a step waits, where some are, for the host that chooses */
    enum provenance_kind evict_wait_kind;
    enum symbol
        stored_rows;        /* whose fresh keys and values are copied to the store; SYM_ONE: none */
    bool samples_output;    /* of the head's logits only the output's rows are looked at */
    struct storage storage; /* of weights, activations and cached rows; zeros: bf16. Logits as the
                               head writes them are wider by as much as activations. */
    bool statistics;        /* the margin and entropy of each row, besides its confidence */
    bool draws;      /* tokens are drawn from stored logits, or their confidences tempered, */
    bool draws_kept; /* among the most likely ones, which are looked for */
    bool host_reads_logits; /* once the step is done: stored ones stay until then */
    uint32_t credit_slots;  /* tokens of a row's list of credit; 0: decoders give none */
    bool smooths; /* probabilities of each logit row make an embedding that the next step adds
                     to its input (sim/decode/smooth.h); logits are stored */
};

/* Bytes of one row's credit. */
int64_t graph_credit_bytes(const struct graph_options *options);

/* What the fused head works in, whatever the rows (HEAD_SCRATCH_BYTES of the kernels). */
enum { GRAPH_HEAD_SCRATCH_BYTES = 60 << 20 };

/* Build the graph of one step; of a rank's, with what the ranks exchange, where the model is a
 * rank's share (sim/model/ranks.h). Stored logits stay where they are: the runtimes gather
 * candidates, never logits. ERR_USAGE where the settings make no sound graph. */
int graph_try(struct graph *graph, const struct model *model, const struct graph_options *options,
              struct err *err);

/* The same of options that are not a user's, which never fails. */
void graph_build(struct graph *graph, const struct model *model,
                 const struct graph_options *options);

#endif
