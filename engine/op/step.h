/* One step as the engine is handed it: the batch's shape, where its tensors live, and what each
 * span reads, writes and decides.
 *
 * Arrays of a part are the caller's, in host memory, and stay put until the step is done. Canvases
 * and the pool are in device memory: a step reads its token ids from the canvases and commits into
 * them, so that the same step can run again without the host having looked. */
#ifndef UNMASK_ENGINE_OP_STEP_H
#define UNMASK_ENGINE_OP_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/rules/draw_rule.h"
#include "sim/base/err.h"
#include "sim/decode/rule.h"
#include "sim/decode/smooth.h"
#include "sim/memory/placement.h"
#include "sim/step/shape.h"

/* One request's cached rows: for each layer keys [G, n_rows, D], then values [G, n_rows, D], dense,
 * from element `first` of the pool, so that block attention reads a head's rows without a gather. A
 * store that grows or shrinks is laid out anew by the refresh that refills it. */
struct kv_store {
    int64_t first; /* a multiple of 8 */
    int32_t n_rows;
};

/* One request's rows where keys and values are exact: row i is row pages[i / page_rows] page_rows +
 * i % page_rows of the pool, and the row of a token's keys and values is its position. In the pool
 * lie, for each layer, the keys of all pages' rows [row, G, D], then their values. */
struct kv_pages {
    const int32_t *pages; /* [n_pages] */
    int32_t n_pages;
    const int32_t *extent; /* [queries], a query attends to rows 0 .. extent - 1, which are no fewer
                              than the query before attends to, and its own among them */
    bool
        reads_only; /* fresh keys and values are written nowhere: queries attend to what is there */
    /* Of a span that checks drafts, else NULL: [queries], the row of a token's keys and values, and
     * how many rows from 0 on a query attends to besides row extent - 1 (call_paged_attention). */
    const int32_t *rows, *before;
    const bool *writes; /* [n_pages], whether they are written to the page, whose rows may be
                           another request's; NULL: to all */
};

/* Which rows of a layer run after the first one, where the graph keeps features: the values of
 * positions from `first` on are projected, as many as the span has value_rows, or else queries. The
 * first `given` of them are queries, and the others are picked, in each layer for itself, among
 * those that come after them. */
struct feature_run {
    int32_t first, given;
};

/* What is kept of a pattern that a span chooses (struct call_pattern). */
struct pattern_choice {
    int32_t rest, keep, keep_rest;
};

/* Which of a span's logit rows may be committed: rows [first_row, first_row + n_rows), those whose
 * target is still masked. */
struct decision {
    uint32_t first_row, n_rows; /* n_rows 0: nothing is committed */
    uint32_t take;              /* commit this many, ranked first; 0: by the step's rule */
    uint32_t least;             /* by that, under DECODE_JOINT: this many of them at least */
    float threshold;            /* the rule's, of this span, */
    uint64_t key;               /* and of its draws */
};

/* What the span of the same index in the shape brings. */
struct step_part {
    int64_t canvas; /* where its canvas starts among the device's canvases */
    /* [first_queries] in the canvas: whose token, and the rotation's. Where the graph keeps
     * features those of the whole canvas, in order, each of which has the row of the store with its
     * number; logit rows are counted among them, and nothing is said of kv_rows. */
    const int32_t *positions;
    const int32_t *tokens;     /* [queries], where in the canvas a query's token is; NULL: at its
                                  position. Where the graph is exact */
    struct feature_run run;    /* read there */
    const int32_t *kv_rows;    /* [queries], the store's row for the token's keys and values, -1:
                                  not kept; NULL: none is kept */
    const int32_t *logit_rows; /* [logit_rows], queries whose logits are wanted; NULL: the first */
    const int32_t *targets; /* [logit_rows], positions they decide on; NULL: their queries' own */
    struct decision decision;
    uint64_t draw_key;        /* of the pass; where the graph draws tokens */
    struct draw_rule drawing; /* of its rows; the same */
    /* Where the graph keeps anything of positions: the place of the position that a row decides on,
     * and of a query's own, -1: none; NULL: none has any. */
    const int32_t *row_places;   /* [logit_rows] */
    const int32_t *token_places; /* [first_queries]; read where the graph smooths */
    uint32_t steps;              /* of the request before this one; the same */
    /* A span with context attends to all the rows of its store, which must be as many, and may not
     * write to it; unless the limits say that it renews rows: then its own are among those of its
     * store, which are as many as context and queries, and where it has kv_rows it writes them
     * before it attends. A span without context may write to it: with kv_rows, or, where it
     * selects, pack_rows of its positions outside [block_start, block_end), chosen by the block's
     * queries.
     */
    struct kv_store kv;
    uint32_t block_start, block_end; /* indices of queries; read where the span selects */
    /* Where the graph keeps patterns, and the span chooses one, which its store takes (`kv` has as
     * many rows as it has words of a head) or attends by that. */
    struct pattern_choice pattern;
    struct kv_pages kv_pages; /* instead of both, where the graph is exact */
    /* Where the graph evicts. */
    const uint8_t *masked; /* [queries], 1: its importance is needed; NULL: none is */
    const int32_t *kept;   /* [queries], in the rest of a step: the query of the whole span */
};

/* What is known of a step's tokens when a graph evicts: how much the masked tokens of a span attend
 * to each of them in the layers before and at the eviction (call_importance). */
struct eviction {
    const float *before, *after; /* [T] */
    const int32_t *first;        /* [spans], where a span's tokens begin in both */
};

struct step {
    const struct step *lead; /* where the graph has leading layers: what these run, the same spans
                                with their last queries, the others of a span being rows of its
                                store; else NULL */
    const struct placement *placement; /* of the graph at this shape */
    const struct step_shape *shape;    /* ragged, spans listed */
    const struct step_part *parts;     /* [shape->n_spans] */
    struct decode_rule rule;           /* of all decisions; threshold and key are theirs */
    struct decode_credit credit;       /* where the graph gives any */
    /* Where the graph evicts, and some token is masked: says what goes on after it, the same spans
     * with some of their queries, at least one each, their shape as if these were all. Decisions
     * are the rest's. */
    int (*evict)(void *state, const struct eviction *seen, struct step *rest, struct err *err);
    void *evict_state;
};

/* What came out, in batch order: rows of the first span, then those of the second. Any of them may
 * be NULL. */
struct step_result {
    int32_t *token;       /* [R], the highest logit, the lowest token on a tie; or one drawn */
    float *confidence;    /* [R], its probability, with credit where there is any */
    float *margin;        /* [R], the first's less the second's; where there are statistics */
    float *entropy;       /* [R], sum of p log p; the same */
    uint8_t *committed;   /* [R], 1 where the step committed the row's target */
    int32_t *n_committed; /* [spans]; DECODE_NOT_NUMBERS where its logits were no numbers */
};

/* How much the engine is opened for. */
struct step_limits {
    uint32_t max_requests, max_tokens, max_logit_rows;
    uint32_t max_stream_tokens; /* through the first layer, where the graph keeps features: there
                                   max_tokens bounds the others; else 0 */
    uint32_t max_unrolled;      /* steps that are issued at once (forward_submit_times); 0: 1 */
    uint32_t max_positions;     /* positions are below it */
    int64_t canvas_tokens;      /* of all canvases together */
    int64_t workspace_bytes;    /* the largest peak of a placement */
    int64_t pool_bytes;         /* of cached rows */
    int64_t places;             /* of positions that the graph keeps anything of */
    uint32_t credit_slots;      /* tokens of a place's list, where the graph gives credit */
    uint32_t page_rows;         /* of a page, where the graph is exact: a power of two, 4 to 256 */
    /* 1: workspace and pool are one region of the larger of both sizes; stores that lie below the
     * peak of a step's placement are lost. */
    bool shares_pool;
    /* Workspace and pool are mapped only as far as steps and cached rows need them, at the same
     * addresses; else all is allocated at opening. */
    bool maps;
    struct smoothing smoothing; /* where the graph smooths */
    /* All key-value heads keep the same rows, as Sparse-dLLM does (call_select's uniform). */
    bool selects_together;
    /* Where the graph keeps patterns: tokens of a block; and whether scores are divided by the root
     * of the number of heads. */
    uint32_t pattern_tokens;
    bool pattern_by_heads;
    /* Spans with context renew rows of their stores, in place. */
    bool renews_rows;
};

#endif
