/* The best token of each row of logits and its softmax probability: one block a row, one pass.
 * A thread's maximum rises rarely after its first elements, so that its place is searched, and its
 * sum of exponentials shrunk, only then. */
#include "kernels/linear/head.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum {
    SAMPLE_VECTORS = 4, /* loads in flight a thread */
};

static const float LOG2_E = 1.44269504088896341f;

/* Adds eight neighbouring logits, the first of them `token`'s, of which `peak` is the largest. */
template <bool STATISTICS>
static __device__ __forceinline__ void summary_add(struct head_summary<STATISTICS> &s,
                                                   const float (&x)[8], float peak, int token) {
    [[maybe_unused]] int best = -1;
    if (peak > s.top) {
        const float below = s.top - peak, scale = exp2_fast(below * LOG2_E);
        if constexpr (STATISTICS) {
            s.weighted = head_lower(s.weighted, s.sum, below, scale);
            s.second = s.top;
        }
        s.sum *= scale;
        s.top = peak;
        int first = 7;
#pragma unroll
        for (int j = 6; j >= 0; j--) {
            first = x[j] == peak ? j : first;
        }
        s.token = token + first;
        best = first;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float exponential = exp2_fast((x[j] - s.top) * LOG2_E);
        s.sum += exponential;
        if constexpr (STATISTICS) {
            s.weighted += head_weigh(x[j] - s.top, exponential);
            s.second = j != best ? fmaxf(s.second, x[j]) : s.second;
        }
    }
}

template <bool STATISTICS>
static __device__ __forceinline__ void summary_add_vector(struct head_summary<STATISTICS> &s,
                                                          const struct bf16x8 &v, int token) {
    const __nv_bfloat162 most =
        __hmax2(__hmax2(v.pair[0], v.pair[1]), __hmax2(v.pair[2], v.pair[3]));
    float x[8];
    bf16x8_to_float(v, x);
    summary_add(s, x, fmaxf(__low2float(most), __high2float(most)), token);
}

template <bool STATISTICS>
static __device__ __forceinline__ void summary_add_one(struct head_summary<STATISTICS> &s,
                                                       __nv_bfloat16 x, int token) {
    const float none = -INFINITY, logit = __bfloat162float(x);
    const float eight[8] = {logit, none, none, none, none, none, none, none};
    summary_add(s, eight, logit, token);
}

template <bool STATISTICS>
static __global__ void __launch_bounds__(SAMPLE_THREADS, 2)
    sample_kernel(const struct call_sample call) {
    dependencies_wait();
    dependents_launch();
    __shared__ struct head_summary<STATISTICS> of_warp[SAMPLE_THREADS / 32];
    const int n = call.n_vocab, thread = threadIdx.x;
    const __nv_bfloat16 *row =
        static_cast<const __nv_bfloat16 *>(call.logits) + (int64_t)blockIdx.x * n;
    /* A row may start and end between two aligned vectors. */
    const int misplaced = (int)(reinterpret_cast<uintptr_t>(row) / 2 % 8);
    const int lead = min(n, misplaced ? 8 - misplaced : 0), n_vectors = (n - lead) / 8;
    struct head_summary<STATISTICS> mine = summary_none<STATISTICS>();
    if (thread < lead) {
        summary_add_one(mine, row[thread], thread);
    }
    for (int base = thread; base < n_vectors; base += SAMPLE_THREADS * SAMPLE_VECTORS) {
        struct bf16x8 v[SAMPLE_VECTORS];
#pragma unroll
        for (int i = 0; i < SAMPLE_VECTORS; i++) {
            if (base + i * SAMPLE_THREADS < n_vectors) {
                v[i] = bf16x8_load(row, lead + (base + i * SAMPLE_THREADS) * 8);
            }
        }
#pragma unroll
        for (int i = 0; i < SAMPLE_VECTORS; i++) {
            if (base + i * SAMPLE_THREADS < n_vectors) {
                summary_add_vector(mine, v[i], lead + (base + i * SAMPLE_THREADS) * 8);
            }
        }
    }
    const int tail = lead + n_vectors * 8 + thread;
    if (tail < n) {
        summary_add_one(mine, row[tail], tail);
    }
    mine = warp_merge(mine);
    if (thread % 32 == 0) {
        of_warp[thread / 32] = mine;
    }
    __syncthreads();
    if (thread < 32) {
        mine =
            warp_merge(thread < SAMPLE_THREADS / 32 ? of_warp[thread] : summary_none<STATISTICS>());
        if (thread == 0) { /* a row of NaN or -infinity has no best token: 0, with confidence NaN */
            const bool found = mine.token < n;
            mine.sum = found ? mine.sum : __int_as_float(0x7fc00000);
            call.token[blockIdx.x] = found ? mine.token : 0;
            summary_store(mine,
                          {call.token, call.confidence, call.margin, call.entropy, call.logit},
                          blockIdx.x);
        }
    }
}

extern "C" cudaError_t kernel_sample(const struct call_sample *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_vocab <= 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        const unsigned n = (unsigned)call->n_rows;
        if (call->margin) {
            launch(sample_kernel<true>, n, SAMPLE_THREADS, 0, stream, *call);
        } else {
            launch(sample_kernel<false>, n, SAMPLE_THREADS, 0, stream, *call);
        }
    }
    return cudaGetLastError();
}
