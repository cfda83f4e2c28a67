/* Which rows of each request are committed this step: one block a request. Both rules are a
 * choice of the k most confident rows; the threshold rule first counts its k. */
#include "kernels/kernels.h"
#include "kernels/top.cuh"

template <int THREADS, int KEYS>
static __global__ void __launch_bounds__(THREADS) decode_kernel(const struct call_decode call) {
    __shared__ uint32_t buffer[2][3][32];
    const int start = call.start[blockIdx.x], n_rows = call.start[blockIdx.x + 1] - start;
    if (n_rows <= 0) {
        return;
    }
    uint32_t key[KEYS], n_sure[3] = {0, 0, 0};
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int row = top_index<KEYS>(i);
        key[i] = 0;
        if (row < n_rows) {
            const float confidence = call.confidence[start + row];
            key[i] = top_key(confidence);
            n_sure[0] += confidence >= call.threshold;
            call.committed[start + row] = 0;
        }
    }
    uint32_t k;
    if (call.take) {
        const int take = call.take[blockIdx.x];
        k = (uint32_t)(take < 0 ? 0 : take < n_rows ? take : n_rows);
    } else {
        block_sum<THREADS, KEYS>(n_sure, buffer, 0);
        k = n_sure[0] > 0 ? n_sure[0] : 1;
        __syncthreads();
    }
    if (k == 0) {
        return;
    }
    const uint32_t threshold = top_threshold<THREADS>(key, k, buffer);
    top_visit<THREADS>(key, k, threshold, buffer, [&](int i, uint32_t) {
        const int row = start + top_index<KEYS>(i);
        call.committed[row] = 1;
        if (call.canvas) {
            call.canvas[call.position[row]] = call.token[row];
        }
    });
}

extern "C" cudaError_t kernel_decode(const struct call_decode *call, cudaStream_t stream) {
    if (call->n_requests < 0 || call->max_rows < 0 || call->max_rows > 65536) {
        return cudaErrorInvalidValue;
    }
    const unsigned n = (unsigned)call->n_requests;
    if (n == 0 || call->max_rows == 0) {
        return cudaSuccess;
    }
    if (call->max_rows <= 128) {
        decode_kernel<32, 4><<<n, 32, 0, stream>>>(*call);
    } else if (call->max_rows <= 4096) {
        decode_kernel<1024, 4><<<n, 1024, 0, stream>>>(*call);
    } else {
        decode_kernel<1024, 64><<<n, 1024, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}
