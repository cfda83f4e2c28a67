/* SparseD's choice: which blocks of keys each head's blocks of queries attend to the most. One
 * block of threads for each of the latter, 64 queries at a time, goes over the keys twice by
 * mma.sync: for every query's peak and sum, then for the shares, which stay in shared memory as
 * nothing else of the scores ever exists. */
#include "kernels/attention/fragments.cuh"
#include "kernels/heads.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/rules/pattern.h"

enum {
    ROWS = 64, /* queries at a time, 16 a warp */
    KEYS = 64, /* a tile */
    WARPS = PATTERN_THREADS / 32,
    SETS = 2, /* all keys, and those of the output's part */
};
static_assert(WARPS * 16 == ROWS, "a warp for 16 queries");

/* What a block of threads works on. */
struct pattern_work {
    int request, head, block, first, n, n_blocks; /* the request's first token, how many it has */
    int rest_key;                                 /* the first of the output's part */
};

template <int D> struct pattern_room {
    uint32_t keys; /* two tiles */
    float *shares; /* [SETS, n_blocks] */
    float (*columns)[WARPS][KEYS];
};

/* What one lane knows of its two rows: peaks and sums of either set of keys. */
struct pattern_rows {
    float top[SETS][2], sum[SETS][2];
    bool valid[2];
};

template <int D>
static __device__ __forceinline__ void
load_keys(const struct call_pattern &call, const struct pattern_work &work, uint32_t to, int tile) {
    typedef struct row_copy<D, PATTERN_THREADS> copy;
    const int chunk = threadIdx.x % copy::LANES;
    const int kv_head = work.head / (call.n_heads / call.n_kv_heads);
    const __nv_bfloat16 *k = static_cast<const __nv_bfloat16 *>(call.k) +
                             (int64_t)work.first * call.kv_stride + kv_head * D + chunk * 8;
#pragma unroll
    for (int i = 0; i < KEYS / copy::ROWS; i++) {
        const int row = i * copy::ROWS + threadIdx.x / copy::LANES, key = tile * KEYS + row;
        const bool valid = key < work.n;
#pragma unroll
        for (int c = 0; c < copy::CHUNKS * copy::LANES; c += copy::LANES) {
            copy_async(tile_address<D>(to, row, chunk + c),
                       k + (valid ? key : 0) * call.kv_stride + c * 8, valid);
        }
    }
}

/* Scores of the warp's 16 rows against a tile; NEVER past the last key. */
template <int D>
static __device__ __forceinline__ void
score_tile(float (&s)[KEYS / 8][4], const uint32_t (&q)[D / 16][4], uint32_t keys, int n_keys) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
    }
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            matrix_load(b, tile_address<D>(keys, n * 16 + (lane & 7) + (lane >> 4) * 8,
                                           k * 2 + ((lane >> 3) & 1)));
            matrix_multiply(s[2 * n], q[k], b[0], b[1]);
            matrix_multiply(s[2 * n + 1], q[k], b[2], b[3]);
        }
    }
    if (n_keys < KEYS) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[n][i] = n * 8 + lane % 4 * 2 + (i & 1) < n_keys ? s[n][i] : ATTENTION_NEVER;
            }
        }
    }
}

/* Goes over all tiles of keys: what(tile, scores). */
template <int D, class WHAT>
static __device__ __forceinline__ void
over_keys(const struct call_pattern &call, const struct pattern_work &work,
          const uint32_t (&q)[D / 16][4], uint32_t keys, WHAT what) {
    constexpr uint32_t TILE = KEYS * D * 2;
    const int n_tiles = (work.n + KEYS - 1) / KEYS;
    load_keys<D>(call, work, keys, 0);
    copy_async_commit();
    for (int tile = 0; tile < n_tiles; tile++) {
        copy_async_wait<0>();
        __syncthreads(); /* this tile is here, and the one before it was read */
        if (tile + 1 < n_tiles) {
            load_keys<D>(call, work, keys + (~tile & 1) * TILE, tile + 1);
        }
        copy_async_commit();
        float s[KEYS / 8][4];
        score_tile<D>(s, q, keys + (tile & 1) * TILE, work.n - tile * KEYS);
        what(tile, s);
    }
    copy_async_wait<0>();
    __syncthreads();
}

/* Peak and sum of one set grow by the tile's keys from `from` on. */
static __device__ __forceinline__ void
grow(float (&top)[2], float (&sum)[2], const float (&s)[KEYS / 8][4], int from, float scale_log2) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float peak = top[half];
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            const int key = i / 2 * 8 + lane % 4 * 2 + (i & 1);
            const float x = s[i / 2][2 * half + (i & 1)];
            peak = key >= from ? fmaxf(peak, x) : peak;
        }
        peak = quad_max(peak);
        float added = 0;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            const int key = i / 2 * 8 + lane % 4 * 2 + (i & 1);
            const float x = s[i / 2][2 * half + (i & 1)];
            added += key >= from ? exp2_fast((x - peak) * scale_log2) : 0.0f;
        }
        sum[half] = sum[half] * exp2_fast((top[half] - peak) * scale_log2) + added;
        top[half] = peak;
    }
}

/* The lane's probability of its key i of a tile, summed over its two rows. */
static __device__ __forceinline__ float both_rows(const struct pattern_rows &rows, int set,
                                                  const float (&s)[KEYS / 8][4], int i,
                                                  float scale_log2) {
    float p = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float x = s[i / 2][2 * half + (i & 1)];
        p += rows.valid[half]
                 ? exp2_fast((x - rows.top[set][half]) * scale_log2) * rows.sum[set][half]
                 : 0.0f;
    }
    return p;
}

/* Adds a tile's probabilities to the shares of one set; sums are 1 over the rows' sums by now. */
template <int D>
static __device__ __forceinline__ void
add_tile(const struct call_pattern &call, const struct pattern_work &work,
         const struct pattern_room<D> &room, const struct pattern_rows &rows, int set,
         const float (&s)[KEYS / 8][4], int tile, float scale_log2) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = tile * KEYS;
    const int from = set == 0 ? 0 : work.rest_key - first, tokens = call.block_tokens;
    const int first_block = set == 0 ? 0 : work.rest_key / tokens;
    float *shares = room.shares + set * work.n_blocks;
    const bool whole = tokens % KEYS == 0; /* a tile lies in one block */
    float all = 0;
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) {
        const int key = i / 2 * 8 + lane % 4 * 2 + (i & 1);
        float p = key >= from && first + key < work.n ? both_rows(rows, set, s, i, scale_log2) : 0;
        all += p;
        if (!whole) {
#pragma unroll
            for (int step = 4; step < 32; step *= 2) {
                p += __shfl_xor_sync(~0u, p, step);
            }
            if (lane < 4) {
                room.columns[set][warp][key] = p;
            }
        }
    }
    if (whole) {
        all = warp_sum(all);
        if (lane == 0) {
            room.columns[set][warp][0] = all;
        }
    }
    __syncthreads();
    /* The tile's blocks, at most one a key. */
    const int block = first / tokens + threadIdx.x;
    const int begin = max(block * tokens - first, 0), end = min((block + 1) * tokens - first, KEYS);
    if (threadIdx.x < KEYS && begin < end && block >= first_block && block < work.n_blocks) {
        float sum = 0;
        for (int key = whole ? 0 : begin; key < (whole ? 1 : end); key++) {
            for (int w = 0; w < WARPS; w++) {
                sum += room.columns[set][w][key];
            }
        }
        shares[block - first_block] += sum;
    }
    __syncthreads();
}

/* The shares of the block's queries from row0 on, ROWS of them at most. */
template <int D>
static __device__ __forceinline__ void
add_queries(const struct call_pattern &call, const struct pattern_work &work,
            const struct pattern_room<D> &room, int row0, int n_rows, float scale_log2) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const struct item_rows item = {work.first + row0, n_rows, 1, work.head};
    uint32_t q[D / 16][4];
    query_load<D>(q, call.q, call.q_stride, item, warp * 16);
    struct pattern_rows rows;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        rows.valid[half] = warp * 16 + half * 8 + lane / 4 < n_rows;
        rows.top[0][half] = rows.top[1][half] = ATTENTION_NEVER;
        rows.sum[0][half] = rows.sum[1][half] = 0;
    }
    over_keys<D>(call, work, q, room.keys, [&](int tile, const float(&s)[KEYS / 8][4]) {
        grow(rows.top[0], rows.sum[0], s, 0, scale_log2);
        if ((tile + 1) * KEYS > work.rest_key) {
            grow(rows.top[1], rows.sum[1], s, work.rest_key - tile * KEYS, scale_log2);
        }
    });
#pragma unroll
    for (int i = 0; i < SETS * 2; i++) {
        rows.sum[i / 2][i % 2] = 1.0f / quad_sum(rows.sum[i / 2][i % 2]);
    }
    over_keys<D>(call, work, q, room.keys, [&](int tile, const float(&s)[KEYS / 8][4]) {
        add_tile<D>(call, work, room, rows, 0, s, tile, scale_log2);
        if ((tile + 1) * KEYS > work.rest_key) {
            add_tile<D>(call, work, room, rows, 1, s, tile, scale_log2);
        }
    });
}

/* The keep-th largest of n shares, which are not negative, so that their bits are in their order;
 * *over: how many are larger. By all threads. */
static __device__ __forceinline__ uint32_t least_kept(const float *shares, int n, int keep,
                                                      int *over) {
    auto count = [&](uint32_t least) {
        int sum = 0;
        for (int base = 0; base < n; base += PATTERN_THREADS) {
            const int i = base + threadIdx.x;
            sum += __syncthreads_count(i < n && __float_as_uint(shares[i]) >= least);
        }
        return sum;
    };
    uint32_t least = 0;
    for (int bit = 30; bit >= 0; bit--) {
        const uint32_t tried = least | 1u << bit;
        least = count(tried) >= keep ? tried : least;
    }
    *over = count(least + 1);
    return least;
}

/* By one warp: whether the lane's block i of a set is kept; blocks come 32 at a time, in order. */
struct kept_set {
    const float *shares;
    uint32_t least;
    int n, left; /* of those that are as large as the least, how many are still kept */

    __device__ __forceinline__ bool next(int i) {
        const bool inside = i >= 0 && i < n;
        const uint32_t bits = inside ? __float_as_uint(shares[i]) : 0;
        const unsigned ties = __ballot_sync(~0u, inside && bits == least);
        const int before = __popc(ties & ((1u << threadIdx.x) - 1));
        const bool kept = inside && (bits > least || (bits == least && before < left));
        left = max(left - __popc(ties), 0);
        return kept;
    }
};

static __device__ __forceinline__ void
write_words(const struct call_pattern &call, const struct pattern_work &work, const float *shares) {
    const int rest = call.rest[work.request], n = work.n_blocks;
    const int keep = call.keep[work.request], keep_rest = call.keep_rest[work.request];
    int over, over_rest;
    const uint32_t least = least_kept(shares, n, keep, &over);
    const uint32_t least_rest = least_kept(shares + n, n - rest, keep_rest, &over_rest);
    if (threadIdx.x >= 32) {
        return;
    }
    struct kept_set all = {shares, least, n, keep - over};
    struct kept_set output = {shares + n, least_rest, n - rest, keep_rest - over_rest};
    uint32_t *words = pattern_words_of(call.cache, sizeof(__nv_bfloat16),
                                       call.cache_start[work.request], n, work.head, work.block);
    for (int word = 0; word < pattern_n_words(n); word++) {
        const int block = word * PATTERN_WORD_BITS + threadIdx.x;
        const bool of_all = all.next(block), of_output = output.next(block - rest);
        const unsigned bits = __ballot_sync(~0u, block < rest ? of_all : of_output);
        if (threadIdx.x == 0) {
            words[word] = bits;
        }
    }
}

template <int D>
static __global__ void __launch_bounds__(PATTERN_THREADS)
    pattern_kernel(const struct call_pattern call, float scale_log2) {
    dependencies_wait();
    dependents_launch();
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ float columns[SETS][WARPS][KEYS];
    struct pattern_work work = {(int)blockIdx.z, (int)blockIdx.y, (int)blockIdx.x};
    work.first = call.start[work.request];
    work.n = call.start[work.request + 1] - work.first;
    work.n_blocks = pattern_n_blocks(work.n, call.block_tokens);
    if (work.block >= work.n_blocks) {
        return;
    }
    work.rest_key = call.rest[work.request] * call.block_tokens;
    const struct pattern_room<D> room = {
        shared_address(shared), reinterpret_cast<float *>(shared + 2 * KEYS * D * 2), columns
    };
    for (int i = threadIdx.x; i < SETS * work.n_blocks; i += PATTERN_THREADS) {
        room.shares[i] = 0;
    }
    const int end = min((work.block + 1) * call.block_tokens, work.n);
    for (int row0 = work.block * call.block_tokens; row0 < end; row0 += ROWS) {
        add_queries<D>(call, work, room, row0, min(end - row0, (int)ROWS), scale_log2);
    }
    __syncthreads();
    write_words(call, work, room.shares);
}

static int64_t most_blocks(const struct call_pattern *call) {
    return (call->max_tokens + (int64_t)call->block_tokens - 1) / call->block_tokens;
}

static bool pattern_valid(const struct call_pattern *call) {
    return call->dtype == KERNEL_BF16 && is_head_size(call->head_size) && call->n_requests >= 0 &&
           call->n_requests <= 65535 && call->n_kv_heads > 0 && call->n_heads > 0 &&
           call->n_heads <= 65535 && call->n_heads % call->n_kv_heads == 0 &&
           call->q_stride % 8 == 0 && call->kv_stride % 8 == 0 && call->max_tokens >= 0 &&
           call->block_tokens > 0 && most_blocks(call) <= PATTERN_MAX_BLOCKS;
}

template <int D> static cudaError_t start(const struct call_pattern *call, cudaStream_t stream) {
    const int64_t n_blocks = most_blocks(call);
    const int bytes = (int)PATTERN_BYTES(D, n_blocks);
    const cudaError_t status = shared_allow(pattern_kernel<D>, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const dim3 grid((unsigned)n_blocks, (unsigned)call->n_heads, (unsigned)call->n_requests);
    launch(pattern_kernel<D>, grid, PATTERN_THREADS, bytes, stream, *call,
           1.44269504088896341f * call->scale);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_pattern(const struct call_pattern *call, cudaStream_t stream) {
    if (!pattern_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests == 0 || call->max_tokens == 0) {
        return cudaSuccess;
    }
    return by_head_size(call->head_size,
                        [&](auto head) { return start<decltype(head)::SIZE>(call, stream); });
}
