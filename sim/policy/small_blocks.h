/* Small blocks of a block, decoded from left to right: those before the active one are committed
 * whole, those behind it masked whole, so that how many positions are masked says which it is. */
#ifndef UNMASK_SIM_POLICY_SMALL_BLOCKS_H
#define UNMASK_SIM_POLICY_SMALL_BLOCKS_H

#include <stdbool.h>

#include "sim/policy/request.h"

struct small_blocks {
    uint32_t tokens;
};

#define SMALL_BLOCKS_PARAM(state, small)                                                           \
    {                                                                                              \
        "small_block", PARAM_U32, 0, "tokens", "8", 1, 65536, NULL, offsetof(state, small.tokens), \
            "positions of a small block"                                                           \
    }

/* One past the last position of the active small block, and its first, counted in the block;
 * something is masked. */
static inline uint32_t small_block_start(const struct small_blocks *small,
                                         const struct request *request) {
    uint32_t n_known = request->block_length - request->masked_in_block;
    return n_known / small->tokens * small->tokens;
}

static inline uint32_t small_block_end(const struct small_blocks *small,
                                       const struct request *request) {
    uint32_t end = small_block_start(small, request) + small->tokens;
    return end < request->block_length ? end : request->block_length;
}

/* Whether nothing of the active small block is committed yet. */
static inline bool small_block_begins(const struct small_blocks *small,
                                      const struct request *request) {
    return small_block_start(small, request) == request->block_length - request->masked_in_block;
}

#endif
