/* Where a pattern's words are and what they say (struct call_pattern); compiled as C and CUDA. */
#ifndef UNMASK_KERNELS_RULES_PATTERN_H
#define UNMASK_KERNELS_RULES_PATTERN_H

#include <stdint.h>

#include "kernels/rules/portable.h"

enum { PATTERN_WORD_BITS = 32 };

RULE_FUNCTION int32_t pattern_n_blocks(int32_t n_tokens, int32_t block_tokens) {
    return (n_tokens + block_tokens - 1) / block_tokens;
}

RULE_FUNCTION int32_t pattern_n_words(int32_t n_blocks) {
    return (n_blocks + PATTERN_WORD_BITS - 1) / PATTERN_WORD_BITS;
}

/* Those of a head and a block of queries, in a pool of elements of `element_bytes`. */
RULE_FUNCTION uint32_t *pattern_words_of(void *pool, int64_t element_bytes, int64_t cache_start,
                                         int32_t n_blocks, int64_t head, int64_t block) {
    return (uint32_t *)(void *)((char *)pool + cache_start * element_bytes) +
           (head * n_blocks + block) * pattern_n_words(n_blocks);
}

RULE_FUNCTION int pattern_has(const uint32_t *words, int32_t block) {
    return (int)(words[block / PATTERN_WORD_BITS] >> block % PATTERN_WORD_BITS & 1);
}

/* Bits from `first` on become 0. */
RULE_FUNCTION void pattern_clear_from(uint32_t *words, int32_t n_blocks, int32_t first) {
    for (int32_t b = first; b < n_blocks; b++) {
        words[b / PATTERN_WORD_BITS] &= ~((uint32_t)1 << b % PATTERN_WORD_BITS);
    }
}

#endif
