/* Bidirectional attention of whole requests of any length (a refresh), for sm_80 and later:
 * mma.sync, 128 query rows a block, 32 a warp so that a key or value fragment serves two
 * products, keys and values in two stages of 64. The sm_90a path is dense_attention_wgmma.cu. */
#include "kernels/attention/dense_attention.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum {
    HEAD_SIZE = 128,
    TILE_M = DENSE_TILE_ROWS,
    TILE_N = DENSE_TILE_KEYS,
    THREADS = DENSE_THREADS,
    TILE_BYTES = TILE_N * 256,
};

/* Scores of the warp's 32 rows against a tile of keys. */
static __device__ __forceinline__ void tile_scores(float (&s)[2][8][4], uint32_t q_tile,
                                                   uint32_t keys, int warp, int lane) {
#pragma unroll
    for (int step = 0; step < 8; step++) {
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            matrix_load(a[m], tile_address(q_tile, warp * 32 + m * 16 + (lane & 15),
                                           step * 2 + (lane >> 4)));
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t b[4];
            matrix_load(b, tile_address(keys, n * 16 + (lane & 7) + (lane >> 4) * 8,
                                        step * 2 + ((lane >> 3) & 1)));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                matrix_multiply(s[m][2 * n], a[m], b[0], b[1]);
                matrix_multiply(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

static __global__ void __launch_bounds__(THREADS, 2)
    dense_attention_kernel(const struct call_dense_attention call, float scale_log2) {
    dependencies_wait();
    dependents_launch();
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
    const uint32_t q_tile = shared_address(shared), stages = q_tile + TILE_M * 256;
    const __nv_bfloat16 *q = static_cast<const __nv_bfloat16 *>(call.q) +
                             (int64_t)queries.first * call.q_stride + head * HEAD_SIZE;
    const int64_t kv_base = (int64_t)first * call.kv_stride + kv_head * HEAD_SIZE;
    const int chunk = threadIdx.x % 16, row_of_thread = threadIdx.x / 16;
    const __nv_bfloat16 *k = static_cast<const __nv_bfloat16 *>(call.k) + kv_base + chunk * 8;
    const __nv_bfloat16 *v = static_cast<const __nv_bfloat16 *>(call.v) + kv_base + chunk * 8;

    auto load_tile = [&](uint32_t to, const __nv_bfloat16 *from, int row_base) {
#pragma unroll
        for (int i = 0; i < TILE_N / 8; i++) {
            const int row = i * 8 + row_of_thread;
            const bool valid = row_base + row < length;
            copy_async(tile_address(to, row, chunk),
                       from + (int64_t)(valid ? row_base + row : 0) * call.kv_stride, valid);
        }
    };
#pragma unroll
    for (int i = 0; i < TILE_M / 8; i++) {
        const int row = i * 8 + row_of_thread;
        const bool valid = row0 + row < queries.n;
        copy_async(tile_address(q_tile, row, chunk),
                   q + (int64_t)(valid ? row0 + row : 0) * call.q_stride + chunk * 8, valid);
    }
    load_tile(stages, k, 0);
    copy_async_commit();
    load_tile(stages + 2 * TILE_BYTES, v, 0);
    copy_async_commit();

    struct part<HEAD_SIZE> part[2]; /* of 16 rows each */
    part_clear(part[0]);
    part_clear(part[1]);
    const int n_tiles = (length + TILE_N - 1) / TILE_N;
    for (int tile = 0; tile < n_tiles; tile++) {
        const uint32_t keys = stages + (tile & 1) * TILE_BYTES, values = keys + 2 * TILE_BYTES;
        copy_async_wait<1>(); /* the keys are here; the values may still be on their way */
        __syncthreads();
        if (tile + 1 < n_tiles) {
            load_tile(stages + (~tile & 1) * TILE_BYTES, k, (tile + 1) * TILE_N);
        }
        copy_async_commit();
        float s[2][8][4] = {};
        tile_scores(s, q_tile, keys, warp, lane);
        const int n_keys = length - tile * TILE_N;
        if (n_keys < TILE_N) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (n * 8 + (lane % 4) * 2 + (i & 1) >= n_keys) {
                        s[0][n][i] = s[1][n][i] = ATTENTION_NEVER;
                    }
                }
            }
        }
        part_weigh(part[0], s[0], scale_log2);
        part_weigh(part[1], s[1], scale_log2);
        copy_async_wait<1>();
        __syncthreads();
        if (tile + 1 < n_tiles) {
            load_tile(stages + (2 + (~tile & 1)) * TILE_BYTES, v, (tile + 1) * TILE_N);
        }
        copy_async_commit();
#pragma unroll
        for (int step = 0; step < 4; step++) {
            uint32_t a[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float *pair = &s[m][2 * step + i / 2][i % 2 * 2];
                    a[m][i] = bf16_pack(pair[0], pair[1]);
                }
            }
#pragma unroll
            for (int n = 0; n < 8; n++) {
                uint32_t b[4];
                matrix_load_transposed(
                    b, tile_address(values, step * 16 + (lane & 15), n * 2 + (lane >> 4)));
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    matrix_multiply(part[m].out[2 * n], a[m], b[0], b[1]);
                    matrix_multiply(part[m].out[2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
    copy_async_wait<0>();
    const struct item_rows rows = {queries.first, queries.n, 1, head};
#pragma unroll
    for (int m = 0; m < 2; m++) {
        part_close(part[m]);
        part_store<HEAD_SIZE>(part[m], call.y, call.y_stride, rows, row0 + warp * 32 + m * 16);
    }
}

extern "C" bool dense_attention_valid(const struct call_dense_attention *call) {
    return call->dtype == KERNEL_BF16 && call->head_size == HEAD_SIZE && call->n_requests >= 0 &&
           call->n_requests <= 65535 && call->n_kv_heads > 0 && call->n_heads > 0 &&
           call->n_heads % call->n_kv_heads == 0 && call->q_stride % 8 == 0 &&
           call->kv_stride % 8 == 0 && call->y_stride % 8 == 0 && call->max_tokens >= 0 &&
           call->first_query >= 0 && call->n_queries >= 0 &&
           call->first_query <= call->n_tokens - call->n_queries;
}

extern "C" cudaError_t kernel_dense_attention_mma(const struct call_dense_attention *call,
                                                  cudaStream_t stream) {
    if (!dense_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests == 0 || call->max_tokens == 0) {
        return cudaSuccess;
    }
    const int bytes = DENSE_BYTES;
    const cudaError_t status = shared_allow(dense_attention_kernel, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const dim3 grid((unsigned)((dense_attention_most_rows(call) + TILE_M - 1) / TILE_M),
                    (unsigned)call->n_heads, (unsigned)call->n_requests);
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)HEAD_SIZE);
    launch(dense_attention_kernel, grid, THREADS, bytes, stream, *call, scale_log2);
    return cudaGetLastError();
}
