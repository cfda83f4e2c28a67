/* What dLLM-Cache does with rows: how much their values changed, those that changed most, and what
 * is kept of sublayers' outputs. Passes over memory but for the choice, which is one block a
 * request. */
#include "kernels/decode/top.cuh"
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"
#include "kernels/rules/change.h"

enum { MAX_COMPARED = 65536 };

/* A warp has a row: its cached values are read, compared and replaced in one pass. */
static __global__ void __launch_bounds__(SIMILARITY_THREADS)
    similarity_kernel(const struct call_similarity call) {
    dependencies_wait();
    dependents_launch();
    const int r = blockIdx.y, lane = threadIdx.x % 32;
    const int i = blockIdx.x * (SIMILARITY_THREADS / 32) + threadIdx.x / 32;
    const int first = call.compared_start[r], n = call.compared_start[r + 1] - first;
    if (i >= n) {
        return;
    }
    float sums[CHANGE_SUMS] = {0, 0, 0};
    if (i >= call.given[r]) {
        const int size = call.head_size, width = call.n_kv_heads * size;
        const int64_t kept = call.kept[r], from = (int64_t)(call.value_start[r] + i) * width;
        const int64_t values =
            call.cache_start[r] + kept * width + (int64_t)(call.run_first[r] + i) * size;
        for (int c = lane * 8; c < width; c += 32 * 8) {
            const int64_t to = values + (int64_t)(c / size) * kept * size + c % size;
            float is[8], was[8];
            bf16x8_to_float(bf16x8_load(call.values, from + c), is);
            bf16x8_to_float(bf16x8_load(call.cache, to), was);
            if (call.bias) {
                float bias[8];
                bf16x8_to_float(bf16x8_load(call.bias, c), bias);
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    is[k] += bias[k];
                }
            }
            const struct bf16x8 rounded = bf16x8_from_float(is);
            bf16x8_store(call.cache, to, rounded);
            bf16x8_to_float(rounded, is);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const float by = is[k] - was[k];
                sums[0] += by * by;
                sums[1] += by * (is[k] + was[k]);
                sums[2] += was[k] * was[k];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < CHANGE_SUMS; k++) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            sums[k] += __shfl_xor_sync(~0u, sums[k], step);
        }
        if (lane == k) {
            call.sums[(int64_t)(first + i) * CHANGE_SUMS + k] = sums[k];
        }
    }
}

static __device__ __forceinline__ void pick_row(const struct call_pick &call, int r, int query,
                                                int i) {
    const int position = call.run_first[r] + i;
    call.positions[query] = position;
    call.value_rows[query] = call.value_start[r] + i;
    call.stream_rows[query] = call.stream_start[r] + position;
}

template <int THREADS, int KEYS>
static __global__ void __launch_bounds__(THREADS) pick_kernel(const struct call_pick call) {
    dependencies_wait();
    dependents_launch();
    __shared__ uint32_t buffer[2][3][32];
    const int r = blockIdx.x, start = call.start[r], given = call.given[r];
    const int chosen = call.start[r + 1] - start - given;
    for (int i = threadIdx.x; i < given; i += THREADS) {
        pick_row(call, r, start + i, i);
    }
    if (chosen <= 0) {
        return;
    }
    const int n = call.compared_start[r + 1] - call.compared_start[r] - given;
    const float *sums = call.sums + (int64_t)(call.compared_start[r] + given) * CHANGE_SUMS;
    uint32_t key[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int at = top_index<KEYS>(i);
        key[i] = at < n ? top_key(change_of(sums + (int64_t)at * CHANGE_SUMS)) : 0;
    }
    const uint32_t threshold = top_threshold<THREADS>(key, (uint32_t)chosen, buffer);
    top_visit<THREADS>(key, (uint32_t)chosen, threshold, buffer, [&](int i, uint32_t place) {
        pick_row(call, r, start + given + (int)place, given + top_index<KEYS>(i));
    });
}

static __global__ void __launch_bounds__(FEATURE_THREADS)
    keep_feature_kernel(const struct call_keep_feature call) {
    dependencies_wait();
    dependents_launch();
    const int64_t t = blockIdx.x, r = call.owner[t];
    const int64_t to =
        call.cache_start[r] + call.kept[r] * call.before + (int64_t)call.rows[t] * call.n_channels;
#pragma unroll 4
    for (int c = threadIdx.x * 8; c < call.n_channels; c += FEATURE_THREADS * 8) {
        bf16x8_store(call.cache, to + c, bf16x8_load(call.x, t * call.n_channels + c));
    }
}

static __global__ void __launch_bounds__(FEATURE_THREADS)
    add_feature_kernel(const struct call_add_feature call) {
    dependencies_wait();
    dependents_launch();
    const int64_t t = blockIdx.x, r = call.owner[t], to = t * call.n_channels;
    const int64_t from =
        call.cache_start[r] + call.kept[r] * call.before + (int64_t)call.rows[t] * call.n_channels;
#pragma unroll 2
    for (int c = threadIdx.x * 8; c < call.n_channels; c += FEATURE_THREADS * 8) {
        float x[8], y[8];
        bf16x8_to_float(bf16x8_load(call.cache, from + c), x);
        bf16x8_to_float(bf16x8_load(call.y, to + c), y);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[i] += x[i];
        }
        bf16x8_store(call.y, to + c, bf16x8_from_float(y));
    }
}

extern "C" cudaError_t kernel_similarity(const struct call_similarity *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_requests < 0 || call->n_requests > 65535 ||
        call->n_kv_heads <= 0 || call->head_size <= 0 || call->head_size % 8 != 0 ||
        call->max_compared < 0 || call->max_compared > MAX_COMPARED) {
        return cudaErrorInvalidValue;
    }
    constexpr unsigned ROWS = SIMILARITY_THREADS / 32;
    const unsigned n = (unsigned)call->max_compared;
    if (n > 0 && call->n_requests > 0) {
        launch(similarity_kernel, dim3((n + ROWS - 1) / ROWS, (unsigned)call->n_requests),
               SIMILARITY_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_pick(const struct call_pick *call, cudaStream_t stream) {
    if (call->n_requests < 0 || call->max_compared < 0 || call->max_compared > MAX_COMPARED) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests > 0 && call->max_queries > 0) {
        const struct block_shape shape = top_shape_of(call->max_compared);
        auto kernel = shape.each == 4         ? pick_kernel<256, 4>
                      : shape.each == 64      ? pick_kernel<1024, 64>
                      : shape.threads == 1024 ? pick_kernel<1024, 16>
                                              : pick_kernel<256, 16>;
        launch(kernel, dim3((unsigned)call->n_requests), (unsigned)shape.threads, 0, stream, *call);
    }
    return cudaGetLastError();
}

static bool feature_valid(enum kernel_dtype dtype, int64_t before, int n_tokens, int n_channels) {
    return dtype == KERNEL_BF16 && before >= 0 && before % 8 == 0 && n_tokens >= 0 &&
           n_channels >= 0 && n_channels % 8 == 0;
}

extern "C" cudaError_t kernel_keep_feature(const struct call_keep_feature *call,
                                           cudaStream_t stream) {
    if (!feature_valid(call->dtype, call->before, call->n_tokens, call->n_channels)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_tokens > 0) {
        launch(keep_feature_kernel, dim3((unsigned)call->n_tokens), FEATURE_THREADS, 0, stream,
               *call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_add_feature(const struct call_add_feature *call,
                                          cudaStream_t stream) {
    if (!feature_valid(call->dtype, call->before, call->n_tokens, call->n_channels)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_tokens > 0) {
        launch(add_feature_kernel, dim3((unsigned)call->n_tokens), FEATURE_THREADS, 0, stream,
               *call);
    }
    return cudaGetLastError();
}
