/* LLaDA2.2's insert and delete from real logits, on the host: what a pass over a block makes of its
 * tokens (SGLang's JointThresholdInDel at 0fbe7e4). A pass runs the whole block, whose keys and
 * values are computed anew, so that tokens may move in it as they like.
 *
 * The masks of the block's start are its original ones, and stay so where they move. While some are
 * left a pass fills one position more than there are other masks, the most confident ones, or all
 * above the threshold where those are as many; without them it fills all. Tokens are replaced above
 * the edit threshold. Then a position that became the delete token is dropped, one that became the
 * insert token is a mask and the token that it held, and the block is filled up with masks or cut.
 * A block whose content was there before takes another token where it is least sure. After
 * max_post_edit_steps passes without original masks, or too many at all, one last pass fills all
 * with ordinary tokens. */
#ifndef UNMASK_ENGINE_SESSION_MOVING_H
#define UNMASK_ENGINE_SESSION_MOVING_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/policy/decoder/moving.h"

/* A request's block: positions [first, first + length) of its canvas, the first n_fixed of them the
 * prompt's. */
struct moving_block {
    uint64_t request;
    uint32_t slot, first, length, n_fixed;
};

/* Of a slot's block under way. */
struct moving_state {
    uint64_t request;
    uint32_t first, n_updates, n_post;
    bool is_known, is_finished;
};

/* Owned; by slot, and room for one block. */
struct moving {
    const struct joint_indel *numbers; /* borrowed */
    uint32_t width, vocab, most_updates;
    int32_t mask;
    struct moving_state *states;
    uint8_t *original;         /* [slots, width] */
    int32_t *contents, *tried; /* [slots, most_updates, width]; tried -1: nothing was written */
    int32_t *best, *excluded;  /* [width]; [most_updates + 3] */
    float *p;                  /* [width], of best */
    uint8_t *writes;           /* [width] */
    int32_t *moved;            /* [2 width] */
    uint8_t *moved_original;   /* [2 width] */
};

void moving_open(struct moving *moving, const struct joint_indel *numbers, uint32_t n_slots,
                 uint32_t window, uint32_t vocab, uint32_t mask);
void moving_close(struct moving *moving);

/* tokens [length]: before the pass, then after it. logits [length, vocab] of the pass. */
void moving_pass(struct moving *moving, const struct moving_block *block, const float *logits,
                 int32_t *tokens);

#endif
