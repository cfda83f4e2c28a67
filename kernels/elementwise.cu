/* Embedding look-up and SwiGLU: one pass over memory in 16-byte accesses. */
#include "kernels/device.cuh"
#include "kernels/kernels.h"

enum { ELEMENTWISE_THREADS = 256, ELEMENTWISE_VECTORS = 2 };

static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    embed_kernel(const struct call_embed call) {
    const int id = call.ids[blockIdx.x];
    const bool known = id >= 0 && id < call.n_vocab;
    const int64_t from = known ? (int64_t)id * call.n_channels : 0;
    const int64_t to = (int64_t)blockIdx.x * call.n_channels;
    for (int i = threadIdx.x * 8; i < call.n_channels; i += ELEMENTWISE_THREADS * 8) {
        struct bf16x8 v;
        if (known) {
            v = bf16x8_load(call.table, from + i);
        } else {
            const float nan = __int_as_float(0x7fc00000);
            const float nans[8] = {nan, nan, nan, nan, nan, nan, nan, nan};
            v = bf16x8_from_float(nans);
        }
        bf16x8_store(call.y, to + i, v);
    }
}

static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    swiglu_kernel(const struct call_swiglu call, int blocks_per_row) {
    const int64_t token = blockIdx.x / blocks_per_row;
    const int first =
        (blockIdx.x % blocks_per_row) * ELEMENTWISE_THREADS * ELEMENTWISE_VECTORS + threadIdx.x;
    const int64_t gate_row = token * 2 * call.n_hidden;
    struct bf16x8 gate[ELEMENTWISE_VECTORS], up[ELEMENTWISE_VECTORS];
#pragma unroll
    for (int i = 0; i < ELEMENTWISE_VECTORS; i++) {
        int at = (first + i * ELEMENTWISE_THREADS) * 8;
        if (at < call.n_hidden) {
            gate[i] = bf16x8_load(call.gate_up, gate_row + at);
            up[i] = bf16x8_load(call.gate_up, gate_row + call.n_hidden + at);
        }
    }
#pragma unroll
    for (int i = 0; i < ELEMENTWISE_VECTORS; i++) {
        int at = (first + i * ELEMENTWISE_THREADS) * 8;
        if (at < call.n_hidden) {
            float g[8], u[8];
            bf16x8_to_float(gate[i], g);
            bf16x8_to_float(up[i], u);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                g[j] = __fdividef(g[j], 1.0f + __expf(-g[j])) * u[j];
            }
            bf16x8_store(call.y, token * call.y_stride + at, bf16x8_from_float(g));
        }
    }
}

extern "C" cudaError_t kernel_embed(const struct call_embed *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_tokens > 0) {
        embed_kernel<<<(unsigned)call->n_tokens, ELEMENTWISE_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_swiglu(const struct call_swiglu *call, cudaStream_t stream) {
    const int per_block = ELEMENTWISE_THREADS * ELEMENTWISE_VECTORS * 8;
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_hidden <= 0 ||
        call->n_hidden % 8 != 0 || call->y_stride % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    const int blocks_per_row = (call->n_hidden + per_block - 1) / per_block;
    const int64_t n_blocks = (int64_t)call->n_tokens * blocks_per_row;
    if (n_blocks > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    if (n_blocks > 0) {
        swiglu_kernel<<<(unsigned)n_blocks, ELEMENTWISE_THREADS, 0, stream>>>(*call,
                                                                              blocks_per_row);
    }
    return cudaGetLastError();
}
