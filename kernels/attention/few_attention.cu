/* Attention of active blocks where requests are few (sm_90a): there, time is latency, and what cuts
 * one line of all items into equal stretches spends most of it on finding its place and on putting
 * an item's parts together through memory. Here an item, (request, key-value head, tile of query
 * rows), is a cluster's: each of its blocks takes an equal share of the tiles of keys, all reading
 * at once, and then puts together its share of the rows out of everyone's shared memory.
 * Which path a call takes depends on how many items it has, and so do its last bits. */
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"

enum {
    HEAD_SIZE = 128,
    ROW_FLOATS = HEAD_SIZE + 4, /* of a row's part: its sums, its peak and its weight */
    TILE_N = 64,
    STAGES = 3,
    STAGE_BYTES = 2 * TILE_N * HEAD_SIZE * 2,
    WARPS = 4,
    THREADS = 32 * WARPS,
    PARTS = 4,       /* blocks of a cluster; what eight have to exchange costs more than it saves */
    FEW_KEYS = 4096, /* beyond, nothing was measured */
};

bool block_attention_valid(const struct call_block_attention *call);
bool paged_attention_valid(const struct call_paged_attention *call);

/* Below any score, and finite: the difference of two is a number. */
#define NEVER (-1e30f)

struct key_row {
    const __nv_bfloat16 *k, *v;
};

/* The keys of a request and a head in block attention: kept ones, then the block's own, which have
 * to lie outside of the cache. */
struct stored_keys {
    typedef struct call_block_attention call;
    int n_kept, n_keys;
    const __nv_bfloat16 *kept, *k, *v;
    int64_t to_values, stride; /* from a kept key to its value; from a block's key to the next */

    __device__ __forceinline__ void open(const call &c, int r, int kv_head) {
        n_kept = c.kept[r];
        stride = c.kv_stride;
        to_values = (int64_t)c.n_kv_heads * n_kept * HEAD_SIZE;
        kept = static_cast<const __nv_bfloat16 *>(c.cache) + c.cache_start[r] +
               (int64_t)kv_head * n_kept * HEAD_SIZE;
        k = static_cast<const __nv_bfloat16 *>(c.k) + kv_head * HEAD_SIZE;
        v = static_cast<const __nv_bfloat16 *>(c.v) + kv_head * HEAD_SIZE;
    }
    /* For the tokens [first, first + n_tokens), of which the tile's last one is the last-th. */
    __device__ __forceinline__ void reach(const call &c, int first, int n_tokens, int last) {
        (void)c, (void)last;
        n_keys = n_kept + n_tokens;
        k += first * stride;
        v += first * stride;
    }
    __device__ __forceinline__ struct key_row row(int j) const {
        const int64_t at = j < n_kept ? (int64_t)j * HEAD_SIZE : (j - n_kept) * stride;
        return j < n_kept ? key_row{kept + at, kept + at + to_values} : key_row{k + at, v + at};
    }
    /* How many keys a query attends to. */
    static __device__ __forceinline__ int extent(const call &c, int token, int n_keys) {
        (void)c, (void)token;
        return n_keys;
    }
};

/* In paged attention: as many as the tile's last token attends to. */
struct paged_keys {
    typedef struct call_paged_attention call;
    int n_keys, page_rows;
    const int32_t *pages;
    const __nv_bfloat16 *k, *v;
    int64_t stride;

    __device__ __forceinline__ void open(const call &c, int r, int kv_head) {
        page_rows = c.page_rows;
        pages = c.pages + (int64_t)r * c.max_pages;
        stride = c.kv_stride;
        k = static_cast<const __nv_bfloat16 *>(c.k) + kv_head * HEAD_SIZE;
        v = static_cast<const __nv_bfloat16 *>(c.v) + kv_head * HEAD_SIZE;
    }
    __device__ __forceinline__ void reach(const call &c, int first, int n_tokens, int last) {
        (void)n_tokens;
        n_keys = c.extent[first + last];
    }
    __device__ __forceinline__ struct key_row row(int j) const {
        const int shift = 31 - __clz(page_rows);
        const int64_t at = (((int64_t)pages[j >> shift] << shift) + (j & (page_rows - 1))) * stride;
        return {k + at, v + at};
    }
    static __device__ __forceinline__ int extent(const call &c, int token, int n_keys) {
        (void)n_keys;
        return c.extent[token];
    }
};

#if HOPPER_DEVICE
/* What a warp has of its 16 rows and its keys so far: lane / 4 and 8 further down. */
struct part {
    float out[16][4];
    float top[2], sum[2];
};

/* Adds a tile's keys, of which the warp's begin at first_key. */
template <int WARP_KEYS>
static __device__ __forceinline__ void part_add(struct part &part, const uint32_t (&q)[8][4],
                                                uint32_t keys, uint32_t values, int first_key,
                                                const int (&extent)[2], float scale_log2) {
    constexpr int KEY_TILES = WARP_KEYS / 8;
    const int lane = threadIdx.x % 32;
    float s[KEY_TILES][4] = {};
#pragma unroll
    for (int k = 0; k < 8; k++) {
#pragma unroll
        for (int n = 0; n < KEY_TILES / 2; n++) {
            const int row = n * 16 + (lane & 7) + (lane >> 4) * 8;
            uint32_t b[4];
            matrix_load(b, tile_address(keys, row, k * 2 + ((lane >> 3) & 1)));
            matrix_multiply(s[2 * n], q[k], b[0], b[1]);
            matrix_multiply(s[2 * n + 1], q[k], b[2], b[3]);
        }
    }
    if (first_key + WARP_KEYS > min(extent[0], extent[1])) {
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = first_key + n * 8 + lane % 4 * 2 + (i & 1);
                s[n][i] = key < extent[i / 2] ? s[n][i] : NEVER;
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float peak = NEVER;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
            peak = fmaxf(peak, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        }
        peak = fmaxf(part.top[half], quad_max(peak));
        const float shrink = exp2_fast((part.top[half] - peak) * scale_log2);
        const float shift = peak > NEVER ? peak * scale_log2 : 0;
        float added = 0;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = exp2_fast(s[n][i] * scale_log2 - shift);
                added += s[n][i];
            }
        }
        part.top[half] = peak;
        part.sum[half] = part.sum[half] * shrink + added;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            part.out[i][2 * half] *= shrink;
            part.out[i][2 * half + 1] *= shrink;
        }
    }
#pragma unroll
    for (int k = 0; k < KEY_TILES / 2; k++) {
        const uint32_t p[4] = {bf16_pack(s[2 * k][0], s[2 * k][1]),
                               bf16_pack(s[2 * k][2], s[2 * k][3]),
                               bf16_pack(s[2 * k + 1][0], s[2 * k + 1][1]),
                               bf16_pack(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < 8; n++) {
            uint32_t b[4];
            matrix_load_transposed(b,
                                   tile_address(values, k * 16 + (lane & 15), n * 2 + (lane >> 4)));
            matrix_multiply(part.out[2 * n], p, b[0], b[1]);
            matrix_multiply(part.out[2 * n + 1], p, b[2], b[3]);
        }
    }
}

/* Leaves a warp's part in the block's shared memory, rows of ROW_FLOATS. */
static __device__ __forceinline__ void part_leave(const struct part &part, float *rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *row = rows + (half * 8 + lane / 4) * ROW_FLOATS;
        const float sum = quad_sum(part.sum[half]);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            *reinterpret_cast<float2 *>(row + i * 8 + lane % 4 * 2) =
                make_float2(part.out[i][2 * half], part.out[i][2 * half + 1]);
        }
        if (lane % 4 == 0) {
            row[HEAD_SIZE] = part.top[half];
            row[HEAD_SIZE + 1] = sum;
        }
    }
}

/* By a warp: a row out of all parts, four columns a lane. row: where it is in this block's first
 * part; the others are part_bytes on, OWN a block, then in the next block. */
template <int OWN>
static __device__ __forceinline__ uint2 row_merge(uint32_t row, int part_bytes, float scale_log2) {
    constexpr int N = OWN * PARTS;
    const int lane = threadIdx.x % 32;
    float2 mine = make_float2(NEVER, 0); /* peak and weight of part `lane` */
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
    KEYS keys;
    keys.open(call, request, kv_head);
    const int first = call.start[request], n_tokens = call.start[request + 1] - first;
    const int n_rows = n_tokens * group, row0 = row_tile * TILE_M;
    if (row0 >= n_rows) {
        return; /* and so does the whole cluster */
    }
    keys.reach(call, first, n_tokens, (min(row0 + TILE_M, n_rows) - 1) / group);
    const int n_tiles = (keys.n_keys + TILE_N - 1) / TILE_N;
    const int begin = n_tiles * rank / PARTS, end = n_tiles * (rank + 1) / PARTS;
    auto issue = [&](int tile) {
        if (tile < end) {
            const uint32_t to = stages + (tile - begin) % STAGES * STAGE_BYTES;
            const int chunk = threadIdx.x % 16;
#pragma unroll
            for (int i = 0; i < TILE_N * 16 / THREADS; i++) {
                const int row = i * (THREADS / 16) + threadIdx.x / 16, j = tile * TILE_N + row;
                const bool valid = j < keys.n_keys;
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
    uint32_t q[8][4];
    int extent[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + warp_m * 16 + half * 8 + lane / 4;
        const bool valid = row < n_rows;
        const int64_t token = first + (valid ? row / group : 0);
        const uint32_t *from = reinterpret_cast<const uint32_t *>(
            static_cast<const __nv_bfloat16 *>(call.q) + token * call.q_stride +
            (kv_head * group + row % group) * HEAD_SIZE);
        extent[half] = valid ? KEYS::extent(call, (int)token, keys.n_keys) : keys.n_keys;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            q[k][half] = valid ? from[k * 8 + lane % 4] : 0;
            q[k][half + 2] = valid ? from[k * 8 + 4 + lane % 4] : 0;
        }
    }
    struct part part = {};
    part.top[0] = part.top[1] = NEVER;
    for (int tile = begin; tile < end; tile++) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        issue(tile + STAGES - 1);
        const int first_key = tile * TILE_N + warp_n * WARP_KEYS;
        if (first_key < keys.n_keys) {
            const uint32_t at = stages + (tile - begin) % STAGES * STAGE_BYTES +
                                warp_n * WARP_KEYS * (HEAD_SIZE * 2);
            part_add<WARP_KEYS>(part, q, at, at + STAGE_BYTES / 2, first_key, extent, scale_log2);
        }
    }
    copy_async_wait<0>();
    __syncthreads();
    constexpr int PART_FLOATS = TILE_M * ROW_FLOATS, SHARE = TILE_M / PARTS;
    part_leave(part,
               reinterpret_cast<float *>(shared) + warp_n * PART_FLOATS + warp_m * 16 * ROW_FLOATS);
    cluster_sync();
    for (int in_tile = rank * SHARE + warp; in_tile < (rank + 1) * SHARE; in_tile += WARPS) {
        const int row = row0 + in_tile;
        const uint2 y =
            row_merge<WARPS_N>(stages + in_tile * ROW_FLOATS * 4, PART_FLOATS * 4, scale_log2);
        if (row < n_rows) {
            *reinterpret_cast<uint2 *>(static_cast<__nv_bfloat16 *>(call.y) +
                                       (first + row / group) * call.y_stride +
                                       (kv_head * group + row % group) * HEAD_SIZE + lane * 4) = y;
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
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
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
    int device, n_sms;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
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
    return call->own_cached ? cudaErrorNotSupported : few_attention<stored_keys>(call, stream);
}

extern "C" cudaError_t kernel_paged_attention_few(const struct call_paged_attention *call,
                                                  cudaStream_t stream) {
    return paged_attention_valid(call) ? few_attention<paged_keys>(call, stream)
                                       : cudaErrorInvalidValue;
}
