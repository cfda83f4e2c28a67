/* A step's batch as the kernels want it: checked, counted, and packed into one run of bytes that a
 * single upload takes to the device.
 *
 * Spans that attend to themselves come first, those of them that select after the others, and spans
 * with cached context last, each group in batch order, so that either attention, the copy of kept
 * rows and the selection are one call over consecutive requests. Where the graph keeps patterns
 * those that choose theirs are the ones that select, and those that attend by theirs come last.
 * Where the graph is exact, spans in
 * prefill come first and all others last. Logit rows keep the batch's order; they are found by
 * index. Decisions that take a number come before those by rule. */
#ifndef UNMASK_ENGINE_OP_PACKED_H
#define UNMASK_ENGINE_OP_PACKED_H

#include <stdint.h>

#include "engine/op/step.h"
#include "sim/base/err.h"
#include "sim/step/graph.h"

/* The arrays, aligned to PACKED_ALIGN_BYTES each. T tokens, B spans, S of them selecting, R logit
 * rows, D decisions; W tokens of the residual stream, T unless the graph keeps features, whose
 * spans without queries come last of all. Where the graph is exact there are no stores (cache
 * start, kept, owner); else there are no extents and pages. */
enum packed_array {
    PACKED_AT,          /* int64 [W], where in the canvases a token's id lies */
    PACKED_CACHE_START, /* int64 [layers, B], element where a span's rows lie */
    PACKED_SCORE_START, /* int64 [S] */
    PACKED_KEY,         /* uint64 [D], of a decision's draws */
    PACKED_DRAWS,       /* uint64 [R], where the graph draws tokens: a row's random number */
    PACKED_DRAW_RULES,  /* struct draw_rule [R], the same: by what it is drawn */
    PACKED_CANVAS,      /* int64 [D], where in the canvases its span's lies */
    PACKED_TARGETS,     /* int64 [R], where in the canvases a row's token goes */
    PACKED_POSITIONS,   /* int32 [W] */
    PACKED_KV_ROWS,     /* int32 [tokens of spans that keep by row], row of the store, or -1;
                           exact: [T], row of the pool, or -1 */
    PACKED_EXTENT,      /* int32 [T] */
    PACKED_BEFORE,      /* int32 [T], where a span checks drafts */
    PACKED_PAGES,       /* int32 [B, max_pages] */
    PACKED_OWNER,       /* int32 [the same], the span */
    PACKED_START,       /* int32 [B + 1], spans' first tokens */
    PACKED_KEPT,        /* int32 [B], rows of each span's store */
    PACKED_ROWS,        /* int32 [R], the token of each logit row, of the stream */
    PACKED_BLOCK_START, /* int32 [S] */
    PACKED_BLOCK_END,   /* int32 [S] */
    PACKED_FIRST_ROW,   /* int32 [D], and one more */
    PACKED_N_ROWS,      /* int32 [D] */
    PACKED_TAKE,        /* int32 [D], 0: by rule */
    PACKED_THRESHOLD,   /* float [D] */
    PACKED_ROW_PLACES,  /* int32 [R], where the graph keeps anything of positions: a row's, or -1 */
    PACKED_TOKEN_PLACES, /* int32 [W], where it smooths: a token's, or -1 */
    PACKED_STEP, /* int32 [R], the same: steps of its request before; the device counts on */
    /* Where the graph keeps features (call_pick). */
    PACKED_STREAM_OWNER,   /* int32 [W], the span */
    PACKED_STREAM_START,   /* int32 [B + 1] */
    PACKED_VALUE_START,    /* int32 [B + 1] */
    PACKED_COMPARED_START, /* int32 [B + 1] */
    PACKED_RUN_FIRST,      /* int32 [B] */
    PACKED_GIVEN,          /* int32 [B] */
    PACKED_VALUE_ROWS,     /* int32 [rows of values], the token of the stream */
    /* Where the graph keeps patterns (call_pattern). */
    PACKED_PATTERN_REST,      /* int32 [S] */
    PACKED_PATTERN_KEEP,      /* int32 [S] */
    PACKED_PATTERN_KEEP_REST, /* int32 [S] */
    PACKED_KEPT_TOKENS,       /* int32 [T], the rest after an eviction: which of the whole step's */
    PACKED_MASKED,            /* uint8 [T] */
};
enum { PACKED_ARRAY_COUNT = PACKED_MASKED + 1, PACKED_ALIGN_BYTES = 16 };

/* All that a step's launches depend on besides its placement and what the arrays hold. Fields of
 * four bytes without gaps, so that equal counts are equal bytes. */
struct packed_counts {
    int32_t n_plain, n_select, n_block, n_silent;    /* spans of each group */
    int32_t n_tokens, n_plain_tokens, n_full_tokens; /* all; of the first; of the first two */
    int32_t n_logit_rows;
    int32_t n_keeping_tokens; /* those of the first group, or all where spans with context renew
                                 rows; 0 when none keeps any */
    int32_t max_full_tokens, max_block_tokens, max_candidates; /* of one span */
    int32_t n_take, n_rule;                                    /* decisions of either kind */
    int32_t max_take_rows, max_rule_rows;                      /* of one decision */
    int32_t n_stream_tokens, max_stream_tokens;                /* all; of one span */
    int32_t n_values, max_compared; /* rows of values; those compared of one span */
    int32_t max_pages;              /* of one span, rounded up so that few numbers occur */
    int32_t max_masked;             /* of one span */
    int32_t checks, none;           /* 1: a span checks drafts; 0, so that eights are whole */
    uint32_t rule, rank;            /* enum decode_kind, of those by rule; enum decode_rank */
    float slack, low, factor, bound, temperature, edit, penalty;
    struct decode_credit credit;
};

struct packed {
    const struct model *model;
    struct step_limits limits;
    int64_t pool_elements, element_bytes;
    int64_t state_elements;      /* of the pool that a hidden state in the wide type takes */
    int64_t head_elements;       /* of a head in a row of the pool */
    int64_t global_row_elements; /* of all keys there, in layers that see everything where others
                                    have a window */
    bool selects, exact, evicts, credits, smooths, draws, features, patterns,
        joins;          /* the step graph is such */
    int64_t pool_pages; /* exact */
    int64_t max_bytes;
    int32_t *decision_of;  /* [max_requests], owned: of the spans in batch order, -1: none */
    int32_t *first_token;  /* the same: where a span's tokens begin */
    int32_t *first_stream; /* the same, in the residual stream */
    /* Written by packed_lay_out. */
    struct packed_counts n;
    int64_t offset_bytes[PACKED_ARRAY_COUNT], bytes;
};

/* Rows of a page, as kernels find the page of a row: 4 to 256, a power of two. */
static inline bool packed_takes_pages(int64_t page_rows) {
    return page_rows >= 4 && page_rows <= 256 && (page_rows & (page_rows - 1)) == 0;
}

/* On error nothing needs releasing. */
int packed_open(struct packed *packed, const struct graph *graph, const struct step_limits *limits,
                struct err *err);
void packed_close(struct packed *packed);

/* ERR_USAGE with the span and what is wrong with it. */
int packed_check(const struct packed *packed, const struct step *step, struct err *err);

/* Count a step that was checked, and say where its arrays lie. */
void packed_lay_out(struct packed *packed, const struct step *step);

/* Elements from a layer's keys to its values, and from these to the next layer's keys, in a pool of
 * pages. */
static inline int64_t packed_plane_elements(const struct packed *packed) {
    return packed->pool_pages * packed->limits.page_rows * packed->model->kv_heads *
           packed->head_elements;
}

/* Elements before a layer's keys in a pool of pages. */
static inline int64_t packed_layer_start(const struct packed *packed, uint32_t layer) {
    const uint32_t every = packed->model->global_every, n_global = every > 0 ? layer / every : 0;
    return 2 * (layer - n_global) * packed_plane_elements(packed) +
           2 * n_global * packed->pool_pages * packed->limits.page_rows *
               packed->global_row_elements;
}

/* Elements of a store's rows of one layer: keys and values, and features where there are any; or a
 * word of a pattern for each head. */
static inline int64_t packed_layer_elements(const struct packed *packed, int32_t n_rows) {
    const struct model *model = packed->model;
    if (packed->patterns) {
        return (int64_t)sizeof(uint32_t) / packed->element_bytes * model->heads * n_rows;
    }
    const int64_t features = packed->features ? 2LL * model->hidden : 0;
    return (2LL * model->kv_heads * packed->head_elements + features) * n_rows;
}

/* Where in a store, from its first element on, what goes on after leading layers lies: a hidden
 * state of each row. */
static inline int64_t packed_states(const struct packed *packed, int32_t n_rows) {
    return packed->model->layers * packed_layer_elements(packed, n_rows);
}

/* Masked tokens of a part whose importance is asked for. */
int32_t packed_count_masked(const struct step_part *part, uint32_t queries);

/* Write the arrays of the step that was laid out last: packed->bytes bytes, at most max_bytes.
 * whole: for the rest of a step after an eviction, the whole step; else NULL. */
void packed_fill(struct packed *packed, const struct step *step, const struct packed *whole,
                 unsigned char *out);

#endif
