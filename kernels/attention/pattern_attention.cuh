/* What the two paths of attention by a pattern share. */
#ifndef UNMASK_KERNELS_ATTENTION_PATTERN_ATTENTION_CUH
#define UNMASK_KERNELS_ATTENTION_PATTERN_ATTENTION_CUH

#include "kernels/kernels.h"
#include "kernels/rules/pattern.h"

static inline int64_t pattern_most_blocks(const struct call_pattern_attention *call) {
    return (call->max_tokens + (int64_t)call->block_tokens - 1) / call->block_tokens;
}

/* Whether the call's shapes are ones that some path takes. */
static inline bool pattern_attention_valid(const struct call_pattern_attention *call) {
    return call->dtype == KERNEL_BF16 && is_head_size(call->head_size) && call->n_requests >= 0 &&
           call->n_requests <= 65535 && call->n_kv_heads > 0 && call->n_heads > 0 &&
           call->n_heads <= 65535 && call->n_heads % call->n_kv_heads == 0 &&
           call->q_stride % 8 == 0 && call->kv_stride % 8 == 0 && call->y_stride % 8 == 0 &&
           call->max_tokens >= 0 && call->block_tokens > 0 &&
           pattern_most_blocks(call) <= PATTERN_MAX_BLOCKS;
}

static __device__ __forceinline__ const uint32_t *
pattern_row(const struct call_pattern_attention &call, int request, int head, int n_blocks,
            int block) {
    return pattern_words_of(const_cast<void *>(call.cache), 2, call.cache_start[request], n_blocks,
                            head, block);
}

#endif
