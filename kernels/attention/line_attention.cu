/* Attention of blocks over packed caches, and over exact keys and values in pages: the calls.
 * line_attention.cuh has the kernel. */
#include "kernels/attention/line_attention.cuh"

/* Whether the current device's shared memory wants compact stages. */
static cudaError_t wants_compact(bool *compact) {
    int bytes = 0;
    const cudaError_t status =
        device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, &bytes);
    *compact = line_wants_compact(bytes);
    return status;
}

/* ---- over packed caches ---- */

extern "C" int64_t block_attention_scratch_bytes(int n_sms) {
    const int64_t limit = ATTENTION_MAX_BLOCKS, most = (int64_t)n_sms * ATTENTION_MOST_PER_SM;
    const int64_t n_blocks = most < limit ? most : limit;
    return ATTENTION_COUNTER_BYTES + n_blocks * 2 * ATTENTION_PART_FLOATS * 4;
}

/* A group's heads are rows of one tile. */
template <class CALL> static bool heads_valid(const CALL *call) {
    return is_head_size(call->head_size) && call->n_kv_heads > 0 && call->n_heads > 0 &&
           call->n_heads % call->n_kv_heads == 0 &&
           call->n_heads / call->n_kv_heads <= 16 * LINE_MOST_WARPS(call->head_size);
}

bool block_attention_valid(const struct call_block_attention *call) {
    return call->dtype == KERNEL_BF16 && heads_valid(call) && call->n_requests >= 0 &&
           call->q_stride % 8 == 0 && call->kv_stride % 8 == 0 && call->y_stride % 8 == 0 &&
           call->max_queries >= 0;
}

static cudaError_t block_line(const struct call_block_attention *call, bool compact,
                              cudaStream_t stream) {
    if (!block_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->cache_fp8) {
        return block_attention_fp8(call, compact, stream);
    }
    return by_head_size(call->head_size, [&](auto head) {
        constexpr int D = decltype(head)::SIZE;
        return line_attention<stored_keys<D>, D>(call, compact, stream);
    });
}

extern "C" cudaError_t kernel_block_attention_compact(const struct call_block_attention *call,
                                                      cudaStream_t stream) {
    return block_line(call, true, stream);
}

extern "C" cudaError_t kernel_block_attention_line(const struct call_block_attention *call,
                                                   cudaStream_t stream) {
    bool compact;
    const cudaError_t status = wants_compact(&compact);
    return status == cudaSuccess ? block_line(call, compact, stream) : status;
}

extern "C" cudaError_t kernel_block_attention(const struct call_block_attention *call,
                                              cudaStream_t stream) {
    const cudaError_t few = kernel_block_attention_few(call, stream);
    return few == cudaErrorNotSupported ? kernel_block_attention_line(call, stream) : few;
}

/* ---- over pages ---- */

bool paged_attention_valid(const struct call_paged_attention *call) {
    const int rows = call->page_rows;
    return call->dtype == KERNEL_BF16 && heads_valid(call) && call->local_window == 0 &&
           call->n_requests >= 0 && rows >= 4 && rows <= 256 && (rows & (rows - 1)) == 0 &&
           call->q_stride % 8 == 0 && call->kv_stride % (call->cache_fp8 ? 4 : 8) == 0 &&
           call->y_stride % 8 == 0 && call->max_queries >= 0 &&
           call->max_extent <= (int64_t)call->max_pages * rows &&
           !(call->before && call->cache_fp8);
}

static cudaError_t paged_line(const struct call_paged_attention *call, bool compact,
                              cudaStream_t stream) {
    if (!paged_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->cache_fp8) {
        return paged_attention_fp8(call, compact, stream);
    }
    if (call->before) {
        return paged_attention_checked(call, stream);
    }
    return by_head_size(call->head_size, [&](auto head) {
        return line_attention<paged_keys, decltype(head)::SIZE>(call, compact, stream);
    });
}

extern "C" cudaError_t kernel_paged_attention_compact(const struct call_paged_attention *call,
                                                      cudaStream_t stream) {
    return paged_line(call, true, stream);
}

extern "C" cudaError_t kernel_paged_attention_mma(const struct call_paged_attention *call,
                                                  cudaStream_t stream) {
    bool compact;
    const cudaError_t status = wants_compact(&compact);
    return status == cudaSuccess ? paged_line(call, compact, stream) : status;
}
