/* Which rows of each request are committed this step: one block a request. Both rules are a
 * choice of the k most confident candidates; the threshold rule first counts its k. */
#include "kernels/kernels.h"
#include "kernels/top.cuh"

template <int THREADS, int KEYS>
static __global__ void __launch_bounds__(THREADS) decode_kernel(const struct call_decode call) {
    __shared__ uint32_t buffer[2][3][32];
    const int first = call.first_row[blockIdx.x], n_rows = call.n_rows[blockIdx.x];
    /* Counted: candidates at or above the threshold; candidates. */
    uint32_t key[KEYS], n[3] = {0, 0, 0};
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int row = top_index<KEYS>(i);
        key[i] = 0;
        if (row < n_rows) {
            const float confidence = call.confidence[first + row];
            call.committed[first + row] = 0;
            if (!call.canvas || call.canvas[call.position[first + row]] == call.mask_token) {
                key[i] = top_key(confidence);
                n[0] += confidence >= call.threshold;
                n[1]++;
            }
        }
    }
    block_sum<THREADS, KEYS>(n, buffer, 0);
    const uint32_t n_sure = n[0], n_candidates = n[1];
    uint32_t k = n_sure > 0 ? n_sure : 1;
    if (call.take) {
        k = (uint32_t)max(call.take[blockIdx.x], 0);
    }
    k = min(k, n_candidates);
    if (threadIdx.x == 0 && call.n_committed) {
        call.n_committed[blockIdx.x] = (int32_t)k;
    }
    if (k == 0) {
        return;
    }
    const uint32_t threshold = top_threshold<THREADS>(key, k, buffer);
    top_visit<THREADS>(key, k, threshold, buffer, [&](int i, uint32_t) {
        const int row = first + top_index<KEYS>(i);
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
    if (n == 0) {
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
