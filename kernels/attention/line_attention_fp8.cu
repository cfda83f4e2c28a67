/* line_attention.cuh over caches in fp8. */
#include "kernels/attention/line_attention.cuh"

cudaError_t block_attention_fp8(const struct call_block_attention *call, bool compact,
                                cudaStream_t stream) {
    return by_head_size(call->head_size, [&](auto head) {
        constexpr int D = decltype(head)::SIZE;
        return line_attention<stored_fp8_keys<D>, D>(call, compact, stream);
    });
}

cudaError_t paged_attention_fp8(const struct call_paged_attention *call, bool compact,
                                cudaStream_t stream) {
    return by_head_size(call->head_size, [&](auto head) {
        constexpr int D = decltype(head)::SIZE;
        return line_attention<paged_fp8_keys<D>, D>(call, compact, stream);
    });
}
