/* RMS norm with the residual addition before it. One row a block, held in registers. */
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"

template <int VECTORS>
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
    float squares = 0;
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
            squares += a[j] * a[j];
        }
    }
    squares = warp_sum(squares);
    if (blockDim.x > 32) {
        if (threadIdx.x % 32 == 0) {
            partial[threadIdx.x / 32] = squares;
        }
        __syncthreads();
        squares = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : 0.0f;
        squares = warp_sum(squares);
    }
    const float scale = rsqrtf(squares / call.n_channels + call.epsilon);
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
            bf16x8_store(call.y, y_row + vector * 8, bf16x8_from_float(a));
        }
    }
}

extern "C" cudaError_t kernel_norm(const struct call_norm *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0 || call->n_channels > 32768) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows == 0) {
        return cudaSuccess;
    }
    const struct block_shape shape =
        norm_shape_of(call->n_rows, call->n_channels, call->residual, call->invariant);
    const dim3 grid((unsigned)call->n_rows), block((unsigned)shape.threads);
    switch (shape.each) {
    case 1:
        launch(norm_kernel<1>, grid, block, 0, stream, *call);
        break;
    case 2:
        launch(norm_kernel<2>, grid, block, 0, stream, *call);
        break;
    case 4:
        launch(norm_kernel<4>, grid, block, 0, stream, *call);
        break;
    default:
        launch(norm_kernel<8>, grid, block, 0, stream, *call);
    }
    return cudaGetLastError();
}
