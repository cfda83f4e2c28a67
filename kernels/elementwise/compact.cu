/* Rows gathered from several arrays at once: what an eviction leaves of a step. */
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

static __global__ void __launch_bounds__(COMPACT_THREADS)
    compact_kernel(const struct call_compact call) {
    dependencies_wait();
    dependents_launch();
    const int64_t i = blockIdx.x;
    const int a = blockIdx.y;
    if (call.n_rows && i >= *call.n_rows) {
        return;
    }
    const int64_t from = call.rows[i] * call.from_stride[a], to = i * call.to_stride[a];
#pragma unroll 4
    for (int c = threadIdx.x * 8; c < call.width[a]; c += COMPACT_THREADS * 8) {
        bf16x8_store(call.to[a], to + c, bf16x8_load(call.from[a], from + c));
    }
}

extern "C" cudaError_t kernel_compact(const struct call_compact *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_arrays < 0 || call->n_arrays > COMPACT_ARRAYS ||
        call->max_rows < 0) {
        return cudaErrorInvalidValue;
    }
    for (int a = 0; a < call->n_arrays; a++) {
        if (call->width[a] < 0 || call->width[a] % 8 != 0 || call->from_stride[a] % 8 != 0 ||
            call->to_stride[a] % 8 != 0) {
            return cudaErrorInvalidValue;
        }
    }
    if (call->max_rows > 0 && call->n_arrays > 0) {
        launch(compact_kernel, dim3((unsigned)call->max_rows, (unsigned)call->n_arrays),
               COMPACT_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}
