/* What the paths of the LM head share. */
#ifndef UNMASK_KERNELS_LINEAR_HEAD_CUH
#define UNMASK_KERNELS_LINEAR_HEAD_CUH

#include "kernels/device.cuh"
#include "kernels/kernels.h"

/* Part of a row's logits: the largest, the sum of exp(logit - largest), the largest one's token;
 * with statistics the largest but one, and the sum of (logit - largest) exp(logit - largest). */
template <bool STATISTICS> struct head_summary;
template <> struct head_summary<false> {
    float top, sum;
    int32_t token;
};
template <> struct head_summary<true> {
    float top, sum;
    int32_t token;
    float second, weighted;
};

/* (logit - top) exp(logit - top); an exponential of 0 has no logarithm to weigh. */
static __device__ __forceinline__ float head_weigh(float below, float exponential) {
    return exponential > 0 ? below * exponential : 0;
}

/* What a sum of weighted exponentials becomes when its top falls `below` another. */
static __device__ __forceinline__ float head_lower(float weighted, float sum, float below,
                                                   float scale) {
    return scale > 0 ? scale * (weighted + below * sum) : 0;
}

template <bool STATISTICS>
static __device__ __forceinline__ struct head_summary<STATISTICS>
summary_merge(const struct head_summary<STATISTICS> &a, const struct head_summary<STATISTICS> &b) {
    const bool b_wins = b.top > a.top || (b.top == a.top && b.token < a.token);
    struct head_summary<STATISTICS> c;
    c.top = b_wins ? b.top : a.top;
    c.token = b_wins ? b.token : a.token;
    const float of_a = __expf(a.top - c.top), of_b = __expf(b.top - c.top);
    c.sum = a.sum * of_a + b.sum * of_b;
    if constexpr (STATISTICS) {
        c.second = b_wins ? fmaxf(a.top, b.second) : fmaxf(b.top, a.second);
        c.weighted = head_lower(a.weighted, a.sum, a.top - c.top, of_a) +
                     head_lower(b.weighted, b.sum, b.top - c.top, of_b);
    }
    return c;
}

template <bool STATISTICS>
static __device__ __forceinline__ struct head_summary<STATISTICS>
warp_merge(struct head_summary<STATISTICS> s) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        struct head_summary<STATISTICS> other;
        other.top = __shfl_xor_sync(~0u, s.top, step);
        other.token = __shfl_xor_sync(~0u, s.token, step);
        other.sum = __shfl_xor_sync(~0u, s.sum, step);
        if constexpr (STATISTICS) {
            other.second = __shfl_xor_sync(~0u, s.second, step);
            other.weighted = __shfl_xor_sync(~0u, s.weighted, step);
        }
        s = summary_merge(s, other);
    }
    return s;
}

/* Lowest finite float instead of -infinity: the difference of two empty tops must be a number. */
static constexpr float HEAD_LOWEST = -3.4e38f;

template <bool STATISTICS>
static __device__ __forceinline__ struct head_summary<STATISTICS> summary_none() {
    struct head_summary<STATISTICS> s = {};
    s.top = HEAD_LOWEST;
    s.token = INT32_MAX;
    if constexpr (STATISTICS) {
        s.second = HEAD_LOWEST;
    }
    return s;
}

/* The largest logit of a lane's part of a row, whose others are made -inf; rounded: as bf16 has
   them. */
template <int TILE_TOKENS>
static __device__ __forceinline__ float row_top(float (&logit)[TILE_TOKENS / 2], int half,
                                                int n_tokens, bool rounded) {
    float top = -3.4e38f;
#pragma unroll
    for (int i = 0; i < TILE_TOKENS / 8; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float &x = logit[i * 4 + half * 2 + j];
            if (rounded) {
                x = __bfloat162float(__float2bfloat16_rn(x));
            }
            if (n_tokens < TILE_TOKENS) {
                x = i * 8 + j < n_tokens ? x : -INFINITY;
            }
            top = fmaxf(top, x);
        }
    }
    return top;
}

/* One of a lane's two rows in a tile of tokens as wgmma leaves it, of which n_tokens from the
 * lane's own first one on are tokens: what all four lanes of the row then know of it. */
template <int TILE_TOKENS, bool STATISTICS>
static __device__ __forceinline__ struct head_summary<STATISTICS>
row_summary(float (&logit)[TILE_TOKENS / 2], int half, int token, int n_tokens, bool rounded) {
    const float top = quad_max(row_top<TILE_TOKENS>(logit, half, n_tokens, rounded));
    int best = INT32_MAX;
    float sum = 0, weighted = 0;
    const float shift = top * 1.44269504088896341f;
#pragma unroll
    for (int i = TILE_TOKENS / 8 - 1; i >= 0; i--) {
#pragma unroll
        for (int j = 1; j >= 0; j--) {
            const float x = logit[i * 4 + half * 2 + j];
            best = x == top ? i * 8 + j : best;
            const float exponential = exp2_fast(x * 1.44269504088896341f - shift);
            sum += exponential;
            if constexpr (STATISTICS) {
                weighted += head_weigh(x - top, exponential);
            }
        }
    }
    sum = quad_sum(sum);
    best = best == INT32_MAX ? best : best + token;
    best = min(best, __shfl_xor_sync(~0u, best, 1));
    best = min(best, __shfl_xor_sync(~0u, best, 2));
    [[maybe_unused]] float second = HEAD_LOWEST;
    if constexpr (STATISTICS) {
        weighted = quad_sum(weighted);
#pragma unroll
        for (int i = 0; i < TILE_TOKENS / 8; i++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float x = logit[i * 4 + half * 2 + j];
                second = token + i * 8 + j != best ? fmaxf(second, x) : second;
            }
        }
        second = quad_max(second);
    }
    struct head_summary<STATISTICS> summary;
    summary.top = top;
    summary.sum = sum;
    summary.token = best;
    if constexpr (STATISTICS) {
        summary.second = second;
        summary.weighted = weighted;
    }
    return summary;
}

/* Where a row's results go; the statistics' are read where there are any; logit may be NULL. */
struct head_results {
    int32_t *token;
    float *confidence, *margin, *entropy, *logit;
};

template <bool STATISTICS>
static __device__ __forceinline__ void summary_store(const struct head_summary<STATISTICS> &s,
                                                     const struct head_results &out, int64_t row) {
    out.confidence[row] = 1.0f / s.sum;
    if (out.logit) {
        out.logit[row] = s.top;
    }
    if constexpr (STATISTICS) {
        out.margin[row] = (1.0f - __expf(s.second - s.top)) / s.sum;
        out.entropy[row] = s.weighted / s.sum - logf(s.sum);
    }
}

/* Merges each row's n_parts summaries into its results. */
template <bool STATISTICS>
cudaError_t head_merge(const struct head_summary<STATISTICS> *summaries, int n_parts,
                       const struct head_results &out, int n_rows, cudaStream_t stream);

/* The results of a call from its row `row` on. */
static inline struct head_results head_results_at(const struct call_head *call, int row) {
    struct head_results out = {call->token + row, call->confidence + row, nullptr, nullptr,
                               call->logit ? call->logit + row : nullptr};
    if (call->margin) {
        out.margin = call->margin + row;
        out.entropy = call->entropy + row;
    }
    return out;
}

/* The sm_90a path, for any number of rows; summaries go to the call's scratch. */
cudaError_t head_wgmma(const struct call_head *call, int64_t scratch_bytes, cudaStream_t stream);

#endif
