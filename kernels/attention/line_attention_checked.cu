/* Attention over pages of which some queries leave rows out, as masks do that check drafts: one
 * shape of tiles for all calls, since such passes are few. */
#include "kernels/attention/line_attention.cuh"

cudaError_t paged_attention_checked(const struct call_paged_attention *call, cudaStream_t stream) {
    int n_sms;
    const cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess || call->n_requests == 0 || call->max_queries == 0) {
        return status;
    }
    return by_head_size(call->head_size, [&](auto head) {
        constexpr int D = decltype(head)::SIZE, MOST = LINE_MOST_WARPS(D);
        return call->invariant
                   ? line_start<checked_keys, D, MOST, 1, 32, true>(call, n_sms, stream)
                   : line_start<checked_keys, D, MOST, 1, 32, false>(call, n_sms, stream);
    });
}
