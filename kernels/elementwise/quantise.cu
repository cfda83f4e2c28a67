/* Rows of fp8: numbers that share a scale are held in registers between finding their largest and
 * dividing by it. The bytes are the reference's. */
#include "kernels/fp8.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum {
    SHORT_GROUP = 128, /* of neighbouring lanes */
    MANY = 1 << 15,    /* groups from which on a thread has several */
    MOST_EACH = 8,     /* vectors of 8 numbers that a thread holds of a long group */
};

static __device__ __forceinline__ void store_codes(const struct bf16x8 &v, const struct divisor &by,
                                                   uint8_t *to) {
    *reinterpret_cast<uint2 *>(to) = codes_of(v, by);
}

/* Lanes of one group of SHORT_GROUP numbers, each with `EACH` vectors of 8 of them side by side;
 * a thread has GROUPS groups, a grid apart. */
template <int EACH, int GROUPS>
static __global__ void __launch_bounds__(QUANTISE_THREADS)
    quantise_short_kernel(const void *x, uint8_t *y, int64_t x_stride, int n_channels,
                          int64_t row_bytes, int n_groups, int64_t n_all) {
    dependencies_wait();
    dependents_launch();
    constexpr int LANES = SHORT_GROUP / 8 / EACH;
    const int lane = threadIdx.x % LANES;
    const int64_t first = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / LANES;
    const int64_t apart = gridDim.x * (int64_t)blockDim.x / LANES;
    struct bf16x8 v[GROUPS][EACH];
    int64_t row[GROUPS];
    int number[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const int64_t group = first + g * apart;
        row[g] = group < n_all ? group / n_groups : -1;
        number[g] = (int)(group - row[g] * n_groups);
        const int channel = number[g] * SHORT_GROUP + lane * 8 * EACH;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            v[g][i] = {};
            if (row[g] >= 0 && channel + i * 8 < n_channels) {
                v[g][i] = bf16x8_load(x, row[g] * x_stride + channel + i * 8);
            }
        }
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        float most = largest_of(v[g][0]);
        if (EACH > 1) {
            most = fmaxf(most, largest_of(v[g][EACH - 1]));
        }
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        }
        const struct divisor by = divisor_of(e4m3_scale(most));
        const int channel = number[g] * SHORT_GROUP + lane * 8 * EACH;
        if (row[g] < 0 || channel >= n_channels) {
            continue;
        }
        uint8_t *to = y + row[g] * row_bytes;
        if (EACH == 2) {
            const uint2 low = codes_of(v[g][0], by), high = codes_of(v[g][EACH - 1], by);
            *reinterpret_cast<uint4 *>(to + channel) = make_uint4(low.x, low.y, high.x, high.y);
        } else {
            store_codes(v[g][0], by, to + channel);
        }
        if (lane == 0) {
            *reinterpret_cast<float *>(to + n_channels + number[g] * 4) = by.scale;
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
    const struct divisor by = divisor_of(e4m3_scale(most));
    uint8_t *to = y + row * row_bytes;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = i * QUANTISE_THREADS + (int)threadIdx.x;
        if (at < n) {
            store_codes(v[i], by, to + first + at * 8);
        }
    }
    for (int at = EACH * QUANTISE_THREADS + (int)threadIdx.x; at < n; at += QUANTISE_THREADS) {
        store_codes(bf16x8_load(x, from + at * 8), by, to + first + at * 8);
    }
    if (threadIdx.x == 0) {
        *reinterpret_cast<float *>(to + n_channels + blockIdx.y * 4) = by.scale;
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
        const int64_t n_all = call->n_rows * n_groups;
        const bool pairs = call->n_channels % 16 == 0, many = n_all >= MANY;
        const int64_t each =
            QUANTISE_THREADS / (SHORT_GROUP / 8) * (pairs ? 2 : 1) * (many ? 2 : 1);
        auto kernel = pairs ? (many ? quantise_short_kernel<2, 2> : quantise_short_kernel<2, 1>)
                            : (many ? quantise_short_kernel<1, 2> : quantise_short_kernel<1, 1>);
        launch(kernel, (unsigned)((n_all + each - 1) / each), QUANTISE_THREADS, 0, stream, call->x,
               y, call->x_stride, (int)call->n_channels, row_bytes, (int)n_groups, n_all);
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
