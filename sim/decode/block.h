/* A block under denoising: which of its positions a pass runs, and when it is done.
 *
 * A position is masked, then decoded (its token is chosen), then cached (its final KV is written).
 * Plain block diffusion runs the whole block in every pass and, when nothing is masked any more,
 * once again to write exact KV: the commit pass (SDAR, LLaDA2.0, LMDeploy, SGLang). A delayed cache
 * caches a position once it has been run in decoded form and leaves it out from then on: DC as soon
 * as that is so, DC+ when its right neighbour was decoded as well (FOCUS, arXiv 2601.23278, section
 * 4.3 and released code; a block's last position counts as having a decoded neighbour). All three
 * judge by the mask before the pass's own commits, so that every token is run once more in decoded
 * form, and all three end with the pass that finds nothing masked.
 *
 * Where logits are shifted a position is decided by the row before it. DC+ runs that row for as
 * long as the position is masked; so it does the last one's, whose right neighbour is the next
 * block's first (`waits`).
 *
 * A decoder may revise tokens of a plain block. Then passes go on when nothing is masked any more,
 * until one of them changes nothing, and the commit pass follows (LLaDA2.1's joint threshold).
 *
 * Pure rules over the caller's arrays: nothing is allocated, drawn or timed. One pass is
 *
 *     n = block_pending(&block, pending);           what runs; layers 0 and 1 under FOCUS
 *     ... keep = pending, or what focus_select leaves of it (focus.h) ...
 *     ... outcome = what a decoder makes of the positions in keep (choice.h) ...
 *     block_pass(&block, keep, outcome);
 *
 * until block_is_done. */
#ifndef UNMASK_SIM_DECODE_BLOCK_H
#define UNMASK_SIM_DECODE_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum block_cache {
    BLOCK_WHOLE,     /* nothing of the block is cached before the commit pass */
    BLOCK_DELAYED,   /* DC; with `recent`, later */
    BLOCK_NEIGHBOUR, /* DC+, and FOCUS */
    BLOCK_PARTS,     /* as BLOCK_WHOLE, but passes may run parts of it against the rest's stale KV
                        (small blocks, Fast-dLLM v2) */
};

/* What a pass makes of a position. */
enum position_outcome {
    OUTCOME_NONE,
    OUTCOME_COMMIT, /* it was masked and is given its token */
    OUTCOME_REVISE, /* it was decided and is given another token */
    OUTCOME_AGAIN,  /* it was decided and is masked again */
};
enum { OUTCOME_COUNT = OUTCOME_AGAIN + 1 };

/* How many positions of a pass came out each way; those of OUTCOME_NONE are not counted. */
struct outcomes {
    uint32_t n[OUTCOME_COUNT];
};

/* Written by block_begin and block_pass only. */
struct block_state {
    enum block_cache cache;
    uint32_t length;            /* positions, any number from 1 */
    uint32_t n_fixed;           /* the first of them, which were known before the first pass */
    uint32_t n_masked;          /* positions still masked */
    uint32_t n_uncached;        /* positions whose KV is not final */
    uint32_t passes;            /* done so far, the commit pass among them */
    int32_t frontier;           /* right-most position run so far (kept, under FOCUS); -1: none */
    uint8_t *masked, *uncached; /* [length], 1 or 0; borrowed */
    bool waits; /* BLOCK_NEIGHBOUR: the last position runs until nothing is masked, since its logits
                   decide on the one after the block; set by the caller that began the block */
    bool is_revised; /* BLOCK_WHOLE: tokens may still be revised; set by the caller that began the
                        block */
    /* BLOCK_DELAYED: a decoded position runs until `recent` others were decoded in passes after its
     * own, in each pass; written by the caller that began the block. 0: once. later [length], how
     * many were; borrowed, NULL with 0. */
    uint32_t recent;
    uint16_t *later;
};

/* A new block whose first `n_fixed` positions are known before its first pass, as the prompt's
 * tokens are: not masked, but not cached either, so that the first pass runs all of the block (the
 * released code's warm-up). `masked` and `uncached` have `length` entries each, are filled here and
 * stay the block's until it is done. */
void block_begin(struct block_state *block, enum block_cache cache, uint32_t length,
                 uint32_t n_fixed, uint8_t *masked, uint8_t *uncached);

/* Flags of the positions that the next pass runs; returns how many, 0 when the block is done. */
uint32_t block_pending(const struct block_state *block, uint8_t *pending);

/* Positions that are not masked before the first that is. */
uint32_t block_known_in_front(const struct block_state *block);

/* Whether a pass may run the positions in `keep`, a subset of block_pending that has every pending
 * position that is not masked (but with BLOCK_PARTS, while some are), and come out so: commits are
 * masked positions in `keep`; what is revised or masked again is in `keep` and decided, was not
 * known before the first pass, and some other is masked or the block is revised. */
bool block_allows(const struct block_state *block, const uint8_t *keep, const uint8_t *outcome);

/* The end of a pass that did so; false, and nothing changes, where block_allows says no. A position
 * that was revised or masked again is run once more in its new form before it is cached. */
bool block_try(struct block_state *block, const uint8_t *keep, const uint8_t *outcome,
               struct outcomes *found);

/* The same of a pass that is allowed; returns how they came out. */
struct outcomes block_pass(struct block_state *block, const uint8_t *keep, const uint8_t *outcome);

struct outcomes block_outcomes(const uint8_t *outcome, uint32_t length);

/* All keys and values of the block are lost; what is decoded stays so. */
void block_forget(struct block_state *block);

bool block_is_done(const struct block_state *block);

#endif
