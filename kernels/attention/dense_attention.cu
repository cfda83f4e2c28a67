/* Bidirectional attention of whole requests of any length (a refresh), for sm_80 and later:
 * mma.sync, 128 query rows a block, 32 a warp so that a key or value fragment serves two
 * products, keys and values in two stages of 64; half of each where heads are wide. The sm_90a path
 * is dense_attention_wgmma.cu. */
#include "kernels/attention/dense_attention.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/heads.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum { THREADS = DENSE_THREADS };

/* Scores of the warp's M fragments of 16 rows against KEYS / 8 fragments of keys. */
template <int D, int M, int KEY_TILES>
static __device__ __forceinline__ void tile_scores(float (&s)[M][KEY_TILES][4], uint32_t q_tile,
                                                   uint32_t keys, int warp, int lane) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            matrix_load(a[m], tile_address<D>(q_tile, warp * 16 * M + m * 16 + (lane & 15),
                                              step * 2 + (lane >> 4)));
        }
#pragma unroll
        for (int n = 0; n < KEY_TILES / 2; n++) {
            uint32_t b[4];
            matrix_load(b, tile_address<D>(keys, n * 16 + (lane & 7) + (lane >> 4) * 8,
                                           step * 2 + ((lane >> 3) & 1)));
#pragma unroll
            for (int m = 0; m < M; m++) {
                matrix_multiply(s[m][2 * n], a[m], b[0], b[1]);
                matrix_multiply(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

template <int D>
static __global__ void __launch_bounds__(THREADS, 2)
    dense_attention_kernel(const struct call_dense_attention call, float scale_log2) {
    dependencies_wait();
    dependents_launch();
    constexpr int M = DENSE_FRAGMENTS(D), TILE_M = DENSE_TILE_ROWS(D), TILE_N = DENSE_TILE_KEYS(D);
    constexpr int TILE_BYTES = TILE_N * D * 2;
    typedef struct row_copy<D, THREADS> copy;
    extern __shared__ __align__(128) unsigned char shared[];
    const int request = blockIdx.z, head = blockIdx.y;
    const int first = call.start[request], length = call.start[request + 1] - first;
    const struct query_rows queries = query_rows_of(call, request);
    const int row0 = blockIdx.x * TILE_M;
    if (row0 >= queries.n) {
        return;
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int kv_head = head / (call.n_heads / call.n_kv_heads);
    const uint32_t q_tile = shared_address(shared), stages = q_tile + TILE_M * D * 2;
    const __nv_bfloat16 *q = static_cast<const __nv_bfloat16 *>(call.q) +
                             (int64_t)queries.first * call.q_stride + head * D;
    const int64_t kv_base = (int64_t)first * call.kv_stride + kv_head * D;
    const int chunk = threadIdx.x % copy::LANES, row_of_thread = threadIdx.x / copy::LANES;
    const __nv_bfloat16 *k = static_cast<const __nv_bfloat16 *>(call.k) + kv_base + chunk * 8;
    const __nv_bfloat16 *v = static_cast<const __nv_bfloat16 *>(call.v) + kv_base + chunk * 8;

    auto load_tile = [&](uint32_t to, const __nv_bfloat16 *from, int row_base) {
#pragma unroll
        for (int i = 0; i < TILE_N / copy::ROWS; i++) {
            const int row = i * copy::ROWS + row_of_thread;
            const bool valid = row_base + row < length;
#pragma unroll
            for (int c = 0; c < copy::CHUNKS * copy::LANES; c += copy::LANES) {
                copy_async(tile_address<D>(to, row, chunk + c),
                           from + (int64_t)(valid ? row_base + row : 0) * call.kv_stride + c * 8,
                           valid);
            }
        }
    };
#pragma unroll
    for (int i = 0; i < TILE_M / copy::ROWS; i++) {
        const int row = i * copy::ROWS + row_of_thread;
        const bool valid = row0 + row < queries.n;
#pragma unroll
        for (int c = 0; c < copy::CHUNKS * copy::LANES; c += copy::LANES) {
            copy_async(tile_address<D>(q_tile, row, chunk + c),
                       q + (int64_t)(valid ? row0 + row : 0) * call.q_stride + (chunk + c) * 8,
                       valid);
        }
    }
    load_tile(stages, k, 0);
    copy_async_commit();
    load_tile(stages + 2 * TILE_BYTES, v, 0);
    copy_async_commit();

    struct part<D> part[M]; /* of 16 rows each */
#pragma unroll
    for (int m = 0; m < M; m++) {
        part_clear(part[m]);
    }
    const int n_tiles = (length + TILE_N - 1) / TILE_N;
    for (int tile = 0; tile < n_tiles; tile++) {
        const uint32_t keys = stages + (tile & 1) * TILE_BYTES, values = keys + 2 * TILE_BYTES;
        copy_async_wait<1>(); /* the keys are here; the values may still be on their way */
        __syncthreads();
        if (tile + 1 < n_tiles) {
            load_tile(stages + (~tile & 1) * TILE_BYTES, k, (tile + 1) * TILE_N);
        }
        copy_async_commit();
        float s[M][TILE_N / 8][4] = {};
        tile_scores<D>(s, q_tile, keys, warp, lane);
        const int n_keys = length - tile * TILE_N;
        if (n_keys < TILE_N) {
#pragma unroll
            for (int n = 0; n < TILE_N / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (n * 8 + (lane % 4) * 2 + (i & 1) >= n_keys) {
#pragma unroll
                        for (int m = 0; m < M; m++) {
                            s[m][n][i] = ATTENTION_NEVER;
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            part_weigh(part[m], s[m], scale_log2);
        }
        copy_async_wait<1>();
        __syncthreads();
        if (tile + 1 < n_tiles) {
            load_tile(stages + (2 + (~tile & 1)) * TILE_BYTES, v, (tile + 1) * TILE_N);
        }
        copy_async_commit();
#pragma unroll
        for (int step = 0; step < TILE_N / 16; step++) {
            uint32_t a[M][4];
#pragma unroll
            for (int m = 0; m < M; m++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *pair = &s[m][2 * step + i / 2][i % 2 * 2];
                    a[m][i] = bf16_pack(pair[0], pair[1]);
                }
            }
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                uint32_t b[4];
                matrix_load_transposed(
                    b, tile_address<D>(values, step * 16 + (lane & 15), n * 2 + (lane >> 4)));
#pragma unroll
                for (int m = 0; m < M; m++) {
                    matrix_multiply(part[m].out[2 * n], a[m], b[0], b[1]);
                    matrix_multiply(part[m].out[2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
    copy_async_wait<0>();
    const struct item_rows rows = {queries.first, queries.n, 1, head};
#pragma unroll
    for (int m = 0; m < M; m++) {
        part_close(part[m]);
        part_store<D>(part[m], call.y, call.y_stride, rows, row0 + warp * 16 * M + m * 16);
    }
}

extern "C" bool dense_attention_valid(const struct call_dense_attention *call) {
    return call->dtype == KERNEL_BF16 && is_head_size(call->head_size) && call->n_requests >= 0 &&
           call->n_requests <= 65535 && call->n_kv_heads > 0 && call->n_heads > 0 &&
           call->n_heads % call->n_kv_heads == 0 && call->q_stride % 8 == 0 &&
           call->kv_stride % 8 == 0 && call->y_stride % 8 == 0 && call->max_tokens >= 0 &&
           call->first_query >= 0 && call->n_queries >= 0 &&
           call->first_query <= call->n_tokens - call->n_queries;
}

template <int D>
static cudaError_t dense_start(const struct call_dense_attention *call, cudaStream_t stream) {
    constexpr int TILE_M = DENSE_TILE_ROWS(D), BYTES = DENSE_BYTES(D);
    const cudaError_t status = shared_allow(dense_attention_kernel<D>, BYTES);
    if (status != cudaSuccess) {
        return status;
    }
    const dim3 grid((unsigned)((dense_attention_most_rows(call) + TILE_M - 1) / TILE_M),
                    (unsigned)call->n_heads, (unsigned)call->n_requests);
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)D);
    launch(dense_attention_kernel<D>, grid, THREADS, BYTES, stream, *call, scale_log2);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_dense_attention_mma(const struct call_dense_attention *call,
                                                  cudaStream_t stream) {
    if (!dense_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests == 0 || call->max_tokens == 0) {
        return cudaSuccess;
    }
    return by_head_size(call->head_size,
                        [&](auto head) { return dense_start<decltype(head)::SIZE>(call, stream); });
}
