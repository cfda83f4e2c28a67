/* A request's pass over its active block, as a decode trace records it, and where recorded ones
 * come from. Trace readers implement `struct decode_source`; the serving loop plays it in place of
 * what it would draw, and knows nothing of files. */
#ifndef UNMASK_SIM_BASE_DECODE_H
#define UNMASK_SIM_BASE_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"

/* committed <= kept <= processed and kept <= reach, none above the block's length. Prefills are no
 * passes; where a prefill decides on a token (autoregressive models, shifted logits), its last
 * query is one. */
struct decode_pass {
    uint32_t committed; /* positions that the pass decides on; 0 in a commit pass, 1 where it yields
                           the next block's first token (shifted logits) */
    uint32_t processed; /* positions of the block that it runs; >= 1 in a pass */
    uint32_t kept;      /* of these, those left by an eviction; all where nothing is evicted */
    uint32_t reach;     /* positions of the block up to the right-most one kept */
    uint32_t unmasked;  /* positions that it masks again */
    uint32_t revised;   /* positions that it gives another token */
};

/* A pass's outcome for the positions of its block; each array is [length], by position. */
struct decode_positions {
    uint32_t start;  /* the block's first position in the canvas */
    uint32_t length; /* positions of the block */
    /* 1 or 0: not committed before the pass; run by it; of these, left by an eviction (all where
     * nothing evicts); seen (masked, and its logits were computed). */
    uint8_t *masked, *run, *keep, *seen;
    uint8_t *outcome; /* enum position_outcome (sim/decode/block.h) */
    /* Of those seen, else 0: the most likely token; its probability, with credit where there is
     * any; less that of the second; minus the sum of p log p over the vocabulary, in nats. */
    int32_t *token;
    float *confidence, *margin, *entropy;
    /* Where has_importance, of those that are masked and run, else 0: how much the block's masked
     * positions attend to it in the layers before and at the eviction. */
    bool has_importance;
    float *before, *after;
};

/* Memory for blocks of up to `most` positions. */
void decode_positions_init(struct decode_positions *positions, uint32_t most);
void decode_positions_fini(struct decode_positions *positions);

struct decode_source {
    const void *state;
    const char *name; /* for sentences: the file */
    bool takes_back;  /* passes mask positions again, and may commit none */
    /* How many tokens the request's passes commit, less those they mask again. ERR_WORLD when it is
     * not among the recorded. */
    int (*tokens)(const void *state, uint64_t request, uint64_t *out, struct err *err);
    /* Its pass `index`, from 0. ERR_WORLD when it has fewer. */
    int (*pass)(const void *state, uint64_t request, uint32_t index, struct decode_pass *out,
                struct err *err);
    /* Of its output tokens those up to and including the end of text; 0: it says nothing of an end.
     * Those that the passes commit are as many at least. NULL: it never says. */
    int (*answer)(const void *state, uint64_t request, uint64_t *out, struct err *err);
};

#endif
