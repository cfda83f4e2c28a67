/* Score, pool, choose and pack the context a block keeps: three kernels, each spread over
 * requests and key-value heads; uniform scores are summed over the heads by one more. The scores go
 * through memory (4 of every 4 D + 4 bytes). */
#include "kernels/decode/top.cuh"
#include "kernels/fp8.cuh"
#include "kernels/heads.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"

/* SELECT_LANES neighbouring lanes have a key together: */
enum {
    MAX_GROUP = 16,
    SCORE_KEYS = 8,   /* that they have in flight */
    SCORE_ROUNDS = 4, /* of a block */
    PACK_ROWS = 4,    /* that they have in flight */
    MAX_CANDIDATES = 65536,
};

/* The candidates that a block scores at a time. */
template <int D> constexpr int score_round = SCORE_THREADS / SELECT_LANES(D) * SCORE_KEYS;

static __device__ __forceinline__ int candidate_count(const struct call_select &call, int r) {
    return call.start[r + 1] - call.start[r] - (call.block_end[r] - call.block_start[r]);
}

/* Where a request's row of scores, or of indices, starts. */
static __device__ __forceinline__ int64_t row_start(const struct call_select &call, int r,
                                                    int kv_head, int n_candidates) {
    return call.n_kv_heads * call.score_start[r] + (int64_t)kv_head * n_candidates;
}

static __device__ __forceinline__ int candidate_token(int candidate, int block_start,
                                                      int block_end) {
    return candidate < block_start ? candidate : candidate + block_end - block_start;
}

template <int D, bool UNIFORM>
static __global__ void __launch_bounds__(SCORE_THREADS)
    score_kernel(const struct call_select call) {
    dependencies_wait();
    dependents_launch();
    constexpr int LANES = SELECT_LANES(D), GROUPS = SCORE_THREADS / LANES;
    constexpr int SCORE_CANDIDATES = SCORE_ROUNDS * score_round<D>;
    __shared__ __align__(16) float query[MAX_GROUP * D];
    const int r = blockIdx.z, kv_head = blockIdx.x, group = call.n_heads / call.n_kv_heads;
    const int n_candidates = candidate_count(call, r);
    const int first = blockIdx.y * SCORE_CANDIDATES;
    if (first >= n_candidates) {
        return;
    }
    const int start = call.start[r], block_start = call.block_start[r],
              block_end = call.block_end[r];
    const float scale = 1.0f / (float)(block_end - block_start);
    const int lane = threadIdx.x % LANES, at_once = threadIdx.x / LANES;
    const bool holds = LANES * 8 == D || lane * 8 < D;
    const int column = holds ? lane * 8 : 0;
    struct bf16x8 key[SCORE_KEYS], next[SCORE_KEYS];
    auto load = [&](struct bf16x8(&keys)[SCORE_KEYS], int base) {
#pragma unroll
        for (int i = 0; i < SCORE_KEYS; i++) {
            int c = base + i * GROUPS;
            c = c < n_candidates ? c : n_candidates - 1;
            const int64_t token = start + candidate_token(c, block_start, block_end);
            keys[i] = bf16x8_load(call.k, token * call.kv_stride + kv_head * D + column);
        }
    };
    load(next, first + at_once); /* on their way while the query is averaged */
    for (int i = threadIdx.x * 2; i < group * D; i += SCORE_THREADS * 2) {
        const __nv_bfloat16 *q = static_cast<const __nv_bfloat16 *>(call.q) +
                                 (start + block_start) * call.q_stride +
                                 (int64_t)kv_head * group * D + i;
        float2 sum = make_float2(0, 0);
#pragma unroll 8
        for (int t = 0; t < block_end - block_start; t++) {
            const float2 f = __bfloat1622float2(
                *reinterpret_cast<const __nv_bfloat162 *>(q + t * call.q_stride));
            sum.x += f.x;
            sum.y += f.y;
        }
        query[i] = sum.x * scale;
        query[i + 1] = sum.y * scale;
    }
    __syncthreads();
    float *scores = call.scores + row_start(call, r, kv_head, n_candidates);
    const float factor = UNIFORM ? 1.0f : rsqrtf((float)D);
    constexpr int PER_ROUND = score_round<D>;
#pragma unroll 1
    for (int round = 0; round < SCORE_ROUNDS; round++) {
        const int base = first + round * PER_ROUND + at_once;
#pragma unroll
        for (int i = 0; i < SCORE_KEYS; i++) {
            key[i] = next[i];
        }
        if (round + 1 < SCORE_ROUNDS) {
            load(next, base + PER_ROUND);
        }
        float best[SCORE_KEYS];
        for (int g = 0; g < group; g++) {
            const float4 *from = reinterpret_cast<const float4 *>(query + g * D + column);
            const float4 low = from[0], high = from[1];
#pragma unroll
            for (int i = 0; i < SCORE_KEYS; i++) {
                float k[8];
                bf16x8_to_float(key[i], k);
                float dot = k[0] * low.x + k[1] * low.y + k[2] * low.z + k[3] * low.w +
                            k[4] * high.x + k[5] * high.y + k[6] * high.z + k[7] * high.w;
                dot = holds ? dot : 0;
#pragma unroll
                for (int step = LANES / 2; step > 0; step /= 2) {
                    dot += __shfl_xor_sync(~0u, dot, step);
                }
                best[i] = g == 0 ? dot : UNIFORM ? best[i] + dot : fmaxf(best[i], dot);
            }
        }
#pragma unroll
        for (int i = 0; i < SCORE_KEYS; i++) {
            const int c = base + i * GROUPS;
            if (lane == 0 && c < n_candidates) {
                scores[c] = best[i] * factor;
            }
        }
    }
}

/* The heads' parts of a uniform score, added up in order into the first row. */
template <int D>
static __global__ void __launch_bounds__(SUM_THREADS) sum_kernel(const struct call_select call) {
    dependencies_wait();
    dependents_launch();
    const int r = blockIdx.y, n_candidates = candidate_count(call, r);
    const int c = blockIdx.x * SUM_THREADS + threadIdx.x;
    if (c < n_candidates) {
        float *scores = call.scores + row_start(call, r, 0, n_candidates) + c;
        float sum = 0;
#pragma unroll 4
        for (int kv_head = 0; kv_head < call.n_kv_heads; kv_head++) {
            sum += scores[(int64_t)kv_head * n_candidates];
        }
        *scores = sum * rsqrtf((float)D) / (float)call.n_heads;
    }
}

template <int THREADS, int KEYS>
static __global__ void __launch_bounds__(THREADS) top_kernel(const struct call_select call) {
    dependencies_wait();
    dependents_launch();
    __shared__ uint32_t buffer[2][3][32];
    const int r = blockIdx.y, n_candidates = candidate_count(call, r);
    const int block_start = call.block_start[r], block_end = call.block_end[r];
    const int kv_head = blockIdx.x;
    const float *scores =
        call.scores + row_start(call, r, call.uniform ? 0 : kv_head, n_candidates);
    const int kept = call.kept[r];
    if (n_candidates <= 0 || kept <= 0) {
        return;
    }
    uint32_t key[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int at = top_index<KEYS>(i);
        float best[3];
#pragma unroll
        for (int j = 0; j < 3; j++) {
            const int neighbour = at + j - 1;
            best[j] = neighbour >= 0 && neighbour < n_candidates ? scores[neighbour] : -INFINITY;
        }
        key[i] = at < n_candidates ? top_key(fmaxf(fmaxf(best[0], best[1]), best[2])) : 0;
    }
    const uint32_t threshold = top_threshold<THREADS>(key, (uint32_t)kept, buffer);
    int32_t *indices = call.indices + row_start(call, r, kv_head, n_candidates);
    top_visit<THREADS>(key, (uint32_t)kept, threshold, buffer, [&](int i, uint32_t place) {
        indices[place] = candidate_token(top_index<KEYS>(i), block_start, block_end);
    });
}

template <int D>
static __global__ void __launch_bounds__(PACK_THREADS) pack_kernel(const struct call_select call) {
    dependencies_wait();
    dependents_launch();
    constexpr int LANES = SELECT_LANES(D), GROUPS = PACK_THREADS / LANES;
    const int r = blockIdx.z, kv_head = blockIdx.x, kept = call.kept[r];
    const int lane = threadIdx.x % LANES;
    const int first = blockIdx.y * GROUPS * PACK_ROWS + threadIdx.x / LANES;
    if ((int)blockIdx.y * GROUPS * PACK_ROWS >= kept || (LANES * 8 != D && lane * 8 >= D)) {
        return;
    }
    const int64_t start = call.start[r];
    const int64_t to = call.cache_start[r] + (int64_t)kv_head * kept * D + lane * 8;
    const int64_t part = (int64_t)call.n_kv_heads * kept * D; /* from a key to its value */
    const int32_t *indices = call.indices + row_start(call, r, kv_head, candidate_count(call, r));
    struct bf16x8 k[PACK_ROWS], v[PACK_ROWS];
#pragma unroll
    for (int i = 0; i < PACK_ROWS; i++) {
        const int row = first + i * GROUPS;
        if (row < kept) {
            const int64_t from = (start + indices[row]) * call.kv_stride + kv_head * D + lane * 8;
            k[i] = bf16x8_load(call.k, from);
            v[i] = bf16x8_load(call.v, from);
        }
    }
#pragma unroll
    for (int i = 0; i < PACK_ROWS; i++) {
        const int row = first + i * GROUPS;
        if (row < kept) {
            bf16x8_store(call.cache, to + (int64_t)row * D, k[i]);
            bf16x8_store(call.cache, to + part + (int64_t)row * D, v[i]);
        }
    }
}

/* The same into a cache in fp8, half a warp for each key or value. */
template <int D>
static __global__ void __launch_bounds__(PACK_THREADS)
    pack_fp8_kernel(const struct call_select call) {
    dependencies_wait();
    dependents_launch();
    constexpr int HALVES = PACK_THREADS / FP8_HEAD_LANES;
    const int r = blockIdx.z, kv_head = blockIdx.x, kept = call.kept[r];
    const int at = blockIdx.y * HALVES + threadIdx.x / FP8_HEAD_LANES, row = at / 2;
    const bool is_value = at % 2 != 0, holds = row < kept;
    const int32_t *indices = call.indices + row_start(call, r, kv_head, candidate_count(call, r));
    const int64_t token = call.start[r] + (holds ? indices[row] : 0);
    const struct fp8_place place =
        fp8_packed(call.n_kv_heads, kept, D, is_value * call.n_kv_heads + kv_head, row);
    fp8_head_store(is_value ? call.v : call.k, token * call.kv_stride + kv_head * D, D,
                   static_cast<uint8_t *>(call.cache) + call.cache_start[r], place, holds);
}

static bool select_valid(const struct call_select *call) {
    return call->dtype == KERNEL_BF16 && is_head_size(call->head_size) && call->n_requests >= 0 &&
           call->n_requests <= 65535 && call->n_kv_heads > 0 && call->n_kv_heads <= 65535 &&
           call->n_heads > 0 && call->n_heads % call->n_kv_heads == 0 &&
           call->n_heads / call->n_kv_heads <= MAX_GROUP && call->q_stride % 8 == 0 &&
           call->kv_stride % 8 == 0 && call->max_candidates >= 0 &&
           call->max_candidates <= MAX_CANDIDATES;
}

extern "C" cudaError_t kernel_select_top(const struct call_select *call, cudaStream_t stream) {
    if (!select_valid(call)) {
        return cudaErrorInvalidValue;
    }
    const int n = call->max_candidates;
    const dim3 grid((unsigned)call->n_kv_heads, (unsigned)call->n_requests);
    if (n == 0 || call->n_requests == 0) {
        return cudaSuccess;
    }
    const struct block_shape shape = top_shape_of(n);
    auto kernel = shape.each == 4         ? top_kernel<256, 4>
                  : shape.each == 64      ? top_kernel<1024, 64>
                  : shape.threads == 1024 ? top_kernel<1024, 16>
                                          : top_kernel<256, 16>;
    launch(kernel, grid, (unsigned)shape.threads, 0, stream, *call);
    return cudaGetLastError();
}

template <int D>
static cudaError_t start_scores(const struct call_select *call, cudaStream_t stream) {
    constexpr unsigned SCORE_CANDIDATES = SCORE_ROUNDS * score_round<D>;
    const unsigned n = (unsigned)call->max_candidates, n_requests = (unsigned)call->n_requests;
    /* Neighbouring blocks read neighbouring heads of the same tokens. */
    const dim3 grid((unsigned)call->n_kv_heads, (n + SCORE_CANDIDATES - 1) / SCORE_CANDIDATES,
                    n_requests);
    auto score = call->uniform ? score_kernel<D, true> : score_kernel<D, false>;
    launch(score, grid, SCORE_THREADS, 0, stream, *call);
    const cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess && call->uniform) {
        launch(sum_kernel<D>, dim3((n + SUM_THREADS - 1) / SUM_THREADS, n_requests), SUM_THREADS, 0,
               stream, *call);
        return cudaGetLastError();
    }
    return status;
}

template <int D>
static cudaError_t start_pack(const struct call_select *call, cudaStream_t stream) {
    constexpr unsigned ROWS = PACK_THREADS / SELECT_LANES(D) * PACK_ROWS;
    const unsigned n = (unsigned)call->max_candidates;
    const unsigned rows =
        call->cache_fp8 ? (unsigned)(PACK_THREADS / (2 * FP8_HEAD_LANES)) : (unsigned)ROWS;
    const dim3 grid((unsigned)call->n_kv_heads, (n + rows - 1) / rows, (unsigned)call->n_requests);
    launch(call->cache_fp8 ? pack_fp8_kernel<D> : pack_kernel<D>, grid, PACK_THREADS, 0, stream,
           *call);
    return cudaGetLastError();
}

template <int D>
static cudaError_t select_start(const struct call_select *call, cudaStream_t stream) {
    cudaError_t status =
        call->part != KERNEL_SELECT_SCORED ? start_scores<D>(call, stream) : cudaSuccess;
    if (call->part == KERNEL_SELECT_SCORES) {
        return status;
    }
    status = status == cudaSuccess ? kernel_select_top(call, stream) : status;
    return status == cudaSuccess ? start_pack<D>(call, stream) : status;
}

extern "C" cudaError_t kernel_select(const struct call_select *call, cudaStream_t stream) {
    if (!select_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->max_candidates == 0 || call->n_requests == 0) {
        return cudaSuccess;
    }
    return by_head_size(call->head_size, [&](auto head) {
        return select_start<decltype(head)::SIZE>(call, stream);
    });
}
