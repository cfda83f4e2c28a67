/* Embedding look-up, sums, SwiGLU, cache rows and random numbers: one pass over memory in 16-byte
 * accesses. */
#include "kernels/fp8.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/rules/keyed.h"

enum { ELEMENTWISE_VECTORS = 2 };

static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    embed_kernel(const struct call_embed call) {
    dependencies_wait();
    dependents_launch();
    const int id = call.ids[call.at ? call.at[blockIdx.x] : (int64_t)blockIdx.x];
    const bool known = id >= 0 && id < call.n_vocab;
    const int64_t from = known ? (int64_t)id * call.n_channels : 0;
    const int64_t to = (int64_t)blockIdx.x * call.n_channels;
    /* The reference's NaN, whose bits a conversion would not give. */
    const __nv_bfloat162 two = __bfloat162bfloat162(__ushort_as_bfloat16(0x7fc0));
    const struct bf16x8 nan = {{two, two, two, two}};
    for (int i = threadIdx.x * 8; i < call.n_channels; i += ELEMENTWISE_THREADS * 8) {
        const struct bf16x8 v = known ? bf16x8_load(call.table, from + i) : nan;
        bf16x8_store(call.y, to + i, v);
    }
}

static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    add_kernel(const struct call_add call) {
    dependencies_wait();
    dependents_launch();
    constexpr int64_t PER_BLOCK = ELEMENTWISE_THREADS * ELEMENTWISE_VECTORS * 8;
    const int64_t first = blockIdx.x * PER_BLOCK + threadIdx.x * 8;
    struct bf16x8 a[ELEMENTWISE_VECTORS], b[ELEMENTWISE_VECTORS];
#pragma unroll
    for (int i = 0; i < ELEMENTWISE_VECTORS; i++) {
        const int64_t at = first + i * ELEMENTWISE_THREADS * 8;
        if (at < call.n) {
            a[i] = bf16x8_load(call.a, at);
            b[i] = bf16x8_load(call.b, at);
        }
    }
#pragma unroll
    for (int i = 0; i < ELEMENTWISE_VECTORS; i++) {
        const int64_t at = first + i * ELEMENTWISE_THREADS * 8;
        if (at < call.n) {
            float x[8], y[8];
            bf16x8_to_float(a[i], x);
            bf16x8_to_float(b[i], y);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                x[j] += y[j];
            }
            bf16x8_store(call.y, at, bf16x8_from_float(x));
        }
    }
}

/* A block has blockDim.y tokens; the threads of one token walk its heads. */
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    keep_kernel(const struct call_keep call) {
    dependencies_wait();
    dependents_launch();
    const int64_t token = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (token >= call.n_tokens || call.kv_rows[token] < 0) {
        return;
    }
    const int64_t row = call.kv_rows[token];
    const int request = call.owner[token], size = call.head_size;
    const int64_t kept = call.kept[request], to = call.cache_start[request] + row * size;
    const int64_t part = call.n_kv_heads * kept * size; /* from a key to its value */
    for (int i = threadIdx.x * 8; i < call.n_kv_heads * size; i += blockDim.x * 8) {
        const struct bf16x8 k = bf16x8_load(call.k, token * call.kv_stride + i);
        const struct bf16x8 v = bf16x8_load(call.v, token * call.kv_stride + i);
        const int64_t at = to + i / size * kept * size + i % size;
        bf16x8_store(call.cache, at, k);
        bf16x8_store(call.cache, at + part, v);
    }
}

/* Half a warp for each key, or value, of a token's head. */
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    keep_fp8_kernel(const struct call_keep call) {
    dependencies_wait();
    dependents_launch();
    constexpr int HALVES = ELEMENTWISE_THREADS / FP8_HEAD_LANES;
    const int64_t at = (int64_t)blockIdx.x * HALVES + threadIdx.x / FP8_HEAD_LANES;
    const int64_t token = at / (2 * call.n_kv_heads);
    const int head = (int)(at % (2 * call.n_kv_heads)), size = call.head_size;
    const bool is_value = head >= call.n_kv_heads;
    const int row = token < call.n_tokens ? call.kv_rows[token] : -1;
    const int request = row >= 0 ? call.owner[token] : 0;
    const struct fp8_place place =
        fp8_packed(call.n_kv_heads, row >= 0 ? call.kept[request] : 0, size, head, row);
    const int64_t from = token * call.kv_stride + head % call.n_kv_heads * size;
    fp8_head_store(is_value ? call.v : call.k, from, size,
                   static_cast<uint8_t *>(call.cache) + (row >= 0 ? call.cache_start[request] : 0),
                   place, row >= 0);
}

static __device__ __forceinline__ int64_t random_at(const struct call_random &call, int64_t i) {
    return call.first + (call.run > 0 ? i / call.run * call.stride + i % call.run : i);
}

/* No contraction: the products and sums are rounded as the reference's. */
template <typename T>
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    random_kernel(const struct call_random call) {
    dependencies_wait();
    const int64_t first = ((int64_t)blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x) * 8;
    T *y = static_cast<T *>(call.y);
    float x[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const double u = uniform_keyed(call.key, (uint64_t)random_at(call, first + j));
        x[j] = __double2float_rn(
            __dadd_rn(call.centre, __dmul_rn(call.spread, __dadd_rn(__dmul_rn(2, u), -1))));
    }
    if constexpr (sizeof(T) == sizeof(__nv_bfloat16)) {
        if (first + 8 <= call.n) {
            bf16x8_store(y, first, bf16x8_from_float(x));
            return;
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if (first + j < call.n) {
            y[first + j] = static_cast<T>(x[j]);
        }
    }
}

static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    swiglu_kernel(const struct call_swiglu call, int blocks_per_row) {
    dependencies_wait();
    dependents_launch();
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
                g[j] =
                    call.gelu ? geglu(g[j], u[j]) : __fdividef(g[j], 1.0f + __expf(-g[j])) * u[j];
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
        launch(embed_kernel, (unsigned)call->n_tokens, ELEMENTWISE_THREADS, 0, stream, *call);
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
        launch(swiglu_kernel, (unsigned)n_blocks, ELEMENTWISE_THREADS, 0, stream, *call,
               blocks_per_row);
    }
    return cudaGetLastError();
}

/* Blocks that n elements take at per_block each, or -1 when a grid has no room for them. */
static int64_t block_count(int64_t n, int64_t per_block) {
    const int64_t n_blocks = n / per_block + (n % per_block > 0);
    return n < 0 || n_blocks > INT32_MAX ? -1 : n_blocks;
}

extern "C" cudaError_t kernel_add(const struct call_add *call, cudaStream_t stream) {
    const int64_t n_blocks = block_count(call->n, ELEMENTWISE_THREADS * ELEMENTWISE_VECTORS * 8);
    if (call->dtype != KERNEL_BF16 || n_blocks < 0 || call->n % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    if (n_blocks > 0) {
        launch(add_kernel, (unsigned)n_blocks, ELEMENTWISE_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_keep(const struct call_keep *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_kv_heads <= 0 ||
        call->head_size <= 0 || call->head_size % 8 != 0 || call->kv_stride % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_tokens == 0) {
        return cudaSuccess;
    }
    if (call->cache_fp8) {
        const int64_t n_blocks = block_count((int64_t)call->n_tokens * 2 * call->n_kv_heads,
                                             ELEMENTWISE_THREADS / FP8_HEAD_LANES);
        if (n_blocks < 0) {
            return cudaErrorInvalidValue;
        }
        launch(keep_fp8_kernel, (unsigned)n_blocks, ELEMENTWISE_THREADS, 0, stream, *call);
        return cudaGetLastError();
    }
    const int n_vectors = call->n_kv_heads * call->head_size / 8;
    unsigned across = 32;
    while (across < ELEMENTWISE_THREADS && (int)across * ELEMENTWISE_VECTORS < n_vectors) {
        across *= 2;
    }
    const unsigned n_tokens = ELEMENTWISE_THREADS / across;
    const unsigned n_blocks = ((unsigned)call->n_tokens + n_tokens - 1) / n_tokens;
    launch(keep_kernel, n_blocks, dim3(across, n_tokens), 0, stream, *call);
    return cudaGetLastError();
}

/* Launched after random weights: a product may fetch its weights while the kernel before it runs.
 */
static __global__ void settle() {
}

extern "C" cudaError_t kernel_random(const struct call_random *call, cudaStream_t stream) {
    const int64_t n_blocks = block_count(call->n, ELEMENTWISE_THREADS * 8);
    if (n_blocks < 0) {
        return cudaErrorInvalidValue;
    }
    if (n_blocks > 0 && call->dtype == KERNEL_F32) {
        launch(random_kernel<float>, (unsigned)n_blocks, ELEMENTWISE_THREADS, 0, stream, *call);
    } else if (n_blocks > 0) {
        launch(random_kernel<__nv_bfloat16>, (unsigned)n_blocks, ELEMENTWISE_THREADS, 0, stream,
               *call);
    }
    if (n_blocks > 0) {
        settle<<<1, 1, 0, stream>>>();
    }
    return cudaGetLastError();
}
