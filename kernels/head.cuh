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

/* Merges each row's n_parts summaries into its token and confidence. */
cudaError_t head_merge(const struct head_summary *summaries, int n_parts, int32_t *token,
                       float *confidence, int n_rows, cudaStream_t stream);

/* The sm_90a path, for any number of rows; summaries go to the call's scratch. */
cudaError_t head_wgmma(const struct call_head *call, int64_t scratch_bytes, cudaStream_t stream);

#endif
