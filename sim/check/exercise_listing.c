/* Exercises of cache policies that list what a step runs of a block: blocks led to their end. */
#include <string.h>

#include "sim/check/exercise_parts.h"

enum { N_BLOCKS = 200 };

/* The positions of a block before a step. */
struct listed_block {
    uint8_t pending[EXERCISE_SLOTS], masked[EXERCISE_SLOTS], next[EXERCISE_SLOTS];
    uint8_t runs[EXERCISE_SLOTS];
    uint32_t n_masked;
};

/* The next step decides one position, some, or all that are left. */
static void draw_next(struct rng *rng, struct listed_block *block, uint32_t length, uint32_t walk) {
    uint32_t one = exercise_draw(rng, 1, block->n_masked), seen = 0;
    for (uint32_t i = 0; i < length; i++) {
        seen += block->masked[i];
        bool is_one = block->masked[i] && seen == one;
        bool drawn = walk % 3 == 2 || (walk % 3 == 1 && exercise_draw(rng, 0, 3) == 0);
        block->next[i] = block->masked[i] && (is_one || drawn);
    }
}

static void list_block(struct guard *guard, struct rng *rng, struct request *request,
                       struct listed_block *block, uint32_t walk) {
    uint32_t length = request->block_length;
    block->n_masked = length;
    memset(block->pending, 1, length);
    memset(block->masked, 1, length);
    while (block->n_masked > 0 && guard->err.kind == ERR_NONE) {
        draw_next(rng, block, length, walk);
        request->masked_in_block = block->n_masked;
        const struct listing_view view = {.request = request,
                                          .length = length,
                                          .pending = block->pending,
                                          .masked = block->masked,
                                          .next = block->next};
        guard->outer.cache.list(guard, &view, block->runs);
        for (uint32_t i = 0; i < length; i++) { /* in their final form, then decided */
            block->pending[i] = block->masked[i];
            block->masked[i] = block->masked[i] && !block->next[i];
            block->n_masked -= block->next[i];
        }
        request->step_in_block++;
        request->passes_in_block++;
    }
}

void exercise_listing(struct guard *guard, struct rng *rng) {
    struct listed_block block;
    for (uint32_t walk = 0; walk < N_BLOCKS && guard->err.kind == ERR_NONE; walk++) {
        struct request request = exercise_request(rng, walk, 64, 256);
        list_block(guard, rng, &request, &block, walk);
    }
}
