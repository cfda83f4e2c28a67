/* RMS norm with the residual addition before it, and with what products read in fp8 after it. One
 * row a block, held in registers. */
#include "kernels/fp8.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"

enum { SHORT_GROUP = 128 }; /* of neighbouring lanes */

/* The sum of a block's threads' numbers, or the largest, of none below zero. A thread's further
 * numbers are those of as many further warps: the order of the sum is that of a larger block. */
template <bool LARGEST, int EACH>
static __device__ __forceinline__ float of_block(float (&x)[EACH], float (&of_warp)[32]) {
    auto of_lanes = [](float own) { return LARGEST ? lanes_max<32>(own) : warp_sum(own); };
    const int n_warps = blockDim.x / 32;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        x[i] = of_lanes(x[i]);
    }
    if (n_warps * EACH == 1) {
        return x[0];
    }
    if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            of_warp[i * n_warps + threadIdx.x / 32] = x[i];
        }
    }
    __syncthreads();
    return of_lanes(threadIdx.x % 32 < n_warps * EACH ? of_warp[threadIdx.x % 32] : 0.0f);
}

/* The block's row, of which a thread holds x, as a row of fp8: by a scale for each SHORT_GROUP
 * numbers, or by one in all. */
template <int VECTORS>
static __device__ __forceinline__ void norm_codes(const struct call_norm &call,
                                                  const struct bf16x8 (&x)[VECTORS]) {
    __shared__ float of_warp[32];
    constexpr int LANES = SHORT_GROUP / 8;
    const int n_vectors = call.n_channels / 8;
    const bool whole = call.group != SHORT_GROUP;
    uint8_t *row = static_cast<uint8_t *>(call.codes) +
                   blockIdx.x * fp8_row_bytes(call.n_channels, call.group);
    float *scales = reinterpret_cast<float *>(row + call.n_channels);
    float most[VECTORS], largest[1] = {0};
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        most[i] = i * blockDim.x + threadIdx.x < n_vectors ? largest_of(x[i]) : 0;
        largest[0] = fmaxf(largest[0], most[i]);
    }
    if (whole) {
        largest[0] = of_block<true>(largest, of_warp);
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int vector = i * blockDim.x + threadIdx.x;
        const float of_group = whole ? largest[0] : lanes_max<LANES>(most[i]);
        const struct divisor by = divisor_of(e4m3_scale(of_group));
        if (vector >= n_vectors) {
            continue;
        }
        *reinterpret_cast<uint2 *>(row + vector * 8) = codes_of(x[i], by);
        if (whole ? vector == 0 : vector % LANES == 0) {
            scales[whole ? 0 : vector / LANES] = by.scale;
        }
    }
}

/* PARTS: of a row, the larger block's (of_block). */
template <int VECTORS, bool CODES, int PARTS>
static __global__ void __launch_bounds__(NORM_MOST_THREADS)
    norm_kernel(const struct call_norm call) {
    __shared__ float partial[32];
    const int64_t y_row = (int64_t)blockIdx.x * call.n_channels;
    const int n_vectors = call.n_channels / 8;
    struct bf16x8 x[VECTORS], r[VECTORS], weight[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int vector = i * blockDim.x + threadIdx.x;
        if (vector < n_vectors) {
            weight[i] = bf16x8_load(call.weight, vector * 8);
        }
    }
    dependencies_wait();
    dependents_launch();
    const int64_t from = call.rows ? call.rows[blockIdx.x] : (int64_t)blockIdx.x;
    const int64_t x_row = from * call.n_channels;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int vector = i * blockDim.x + threadIdx.x;
        if (vector < n_vectors) {
            x[i] = bf16x8_load(call.x, x_row + vector * 8);
            if (call.residual) {
                r[i] = bf16x8_load(call.residual, x_row + vector * 8);
            }
        }
    }
    float squares[PARTS] = {};
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int vector = i * blockDim.x + threadIdx.x;
        if (vector >= n_vectors) {
            continue;
        }
        float a[8];
        bf16x8_to_float(x[i], a);
        if (call.residual) {
            float b[8];
            bf16x8_to_float(r[i], b);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                a[j] += b[j];
            }
            x[i] = bf16x8_from_float(a);
            bf16x8_to_float(x[i], a);
            if (!call.rows) {
                bf16x8_store(call.residual, x_row + vector * 8, x[i]);
            }
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            squares[i % PARTS] += a[j] * a[j];
        }
    }
    const float scale = rsqrtf(of_block<false>(squares, partial) / call.n_channels + call.epsilon);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int vector = i * blockDim.x + threadIdx.x;
        if (vector < n_vectors) {
            float a[8], w[8];
            bf16x8_to_float(x[i], a);
            bf16x8_to_float(weight[i], w);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                a[j] = a[j] * scale * w[j];
            }
            x[i] = bf16x8_from_float(a);
            if (!CODES || call.y) {
                bf16x8_store(call.y, y_row + vector * 8, x[i]);
            }
        }
    }
    if constexpr (CODES) {
        norm_codes<VECTORS>(call, x);
    }
}

template <int VECTORS, int PARTS>
static void norm_launch(const struct call_norm &call, int threads, cudaStream_t stream) {
    auto kernel = norm_kernel<VECTORS, true, PARTS>;
    if constexpr (PARTS == 1) {
        kernel = call.codes ? kernel : norm_kernel<VECTORS, false, PARTS>;
    }
    launch(kernel, dim3((unsigned)call.n_rows), dim3((unsigned)threads), 0, stream, call);
}

extern "C" cudaError_t kernel_norm(const struct call_norm *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0 || call->n_channels > 32768 ||
        (call->codes && call->group != SHORT_GROUP && call->group < call->n_channels)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows == 0) {
        return cudaSuccess;
    }
    const struct block_shape shape =
        norm_shape_of(call->n_rows, call->n_channels, call->residual, call->invariant);
    const int parts = norm_parts_of(shape, call->n_rows, call->codes);
    auto start = parts == 2        ? shape.each == 1 ? norm_launch<2, 2> : norm_launch<4, 2>
                        : shape.each == 1 ? norm_launch<1, 1>
                 : shape.each == 2 ? norm_launch<2, 1>
                 : shape.each == 4 ? norm_launch<4, 1>
                                   : norm_launch<8, 1>;
    start(*call, shape.threads / parts, stream);
    return cudaGetLastError();
}
