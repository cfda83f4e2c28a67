/* The shape of one step: what the batch asks of the model, as ragged spans and as symbol values.
 *
 * A span is one request's part of a step. Its symbols add up over the batch, so the shape keeps
 * both the ragged list (the engine and padding need it) and the sums (all that prices and sizes
 * need). Cache policies make spans; the cost model, the planner and the engine read shapes and
 * nothing else about a batch. */
#ifndef UNMASK_SIM_STEP_SHAPE_H
#define UNMASK_SIM_STEP_SHAPE_H

#include <stdint.h>

enum phase {
    PHASE_PREFILL, /* committed positions whose keys and values are not held (block-causal and
                      causal models): query i sees the context and the queries up to its own block
                    */
    PHASE_REFRESH, /* the whole canvas, renewing cached state */
    PHASE_REUSE,   /* few queries against cached state */
    PHASE_COMMIT,  /* a finished block once more, to write its exact KV */
};
enum { PHASE_COUNT = 4 };

extern const char *const phase_names[PHASE_COUNT];

/* Plain data, part of the plug-in ABI. All counts are per layer where they concern KV rows. */
struct span {
    uint32_t phase;         /* enum phase */
    uint32_t queries;       /* tokens through the trunk's layers */
    uint32_t first_queries; /* tokens through layer 0; equals queries unless the policy splits it */
    uint32_t context;       /* cached KV rows attended besides the queries' own keys */
    uint32_t logit_rows;    /* rows through the output head */
    uint32_t select_rows;   /* KV rows scored for retention; 0 in most steps */
    uint32_t pack_rows;     /* KV rows packed after selection */
    uint32_t
        value_rows; /* rows whose values are projected first and compared with the cached
                       ones (dLLM-Cache); the queries are picked out of them, with their keys */
    uint32_t exact; /* 1: the queries' own keys and values are rows of the cache (exact KV) */
    /* Policies that evict queries after the first layers (FOCUS); else 0. */
    uint32_t kept_queries;  /* tokens through the layers after the eviction */
    uint32_t kept_keys;     /* KV rows that these attend to there, their own among them */
    uint32_t part_start;    /* policies that run parts of a block: where in it the queries begin,
                               which then follow one another; else 0 */
    uint32_t sampled_rows;  /* logit rows that are looked at, the loop's word; 0: all */
    uint32_t lead_keys;     /* policies whose leading layers run other positions: KV rows that the
                               first_queries attend to there, their own among them; else 0 */
    uint32_t attended_keys; /* context 0: up to `queries`: keys that a query attends to, which a
                               step before chose; more: it attends to all, and that many are
                               scored besides; else 0 */
};

/* The symbols of operator and tensor sizes. */
enum symbol {
    SYM_ONE,          /* 1 */
    SYM_REQUESTS,     /* spans */
    SYM_TOKENS,       /* sum of queries */
    SYM_FIRST_TOKENS, /* sum of first_queries */
    SYM_LOGIT_ROWS,
    SYM_CONTEXT_ROWS,
    SYM_SELECT_ROWS,
    SYM_PACK_ROWS,
    SYM_VALUE_ROWS,
    SYM_KEPT_TOKENS, /* sum of kept_queries, and the queries of spans in prefill */
    /* Prefill: sequences, sum q, sum of keys, sum of (query, key) pairs under a causal mask. */
    SYM_PREFILL_N,
    SYM_PREFILL_Q,
    SYM_PREFILL_K,
    SYM_PREFILL_QK,
    /* Attention over own keys only (context 0): sequences, sum q, sum q*q. */
    SYM_FULL_N,
    SYM_FULL_Q,
    SYM_FULL_QK,
    /* Attention of few queries over cached and own keys: sequences, sum q, sum k, sum q*k. */
    SYM_BLOCK_N,
    SYM_BLOCK_Q,
    SYM_BLOCK_K,
    SYM_BLOCK_QK,
    /* The same after the eviction. */
    SYM_KEPT_Q,
    SYM_KEPT_K,
    SYM_KEPT_QK,
    /* Layer 0 where it is split off: all of it attends to itself. */
    SYM_FIRST_N,
    SYM_FIRST_QK,
    /* Spans by what the host pays for them: refresh without selection, and selection. */
    SYM_REFRESH_N,
    SYM_SELECT_N,
    SYM_SAMPLED_ROWS,
    /* Rows whose values are projected: value_rows, or the queries where there are none; and the
     * queries picked out of value_rows. */
    SYM_PROJECTED_VALUES,
    SYM_PICKED_ROWS,
    /* Attention over keys that a step before chose: sequences, sum q, sum of (query, key) pairs;
     * and of spans that choose them, the pairs being those that are scored. */
    SYM_PATTERN_N,
    SYM_PATTERN_Q,
    SYM_PATTERN_QK,
    SYM_SCORED_N,
    SYM_SCORED_Q,
    SYM_SCORED_QK,
    /* Attention of first_queries in leading layers: of spans that attend to their own keys alone,
     * and of those that attend to cached ones as well. */
    SYM_LEAD_FULL_N,
    SYM_LEAD_FULL_Q,
    SYM_LEAD_FULL_QK,
    SYM_LEAD_BLOCK_N,
    SYM_LEAD_BLOCK_Q,
    SYM_LEAD_BLOCK_K,
    SYM_LEAD_BLOCK_QK,
    SYM_COUNT,
};

extern const char *const symbol_names[SYM_COUNT];

struct step_shape {
    int64_t sym[SYM_COUNT];
    uint32_t n_spans;
    const struct span *const *spans; /* borrowed, in batch order; NULL unless requested */
};

/* Zero spans, SYM_ONE = 1. */
void shape_clear(struct step_shape *shape);

/* Add one span's symbols `times` times, or subtract them (-1); the ragged list is the caller's. */
void shape_add(int64_t sym[SYM_COUNT], const struct span *span, int64_t times);

/* Adds the sums of `steps` equal steps. */
void shape_add_up(int64_t sum[SYM_COUNT], const int64_t sym[SYM_COUNT], uint32_t steps);

/* The sums of the same batch when every span is padded to the longest one, as a runtime without
 * variable-length kernels runs it. Needs `spans`. */
void shape_pad(struct step_shape *shape);

#endif
