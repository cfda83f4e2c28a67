/* The row sets of a request's next step: which positions of its canvas run, and which have a row in
 * the cache after it. A cache policy answers with one such value and nothing else; what a step
 * reads and writes, what it costs and what it asks of memory and engine follow from that.
 *
 * A step writes the rows of positions that run and are kept, and reads those of positions that are
 * kept and do not run, and the keys and values of its own queries. */
#ifndef UNMASK_SIM_POLICY_ROWS_H
#define UNMASK_SIM_POLICY_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/decode/block.h"
#include "sim/step/shape.h"

/* Positions of the canvas from `first` on, `end` not among them. */
struct range {
    uint32_t first, end;
};

/* What one row of the cache holds per layer. */
enum row_kind {
    ROW_NONE,     /* nothing is kept */
    ROW_KV,       /* keys and values, which age: for models that see their whole canvas */
    ROW_FEATURES, /* these, and the outputs of attention and FFN (dLLM-Cache); the first layer and
                     the head run the whole canvas in every step, the other layers what `run` says,
                     which may leave the active block out or be nothing at all */
    ROW_EXACT,    /* final keys and values, in pages: for block-causal and autoregressive models */
    ROW_PATTERN,  /* no keys and values: for every query head a word of 32 bits, each of which says
                     whether a block of queries attends to a block of keys (SparseD); every step
                     runs the whole canvas */
};

/* Who chooses among the positions of a set, in the middle of a step. */
enum row_chooser {
    CHOSEN_BY_NOBODY,
    CHOSEN_BY_POLICY, /* its callback evict: which of the positions that run continue after layer
                         evict_layer */
    CHOSEN_BY_HEAD,   /* a kernel: each KV head chooses n_chosen of the positions that are kept */
    CHOSEN_FOR_HEADS, /* the same positions for all heads */
    CHOSEN_BY_CHANGE, /* a kernel: n_chosen of the positions that run, those of the prompt first
                         and of the others in each layer those whose values changed most */
    CHOSEN_BY_SCORE,  /* a kernel: for each head and block of queries n_chosen of the canvas's keys
                         (ROW_PATTERN) */
};

/* By the root of what scores are divided before that softmax. */
enum pattern_scores {
    PATTERN_RELEASED,  /* of the number of heads, as SparseD's code for LLaDA does; where logits are
                          shifted of a head's channels, as its code for Dream does */
    PATTERN_HEAD_SIZE, /* of a head's channels, as attention itself does */
    PATTERN_HEADS,
};

/* ROW_PATTERN: which blocks of keys a block of queries attends to once some step chose them. Blocks
 * count from the canvas's first token, the last may be short. Of all blocks of keys those `keep`
 * are kept that all keys' softmax gives the largest share of a head's attention, summed over the
 * block of queries, unless they are among the blocks from `rest` on; of these `keep_rest`, by the
 * softmax over their keys alone. The earlier block on a tie. */
struct row_pattern {
    uint32_t tokens; /* of a block; 0: there is no pattern */
    uint32_t rest;   /* the first block of the output's part */
    uint32_t keep, keep_rest;
    uint32_t scores; /* enum pattern_scores */
};

/* Blocks of a canvas, and the words that a block of queries has of them. */
static inline uint32_t pattern_blocks(const struct row_pattern *pattern, uint32_t canvas_tokens) {
    return canvas_tokens / pattern->tokens + (canvas_tokens % pattern->tokens > 0);
}

static inline uint32_t pattern_words(uint32_t n_blocks) {
    return n_blocks / 32 + (n_blocks % 32 > 0);
}

/* Plain data, part of the plug-in ABI. */
struct row_sets {
    /* The same in all answers of a policy: graph and memory are made for it. */
    uint32_t kind;    /* enum row_kind */
    uint32_t chooser; /* enum row_chooser */
    uint32_t settles; /* enum block_cache: when a position of the active block is settled, which is
                         to say has its final row and need not run any more */
    uint32_t evict_layer; /* CHOSEN_BY_POLICY: the layer, 1 for the second, after whose keys and
                             values evicted positions stop; else 0 */
    uint32_t lead_layers; /* ROW_KV: the first layers of the model, which run `lead` instead of
                             `run`; 0: all run the same */
    uint32_t recent;      /* BLOCK_DELAYED of ROW_KV: a decoded position runs until this many were
                             decoded in later steps; 0: once */

    struct range run;     /* positions through the layers */
    struct range lead;    /* through the leading ones: of those kept that do not run there the rows
                             of these layers stay, and what went on from there after a step that ran
                             the request's shared prefix alone goes on again; else empty */
    uint32_t skips;       /* 1: of the active block, those alone that are not settled; where the
                             request sees its canvas and logits are shifted `run` has the rows that
                             decide, each of them one before its position: it begins with the row
                             before the block's first, and each row is left out whose position is
                             settled (dKV-Cache's un-shift) */
    struct range head;    /* positions through the output head */
    struct range keep[2]; /* positions with a row after the step, in order; all of the canvas in
                             every answer or in none */
    uint32_t n_chosen;    /* where a kernel chooses; 0: it does not in this step */
    uint32_t held;        /* rows that the request has memory for */
    uint32_t attends;     /* ROW_PATTERN: keys that a query attends to, which a step before chose;
                             0: all, and always under other kinds */
    struct row_pattern pattern;
};

struct request;

static inline uint32_t range_length(struct range range) {
    return range.end - range.first;
}

static inline bool range_has(struct range range, uint32_t position) {
    return position >= range.first && position < range.end;
}

/* Runs [first, end) and puts all of it through the head. */
static inline void rows_run(struct row_sets *rows, uint32_t first, uint32_t end) {
    rows->run.first = rows->head.first = first;
    rows->run.end = rows->head.end = end;
}

/* The rows that decide on positions of [first, end): the ones before them, where logits are
 * shifted. A prompt is never empty, so that there is one before each position of the output. */
static inline struct range range_deciding(struct range range, bool is_shifted) {
    return (struct range){range.first - is_shifted, range.end - is_shifted};
}

/* How many positions both hold. */
static inline uint32_t range_common(struct range a, struct range b) {
    uint32_t first = a.first > b.first ? a.first : b.first, end = a.end < b.end ? a.end : b.end;
    return end > first ? end - first : 0;
}

/* Positions that are kept, before a kernel chooses among them. */
static inline uint32_t rows_kept(const struct row_sets *rows) {
    return range_length(rows->keep[0]) + range_length(rows->keep[1]);
}

/* Whether a kernel chooses which rows are kept. */
static inline bool rows_are_chosen(const struct row_sets *rows) {
    return rows->chooser == CHOSEN_BY_HEAD || rows->chooser == CHOSEN_FOR_HEADS;
}

/* Whether steps may leave positions of the active block out, so that the loop tracks which. */
static inline bool rows_leave_out(const struct row_sets *rows) {
    return rows->settles != BLOCK_WHOLE || rows->chooser == CHOSEN_BY_POLICY;
}

/* The place of a position's row among those kept, -1: it has none. */
int32_t rows_place(const struct row_sets *rows, uint32_t position);

/* Positions of the active block that run, or that rows run for. */
uint32_t rows_in_block(const struct row_sets *rows, const struct request *request);

/* The step in numbers, of which its shape is made. */
void rows_span(const struct row_sets *rows, const struct request *request, struct span *span);

/* ERR_WORLD and a sentence without a subject, such as "keeps ...", where a policy may not answer so
 * to this request. */
int rows_check(const struct row_sets *rows, const struct request *request, struct err *err);

#endif
