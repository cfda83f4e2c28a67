/* Attention of active blocks where requests are few (sm_90a): there, time is latency, and what cuts
 * one line of all items into equal stretches spends most of it on finding its place and on putting
 * an item's parts together through memory. Here an item, (request, key-value head, tile of query
 * rows), is a cluster's: each of its blocks takes an equal share of the tiles of keys, all reading
 * at once, and then puts together its share of the rows out of everyone's shared memory.
 * Which path a call takes depends on how many items it has, and so do its last bits. */
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/keys.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum {
    HEAD_SIZE = 128,
    ROW_FLOATS = part_floats<HEAD_SIZE>,
    TILE_N = 64,
    STAGES = FEW_ATTENTION_STAGES,
    STAGE_BYTES = FEW_ATTENTION_STAGE_BYTES,
    THREADS = FEW_ATTENTION_THREADS,
    WARPS = THREADS / 32,
    PARTS = 4,       /* blocks of a cluster; what eight have to exchange costs more than it saves */
    FEW_KEYS = 4096, /* beyond, nothing was measured */
};

#if HOPPER_DEVICE
/* By a warp: a row out of all parts, four columns a lane. row: where it is in this block's first
 * part; the others are part_bytes on, OWN a block, then in the next block. */
template <int OWN>
static __device__ __forceinline__ uint2 row_merge(uint32_t row, int part_bytes, float scale_log2) {
    constexpr int N = OWN * PARTS;
    const int lane = threadIdx.x % 32;
    float2 mine = make_float2(ATTENTION_NEVER, 0); /* peak and weight of part `lane` */
    if (lane < N) {
        mine = cluster_load2(cluster_address(row + lane % OWN * part_bytes, lane / OWN) +
                             HEAD_SIZE * 4);
    }
    float peak = mine.x;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, step));
    }
    const float share = exp2_fast((mine.x - peak) * scale_log2);
    const float scale = 1.0f / warp_sum(share * mine.y);
    float y[4] = {};
#pragma unroll 8
    for (int part = 0; part < N; part++) {
        const float4 f =
            cluster_load4(cluster_address(row + part % OWN * part_bytes, part / OWN) + lane * 16);
        const float its = __shfl_sync(~0u, share, part);
        y[0] += its * f.x;
        y[1] += its * f.y;
        y[2] += its * f.z;
        y[3] += its * f.w;
    }
    return make_uint2(bf16_pack(y[0] * scale, y[1] * scale), bf16_pack(y[2] * scale, y[3] * scale));
}
#endif

/* WARPS_M warps of 16 rows each share the block's keys with WARPS_N - 1 others of the same rows. */
template <class KEYS, int WARPS_M>
static __global__ void __launch_bounds__(THREADS)
    few_attention_kernel(const typename KEYS::call call, int n_row_tiles, float scale_log2) {
#if HOPPER_DEVICE
    constexpr int TILE_M = 16 * WARPS_M, WARPS_N = WARPS / WARPS_M, WARP_KEYS = TILE_N / WARPS_N;
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t stages = shared_address(shared);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const int rank = cluster_rank(), item = blockIdx.x / PARTS;
    const int row_tile = item % n_row_tiles, kv_head = item / n_row_tiles % call.n_kv_heads;
    const int request = item / n_row_tiles / call.n_kv_heads;
    const int group = call.n_heads / call.n_kv_heads;
    dependencies_wait();
    dependents_launch();
    const int first = call.start[request], n_tokens = call.start[request + 1] - first;
    const struct item_rows rows = {first, n_tokens * group, group, kv_head * group};
    const int row0 = row_tile * TILE_M;
    typename KEYS::reach reach;
    if constexpr (!KEYS::RAGGED) { /* on its way while it is found out whether there are any rows */
        reach = KEYS::reach_of(call, request, first, n_tokens, 0);
    }
    if (row0 >= rows.n_rows) {
        return; /* and so does the whole cluster */
    }
    if constexpr (KEYS::RAGGED) {
        reach = KEYS::reach_of(call, request, first, n_tokens,
                               (min(row0 + TILE_M, rows.n_rows) - 1) / group);
    }
    KEYS keys;
    keys.open(call, request, kv_head, first, reach);
    const int n_keys = reach.n_keys();
    const int n_tiles = (n_keys + TILE_N - 1) / TILE_N;
    const int begin = n_tiles * rank / PARTS, end = n_tiles * (rank + 1) / PARTS;
    auto issue = [&](int tile) {
        if (tile < end) {
            const uint32_t to = stages + (tile - begin) % STAGES * STAGE_BYTES;
            const int chunk = threadIdx.x % 16;
#pragma unroll
            for (int i = 0; i < TILE_N * 16 / THREADS; i++) {
                const int row = i * (THREADS / 16) + threadIdx.x / 16, j = tile * TILE_N + row;
                const bool valid = j < n_keys;
                const struct key_row from = keys.row(valid ? j : 0);
                copy_async(tile_address(to, row, chunk), from.k + chunk * 8, valid);
                copy_async(tile_address(to + STAGE_BYTES / 2, row, chunk), from.v + chunk * 8,
                           valid);
            }
        }
        copy_async_commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        issue(begin + i);
    }
    uint32_t q[HEAD_SIZE / 16][4];
    int extent[2];
    query_load<HEAD_SIZE>(q, call.q, call.q_stride, rows, row0 + warp_m * 16);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + warp_m * 16 + half * 8 + lane / 4;
        extent[half] =
            row < rows.n_rows ? min(n_keys, KEYS::extent(call, first + row / group)) : n_keys;
    }
    struct part<HEAD_SIZE> part;
    part_clear(part);
    for (int tile = begin; tile < end; tile++) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        issue(tile + STAGES - 1);
        const int first_key = tile * TILE_N + warp_n * WARP_KEYS;
        if (first_key < n_keys) {
            const uint32_t at = stages + (tile - begin) % STAGES * STAGE_BYTES +
                                warp_n * WARP_KEYS * (HEAD_SIZE * 2);
            part_add<WARP_KEYS>(part, q, at, at + STAGE_BYTES / 2, first_key, extent, scale_log2);
        }
    }
    copy_async_wait<0>();
    __syncthreads();
    constexpr int PART_FLOATS = TILE_M * ROW_FLOATS, SHARE = TILE_M / PARTS;
    part_close(part);
    part_leave(part,
               reinterpret_cast<float *>(shared) + warp_n * PART_FLOATS + warp_m * 16 * ROW_FLOATS,
               16);
    cluster_sync();
    for (int in_tile = rank * SHARE + warp; in_tile < (rank + 1) * SHARE; in_tile += WARPS) {
        const uint2 y =
            row_merge<WARPS_N>(stages + in_tile * ROW_FLOATS * 4, PART_FLOATS * 4, scale_log2);
        if (row0 + in_tile < rows.n_rows) {
            *reinterpret_cast<uint2 *>(static_cast<__nv_bfloat16 *>(call.y) +
                                       row_at<HEAD_SIZE>(rows, row0 + in_tile, call.y_stride) +
                                       lane * 4) = y;
        }
    }
    cluster_sync(); /* a block's memory must outlive what the others read of it */
#endif
}

template <class KEYS, int WARPS_M>
static cudaError_t start(const typename KEYS::call *call, int n_row_tiles, int n_items,
                         cudaStream_t stream) {
    auto kernel = few_attention_kernel<KEYS, WARPS_M>;
    const int bytes = STAGES * STAGE_BYTES;
    const cudaError_t status = shared_allow(kernel, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)HEAD_SIZE);
    return launch_clusters(kernel, dim3((unsigned)(n_items * PARTS)), dim3(THREADS), PARTS,
                           (size_t)bytes, stream, *call, n_row_tiles, scale_log2);
}

/* Keys a request may have, as far as the host knows. */
static int64_t most_keys(const struct call_block_attention *call) {
    (void)call;
    return 0;
}

static int64_t most_keys(const struct call_paged_attention *call) {
    return call->max_extent;
}

/* Tiles of few rows where that leaves half of the multiprocessors idle. With more blocks than
 * multiprocessors the line of equal stretches is faster (one H200, 2026-11-22). */
template <class KEYS>
static cudaError_t few_attention(const typename KEYS::call *call, cudaStream_t stream) {
    if (call->n_requests == 0 || call->max_queries == 0) {
        return cudaSuccess;
    }
    if (!hopper_device() || call->head_size != HEAD_SIZE || call->invariant ||
        most_keys(call) > FEW_KEYS) {
        return cudaErrorNotSupported;
    }
    int n_sms;
    const cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess) {
        return status;
    }
    const int64_t n_rows = (int64_t)call->max_queries * (call->n_heads / call->n_kv_heads);
    const int64_t n_heads = (int64_t)call->n_requests * call->n_kv_heads;
    const bool small = n_rows <= 32 || n_heads * ((n_rows + 31) / 32) * PARTS <= n_sms / 2;
    const int tile_rows = n_rows <= 16 ? 16 : small ? 32 : 64;
    const int64_t n_row_tiles = (n_rows + tile_rows - 1) / tile_rows;
    if (n_heads * n_row_tiles * PARTS > n_sms) {
        return cudaErrorNotSupported;
    }
    auto run = tile_rows == 16 ? start<KEYS, 1> : tile_rows == 32 ? start<KEYS, 2> : start<KEYS, 4>;
    return run(call, (int)n_row_tiles, (int)(n_heads * n_row_tiles), stream);
}

extern "C" cudaError_t kernel_block_attention_few(const struct call_block_attention *call,
                                                  cudaStream_t stream) {
    if (!block_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    return call->own_cached || call->cache_fp8
               ? cudaErrorNotSupported
               : few_attention<stored_keys<HEAD_SIZE>>(call, stream);
}

extern "C" cudaError_t kernel_paged_attention_few(const struct call_paged_attention *call,
                                                  cudaStream_t stream) {
    if (!paged_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    return call->cache_fp8 || call->before ? cudaErrorNotSupported
                                           : few_attention<paged_keys>(call, stream);
}
