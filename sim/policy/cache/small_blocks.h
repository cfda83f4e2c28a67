/* Small blocks of a block, decoded from left to right: the active one is the first with a masked
 * position. Under the decoder of the same name those after it are wholly masked. */
#ifndef UNMASK_SIM_POLICY_CACHE_SMALL_BLOCKS_H
#define UNMASK_SIM_POLICY_CACHE_SMALL_BLOCKS_H

#include <stdbool.h>

#include "sim/policy/window.h"

struct small_blocks {
    uint32_t tokens;
};

#define SMALL_BLOCKS_PARAM(state, small)                                                           \
    {                                                                                              \
        "small_block", PARAM_U32, 0, "tokens", "8", 1, 65536, NULL, offsetof(state, small.tokens), \
            "positions of a small block; from block_tokens on the whole block"                     \
    }

/* The first position of the active small block, and one past its last, counted in the block;
 * something is masked. */
static inline uint32_t small_block_start(const struct small_blocks *small,
                                         const struct request *request) {
    return window_known(request) / small->tokens * small->tokens;
}

static inline uint32_t small_block_end(const struct small_blocks *small,
                                       const struct request *request) {
    uint32_t end = small_block_start(small, request) + small->tokens;
    return end < window_length(request) ? end : window_length(request);
}

/* Whether the first position of the active small block is masked. */
static inline bool small_block_begins(const struct small_blocks *small,
                                      const struct request *request) {
    return small_block_start(small, request) == window_known(request);
}

#endif
