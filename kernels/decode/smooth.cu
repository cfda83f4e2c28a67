/* Iteration smoothing: the softmax of rows of logits, embeddings that outlast a step, and the
 * numbers that change from one to the next. */
#include <float.h>

#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launches.h"
#include "kernels/rules/smooth.h"

enum {
    SOFTMAX_VECTORS = 4, /* loads in flight a thread */
};

static const float LOG2_E = 1.44269504088896341f;

/* The largest logit so far, and the sum of exponentials relative to it. A number that is none makes
 * the sum none; so does an infinite one. */
struct softmax_sum {
    float top, sum;
};

/* Powers of e, of numbers over a temperature: `factor` is LOG2_E over it. */
static __device__ __forceinline__ float softmax_power(float below, float factor) {
    return exp2_fast(below * factor);
}

static __device__ __forceinline__ void softmax_add(struct softmax_sum &s, float x, float factor) {
    if (x > s.top) {
        s.sum *= softmax_power(s.top - x, factor);
        s.top = x;
    }
    s.sum += softmax_power(x - s.top, factor);
}

static __device__ __forceinline__ void softmax_add_vector(struct softmax_sum &s,
                                                          const struct bf16x8 &v, float factor) {
    float x[8];
    bf16x8_to_float(v, x);
    float most = x[0];
#pragma unroll
    for (int j = 1; j < 8; j++) {
        most = fmaxf(most, x[j]);
    }
    if (most > s.top) {
        s.sum *= softmax_power(s.top - most, factor);
        s.top = most;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        s.sum += softmax_power(x[j] - s.top, factor);
    }
}

static __device__ __forceinline__ struct softmax_sum softmax_merge(struct softmax_sum s,
                                                                   float factor) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
        const float top = __shfl_xor_sync(~0u, s.top, lane);
        const float sum = __shfl_xor_sync(~0u, s.sum, lane);
        const float most = fmaxf(s.top, top);
        s.sum =
            s.sum * softmax_power(s.top - most, factor) + sum * softmax_power(top - most, factor);
        s.top = most;
    }
    return s;
}

/* The block's, for every thread. */
static __device__ __forceinline__ struct softmax_sum softmax_of_block(struct softmax_sum mine,
                                                                      float factor) {
    __shared__ struct softmax_sum of_warp[SOFTMAX_THREADS / 32];
    const int lane = threadIdx.x % 32;
    mine = softmax_merge(mine, factor);
    if (lane == 0) {
        of_warp[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    return softmax_merge(lane < SOFTMAX_THREADS / 32 ? of_warp[lane] : softmax_sum{-FLT_MAX, 0.0f},
                         factor);
}

/* A block a row, read twice; the second time it comes out of the L2 cache. */
static __global__ void __launch_bounds__(SOFTMAX_THREADS, 2)
    softmax_kernel(const struct call_softmax call) {
    const int n = call.n_vocab, thread = threadIdx.x;
    const __nv_bfloat16 *row =
        static_cast<const __nv_bfloat16 *>(call.logits) + (int64_t)blockIdx.x * n;
    __nv_bfloat16 *y = static_cast<__nv_bfloat16 *>(call.y) + (int64_t)blockIdx.x * n;
    /* A row may start and end between two aligned vectors; both arrays begin at one. */
    const int misplaced = (int)((int64_t)blockIdx.x * n % 8);
    const int lead = min(n, misplaced ? 8 - misplaced : 0), n_vectors = (n - lead) / 8;
    const int tail = lead + n_vectors * 8 + thread;
    const bool is_whole = call.top == nullptr;
    const float factor = call.by ? LOG2_E / call.by[blockIdx.x].temperature : LOG2_E;
    struct softmax_sum mine = {-FLT_MAX, 0.0f};
    if (is_whole && thread < lead) {
        softmax_add(mine, __bfloat162float(row[thread]), factor);
    }
    for (int base = is_whole ? thread : n_vectors; base < n_vectors;
         base += SOFTMAX_THREADS * SOFTMAX_VECTORS) {
        struct bf16x8 v[SOFTMAX_VECTORS];
#pragma unroll
        for (int i = 0; i < SOFTMAX_VECTORS; i++) {
            if (base + i * SOFTMAX_THREADS < n_vectors) {
                v[i] = bf16x8_load(row, lead + (base + i * SOFTMAX_THREADS) * 8);
            }
        }
#pragma unroll
        for (int i = 0; i < SOFTMAX_VECTORS; i++) {
            if (base + i * SOFTMAX_THREADS < n_vectors) {
                softmax_add_vector(mine, v[i], factor);
            }
        }
    }
    if (is_whole && tail < n) {
        softmax_add(mine, __bfloat162float(row[tail]), factor);
    }
    struct softmax_sum all = softmax_of_block(mine, factor);
    all.top = is_whole ? all.top : call.top[blockIdx.x];
    const float scale = is_whole ? 1.0f / all.sum : call.confidence[blockIdx.x];
    if (thread < lead) {
        y[thread] = __float2bfloat16(
            softmax_power(__bfloat162float(row[thread]) - all.top, factor) * scale);
    }
    for (int i = thread; i < n_vectors; i += SOFTMAX_THREADS) {
        float x[8];
        bf16x8_to_float(bf16x8_load(row, lead + i * 8), x);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            x[j] = softmax_power(x[j] - all.top, factor) * scale;
        }
        bf16x8_store(y, lead + i * 8, bf16x8_from_float(x));
    }
    if (tail < n) {
        y[tail] =
            __float2bfloat16(softmax_power(__bfloat162float(row[tail]) - all.top, factor) * scale);
    }
}

static __global__ void __launch_bounds__(EXPECTED_THREADS)
    keep_expected_kernel(const struct call_keep_expected call) {
    const int64_t row = blockIdx.x, place = call.places[row];
    if (place < 0) {
        return;
    }
    const float weight = (float)smooth_weight(call.weight_init, call.weight_growth,
                                              call.weight_most, (uint32_t)call.step[row]);
    for (int i = threadIdx.x * 8; i < call.n_channels; i += EXPECTED_THREADS * 8) {
        float x[8];
        bf16x8_to_float(bf16x8_load(call.x, row * call.n_channels + i), x);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            x[j] *= weight;
        }
        bf16x8_store(call.kept, place * call.n_channels + i, bf16x8_from_float(x));
    }
}

static __global__ void __launch_bounds__(EXPECTED_THREADS)
    add_expected_kernel(const struct call_add_expected call) {
    const int64_t token = blockIdx.x, place = call.places[token];
    if (place < 0 || call.canvas[call.at[token]] != call.mask_token) {
        return;
    }
    for (int i = threadIdx.x * 8; i < call.n_channels; i += EXPECTED_THREADS * 8) {
        const int64_t at = token * call.n_channels + i;
        float x[8], y[8];
        bf16x8_to_float(bf16x8_load(call.kept, place * call.n_channels + i), x);
        bf16x8_to_float(bf16x8_load(call.y, at), y);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            y[j] += x[j];
        }
        bf16x8_store(call.y, at, bf16x8_from_float(y));
    }
}

/* One block: thresholds are read off the steps before these are changed. */
static __global__ void __launch_bounds__(NEXT_STEP_THREADS)
    next_step_kernel(const struct call_next_step call) {
    for (int r = threadIdx.x; r < call.n_requests; r += NEXT_STEP_THREADS) {
        call.threshold[r] = smooth_threshold(call.threshold_decay,
                                             (uint32_t)call.step[call.first_row[r]], call.least[r]);
    }
    __syncthreads();
    for (int row = threadIdx.x; row < call.n_rows; row += NEXT_STEP_THREADS) {
        call.step[row]++;
    }
}

extern "C" cudaError_t kernel_softmax(const struct call_softmax *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_vocab <= 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        softmax_kernel<<<(unsigned)call->n_rows, SOFTMAX_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_keep_expected(const struct call_keep_expected *call,
                                            cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        keep_expected_kernel<<<(unsigned)call->n_rows, EXPECTED_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_add_expected(const struct call_add_expected *call,
                                           cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_tokens > 0) {
        add_expected_kernel<<<(unsigned)call->n_tokens, EXPECTED_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_next_step(const struct call_next_step *call, cudaStream_t stream) {
    if (call->n_rows < 0 || call->n_requests < 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        next_step_kernel<<<1, NEXT_STEP_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}
