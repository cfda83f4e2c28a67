/* Rows of fp8: numbers that share a scale are held in registers between finding their largest and
 * dividing by it. The bytes are the reference's. */
#include <cuda_fp8.h>

#include "kernels/device.cuh"
#include "kernels/fp8.h"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum {
    SHORT_GROUP = 128, /* of 16 neighbouring lanes, 8 numbers each */
    LANES = SHORT_GROUP / 8,
    MOST_EACH = 8, /* vectors of 8 numbers that a thread holds of a long group */
};

static __device__ __forceinline__ float largest_of(const struct bf16x8 &v) {
    float x[8], most = 0;
    bf16x8_to_float(v, x);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        most = fmaxf(most, fabsf(x[i])); /* a NaN is left out */
    }
    return most;
}

static __device__ __forceinline__ float scale_of(float most) {
    const float scale = __fdiv_rn(most, (float)E4M3_MOST);
    return scale < 0x1p-126f ? 1 : scale;
}

static __device__ __forceinline__ void store_codes(const struct bf16x8 &v, float scale,
                                                   uint8_t *to) {
    float x[8];
    uint32_t pair[4];
    bf16x8_to_float(v, x);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 f = make_float2(__fdiv_rn(x[2 * i], scale), __fdiv_rn(x[2 * i + 1], scale));
        pair[i] = __nv_cvt_float2_to_fp8x2(f, __NV_SATFINITE, __NV_E4M3);
    }
    *reinterpret_cast<uint2 *>(to) = make_uint2(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16);
}

static __global__ void __launch_bounds__(QUANTISE_THREADS)
    quantise_short_kernel(const void *x, uint8_t *y, int64_t x_stride, int n_channels,
                          int64_t row_bytes, int n_groups, int64_t n_all) {
    dependencies_wait();
    dependents_launch();
    const int lane = threadIdx.x % LANES;
    const int64_t group = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / LANES;
    const int64_t row = group / n_groups;
    const int number = (int)(group % n_groups), channel = number * SHORT_GROUP + lane * 8;
    const bool exists = group < n_all && channel < n_channels;
    struct bf16x8 v = {};
    if (exists) {
        v = bf16x8_load(x, row * x_stride + channel);
    }
    float most = exists ? largest_of(v) : 0;
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    }
    const float scale = scale_of(most);
    if (exists) {
        uint8_t *to = y + row * row_bytes;
        store_codes(v, scale, to + channel);
        if (lane == 0) {
            *reinterpret_cast<float *>(to + n_channels + number * 4) = scale;
        }
    }
}

/* A block for each group of each row; what EACH vectors a thread do not hold is read twice. */
template <int EACH>
static __global__ void __launch_bounds__(QUANTISE_THREADS)
    quantise_long_kernel(const void *x, uint8_t *y, int64_t x_stride, int n_channels,
                         int64_t row_bytes, int group) {
    dependencies_wait();
    dependents_launch();
    __shared__ float of_warp[QUANTISE_THREADS / 32];
    const int64_t row = blockIdx.x, first = blockIdx.y * (int64_t)group;
    const int n = (int)min((int64_t)group, n_channels - first) / 8; /* vectors */
    const int64_t from = row * x_stride + first;
    struct bf16x8 v[EACH];
    float most = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = i * QUANTISE_THREADS + (int)threadIdx.x;
        if (at < n) {
            v[i] = bf16x8_load(x, from + at * 8);
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (i * QUANTISE_THREADS + (int)threadIdx.x < n) {
            most = fmaxf(most, largest_of(v[i]));
        }
    }
    for (int at = EACH * QUANTISE_THREADS + (int)threadIdx.x; at < n; at += QUANTISE_THREADS) {
        most = fmaxf(most, largest_of(bf16x8_load(x, from + at * 8)));
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = most;
    }
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < QUANTISE_THREADS / 32; warp++) {
        most = fmaxf(most, of_warp[warp]);
    }
    const float scale = scale_of(most);
    uint8_t *to = y + row * row_bytes;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = i * QUANTISE_THREADS + (int)threadIdx.x;
        if (at < n) {
            store_codes(v[i], scale, to + first + at * 8);
        }
    }
    for (int at = EACH * QUANTISE_THREADS + (int)threadIdx.x; at < n; at += QUANTISE_THREADS) {
        store_codes(bf16x8_load(x, from + at * 8), scale, to + first + at * 8);
    }
    if (threadIdx.x == 0) {
        *reinterpret_cast<float *>(to + n_channels + blockIdx.y * 4) = scale;
    }
}

extern "C" cudaError_t kernel_quantise(const struct call_quantise *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0 || call->group <= 0 || call->x_stride % 8 != 0 ||
        (call->group < call->n_channels && call->group % 8 != 0)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows == 0) {
        return cudaSuccess;
    }
    const int64_t row_bytes = fp8_row_bytes(call->n_channels, call->group);
    const int64_t n_groups = fp8_groups(call->n_channels, call->group);
    uint8_t *y = static_cast<uint8_t *>(call->y);
    if (call->group == SHORT_GROUP) {
        const int64_t n_all = call->n_rows * n_groups, each = QUANTISE_THREADS / LANES;
        launch(quantise_short_kernel, (unsigned)((n_all + each - 1) / each), QUANTISE_THREADS, 0,
               stream, call->x, y, call->x_stride, (int)call->n_channels, row_bytes, (int)n_groups,
               n_all);
        return cudaGetLastError();
    }
    const int n = (call->group < call->n_channels ? call->group : call->n_channels) / 8;
    auto kernel = n <= QUANTISE_THREADS       ? quantise_long_kernel<1>
                  : n <= 2 * QUANTISE_THREADS ? quantise_long_kernel<2>
                  : n <= 4 * QUANTISE_THREADS ? quantise_long_kernel<4>
                                              : quantise_long_kernel<MOST_EACH>;
    launch(kernel, dim3((unsigned)call->n_rows, (unsigned)n_groups), QUANTISE_THREADS, 0, stream,
           call->x, y, call->x_stride, (int)call->n_channels, row_bytes, (int)call->group);
    return cudaGetLastError();
}
