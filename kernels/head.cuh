/* What the paths of the LM head share. */
#ifndef UNMASK_KERNELS_HEAD_CUH
#define UNMASK_KERNELS_HEAD_CUH

#include "kernels/device.cuh"
#include "kernels/kernels.h"

/* Part of a row's logits: the largest, the sum of exp(logit - largest), the largest one's token. */
struct head_summary {
    float top, sum;
    int32_t token;
};

static __device__ __forceinline__ struct head_summary summary_merge(const struct head_summary &a,
                                                                    const struct head_summary &b) {
    const bool b_wins = b.top > a.top || (b.top == a.top && b.token < a.token);
    struct head_summary c;
    c.top = b_wins ? b.top : a.top;
    c.token = b_wins ? b.token : a.token;
    c.sum = a.sum * __expf(a.top - c.top) + b.sum * __expf(b.top - c.top);
    return c;
}

static __device__ __forceinline__ struct head_summary warp_merge(struct head_summary s) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        struct head_summary other;
        other.top = __shfl_xor_sync(~0u, s.top, step);
        other.token = __shfl_xor_sync(~0u, s.token, step);
        other.sum = __shfl_xor_sync(~0u, s.sum, step);
        s = summary_merge(s, other);
    }
    return s;
}

/* Lowest finite float instead of -infinity: the difference of two empty tops must be a number. */
static __device__ __forceinline__ struct head_summary summary_none() {
    struct head_summary s = {-3.4e38f, 0.0f, INT32_MAX};
    return s;
}

/* Merges each row's n_parts summaries into its token, confidence and, unless that is NULL, logit.
 */
cudaError_t head_merge(const struct head_summary *summaries, int n_parts, int32_t *token,
                       float *confidence, float *logit, int n_rows, cudaStream_t stream);

/* The sm_90a path, for any number of rows; summaries go to the call's scratch. */
cudaError_t head_wgmma(const struct call_head *call, int64_t scratch_bytes, cudaStream_t stream);

#endif
