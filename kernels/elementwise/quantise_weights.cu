/* Weights to fp8: a block for each scale, which reads its numbers twice, from the cache the second
 * time. */
#include "kernels/fp8.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

static __device__ __forceinline__ float number_at(const float *x, int64_t i) {
    return x[i];
}

static __device__ __forceinline__ float number_at(const __nv_bfloat16 *x, int64_t i) {
    return __bfloat162float(x[i]);
}

template <typename T>
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    quantise_weights_kernel(const struct call_quantise_weights call) {
    dependencies_wait();
    __shared__ float of_warp[ELEMENTWISE_THREADS / 32];
    const T *x = static_cast<const T *>(call.x);
    const int k = call.n_channels, first = blockIdx.x * call.w_columns;
    const int n = min(call.w_columns, k - first), row = blockIdx.y * call.w_rows;
    const int past = min(row + call.w_rows, call.n_rows);
    float most = 0;
    for (int64_t at = (int64_t)row * k + first; at < (int64_t)past * k; at += k) {
        for (int i = threadIdx.x; i < n; i += ELEMENTWISE_THREADS) {
            most = fmaxf(most, fabsf(number_at(x, at + i)));
        }
    }
    most = lanes_max<32>(most);
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = most;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ELEMENTWISE_THREADS / 32; i++) {
        most = fmaxf(most, of_warp[i]);
    }
    const float scale = e4m3_scale(most);
    for (int64_t at = (int64_t)row * k + first; at < (int64_t)past * k; at += k) {
        for (int i = threadIdx.x; i < n; i += ELEMENTWISE_THREADS) {
            call.codes[at + i] = e4m3_of(__fdiv_rn(number_at(x, at + i), scale));
        }
    }
    if (threadIdx.x == 0) {
        call.scales[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = scale;
    }
}

extern "C" cudaError_t kernel_quantise_weights(const struct call_quantise_weights *call,
                                               cudaStream_t stream) {
    if (call->n_rows < 0 || call->n_channels <= 0 || call->w_rows <= 0 || call->w_columns <= 0) {
        return cudaErrorInvalidValue;
    }
    const int64_t n_high = fp8_groups(call->n_rows, call->w_rows);
    if (n_high > 65535) {
        return cudaErrorInvalidValue;
    }
    if (n_high > 0) {
        const dim3 grid((unsigned)fp8_groups(call->n_channels, call->w_columns), (unsigned)n_high);
        launch(call->dtype == KERNEL_F32 ? quantise_weights_kernel<float>
                                         : quantise_weights_kernel<__nv_bfloat16>,
               grid, ELEMENTWISE_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}
