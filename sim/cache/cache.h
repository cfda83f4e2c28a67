/* Cache policies: what each step of a request computes and what it may take from cached state. */
#ifndef UNMASK_SIM_CACHE_CACHE_H
#define UNMASK_SIM_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/model/model.h"
#include "sim/policy/abi.h"
#include "sim/policy/request.h"

/* What one row of cached state holds per layer. */
enum cache_row {
    CACHE_ROW_NONE,     /* nothing is kept */
    CACHE_ROW_KV,       /* keys and values */
    CACHE_ROW_FEATURES, /* keys, values, attention output and FFN output (dLLM-Cache) */
};

/* Which rows a full pass leaves behind for the steps that attend to cached state. A reusing step
 * runs `queries` positions from the start of the block, or of the policy's window around it. */
enum cache_keeps {
    KEEPS_NOTHING,
    KEEPS_BEFORE_BLOCK,    /* positions before the active block */
    KEEPS_OUTSIDE_BLOCK,   /* and those behind it; with a window, all outside of that */
    KEEPS_CHOSEN_BY_HEAD,  /* pack_rows of those outside the block, by each key-value head alone */
    KEEPS_CHOSEN_TOGETHER, /* the same rows for all heads */
    KEEPS_EXACT,           /* spans are exact: their own keys and values are rows of the cache */
    KEEPS_CANVAS,          /* all positions, of which there are as many rows: a reusing step attends
                              to the whole canvas. It runs all of the window, or all of it but those
                              positions of the block that leaves_out and `list` leave out, and renews
                              their rows; those of the others stay as they are (canvas.h). A block's
                              first pass runs the canvas */
    KEEPS_OTHERWISE,       /* something the engine does not run */
};

/* A block's positions before a step, as an evicting policy sees them. */
struct eviction_view {
    const struct request *request;
    uint32_t length;                 /* of the block */
    const uint8_t *pending, *masked; /* [length], 1: run in this step; still masked */
    const float *delta; /* [length], growth of each masked position's importance, else 0 */
    int32_t frontier;   /* right-most position kept so far in this block, -1: none */
};

struct cache_policy {
    struct policy policy;
    uint32_t row;                /* enum cache_row */
    uint32_t keeps;              /* enum cache_keeps */
    uint32_t splits_first_layer; /* 1: layer 0 runs over span.first_queries */
    uint32_t selects;            /* 1: some spans have select_rows */
    uint32_t compares_values;    /* 1: some spans have value_rows */
    uint32_t leaves_out;         /* exact, of the canvas, or kept otherwise: enum block_cache of
                                    sim/decode/block.h: which positions of a block its later passes leave
                                    out */
    uint32_t evicts;             /* 1: spans have kept_queries and kept_keys */
    uint32_t memory_bytes;       /* what it remembers of each request, zeros at first */

    /* The request's next step and for how many consecutive steps the same span holds, >= 1, unless
     * the block ends before. A pure function of the request. Every span has queries >= 1,
     * first_queries >= queries, logit_rows >= masked positions it may commit. Where positions of
     * the canvas are left out, uncached_in_block says how many of the block are not.
     *
     * Exact policies (KEEPS_EXACT; others never see these cases) plan a prefill over what of
     * [cached_tokens, block_start) is missing, of which the scheduler may take less, or, where that
     * is the block before, a reuse over it and the active one together; and they are asked
     * once more when the block has no masked position left: for a commit pass, or with queries = 0
     * when there is nothing more to do. A prefill commits nothing unless it has logit rows; a
     * commit pass nothing of its own block. Where logits are shifted, a pass over all that is
     * before a block commits that block's first position, if it has a logit row (blocks.h):
     * prefill and commit pass alike. */
    uint32_t (*plan)(const void *state, const struct request *request, struct span *span);

    /* Rows of cached state the request needs for its next step, at most. Constant over its life,
     * but for exact policies: theirs never shrink, and the last block's are the most. */
    uint32_t (*rows_held)(const void *state, const struct request *request);

    /* Evicting policies, else NULL: which of the pending positions go on behind the second layer.
     * Sets keep[i] to 1 or 0, 1 where a pending position is not masked, and returns how many are 1,
     * at least one masked one among them. */
    uint32_t (*evict)(const void *state, const void *memory, const struct eviction_view *view,
                      uint8_t *keep);

    /* May be NULL. A block of the request begins (n 0), or a step of it committed n > 0. */
    void (*learn)(const void *state, void *memory, const struct request *request, uint32_t n);

    /* KEEPS_OUTSIDE_BLOCK, KEEPS_CANVAS: the positions [*first, *end) of the canvas that reusing
     * steps run, the whole active block among them, the same in all steps of a block unless all of
     * the canvas is kept. NULL: the block. */
    void (*window)(const void *state, const struct request *request, uint32_t *first,
                   uint32_t *end);
};

extern const struct cache_policy *const cache_table[];
extern const size_t cache_table_size;

#endif
