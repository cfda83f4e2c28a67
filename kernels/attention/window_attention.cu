/* Paged attention whose queries see a window of keys, and that of heads of 512 channels. A block
 * has 64 rows of a key-value head (queries of its group's heads) in four pairs of warps: of a tile
 * of keys either warp of a pair scores half for their 16 rows, and, with the probabilities of both,
 * sums half of the channels, so that 16 rows of 512 channels fit in a pair's registers. Tiles begin
 * at multiples of their keys: a row's bits follow from its own keys. */
#include "kernels/attention/fragments.cuh"
#include "kernels/heads.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum { TILE_ROWS = 64, PAIRS = 4 };

/* The keys that any row of a block attends to. */
struct key_range {
    int begin, end;
};

static __device__ __forceinline__ int first_key(const struct call_paged_attention &call,
                                                int token) {
    return call.local_window > 0 ? max(0, call.positions[token] - call.local_window + 1) : 0;
}

static __device__ __forceinline__ struct key_range range_of(const struct call_paged_attention &call,
                                                            int token, int last) {
    struct key_range range = {INT32_MAX, 0};
    for (; token <= last; token++) {
        range.begin = min(range.begin, first_key(call, token));
        range.end = max(range.end, call.extent[token]);
    }
    return range;
}

static __device__ __forceinline__ void pair_sync(int pair) {
    asm volatile("bar.sync %0, 64;\n" ::"r"(1 + pair) : "memory");
}

/* The rows of q that a block has, from row0 of a request on; zeros past the last. */
template <int D>
static __device__ __forceinline__ void fetch_queries(const struct call_paged_attention &call,
                                                     const struct item_rows &rows, int row0,
                                                     uint32_t to) {
    for (int i = threadIdx.x; i < TILE_ROWS * (D / 8); i += WINDOW_THREADS) {
        const int row = i / (D / 8), chunk = i % (D / 8);
        const bool valid = row0 + row < rows.n_rows;
        const __nv_bfloat16 *from = static_cast<const __nv_bfloat16 *>(call.q) +
                                    row_at<D>(rows, valid ? row0 + row : 0, call.q_stride);
        copy_async(tile_address<D>(to, row, chunk), from + chunk * 8, valid);
    }
}

/* A tile of keys and its values; zeros outside the range, whatever pages hold there. */
template <int D>
static __device__ __forceinline__ void
fetch_tile(const struct call_paged_attention &call, const int32_t *pages, int kv_head, int tile,
           const struct key_range &range, uint32_t keys, uint32_t values) {
    constexpr int TILE_KEYS = WINDOW_TILE_KEYS(D);
    for (int i = threadIdx.x; i < TILE_KEYS * (D / 8); i += WINDOW_THREADS) {
        const int row = i / (D / 8), chunk = i % (D / 8), key = tile * TILE_KEYS + row;
        const bool valid = key >= range.begin && key < range.end;
        const int in_pool =
            valid ? pages[key / call.page_rows] * call.page_rows + key % call.page_rows : 0;
        const int64_t at = (int64_t)in_pool * call.kv_stride + kv_head * D + chunk * 8;
        copy_async(tile_address<D>(keys, row, chunk),
                   static_cast<const __nv_bfloat16 *>(call.k) + at, valid);
        copy_async(tile_address<D>(values, row, chunk),
                   static_cast<const __nv_bfloat16 *>(call.v) + at, valid);
    }
}

/* Scores of the warp's 16 rows with its half of a tile's keys. */
template <int D, int KEY_TILES>
static __device__ __forceinline__ void score(float (&s)[KEY_TILES][4], uint32_t queries,
                                             uint32_t keys, int row0, int key0) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
    }
#pragma unroll 4
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4];
        matrix_load(a, tile_address<D>(queries, row0 + (lane & 15), k * 2 + (lane >> 4)));
#pragma unroll
        for (int n = 0; n < KEY_TILES / 2; n++) {
            const int row = key0 + n * 16 + (lane & 7) + (lane >> 4) * 8;
            uint32_t b[4];
            matrix_load(b, tile_address<D>(keys, row, k * 2 + ((lane >> 3) & 1)));
            matrix_multiply(s[2 * n], a, b[0], b[1]);
            matrix_multiply(s[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* What a warp has of its 16 rows: sums of half their channels, peaks, and sums of the weights of
 * its own half of the keys. */
template <int D> struct half_part {
    float out[D / 16][4];
    float top[2], sum[2];
};

/* The largest of a warp's scores of each row, for the other warp of its pair. */
template <int KEY_TILES>
static __device__ __forceinline__ void leave_peaks(const float (&s)[KEY_TILES][4], float *peaks) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float peak = row_peak(s, half);
        if (threadIdx.x % 4 == 0) {
            peaks[half * 8] = peak;
        }
    }
}

/* Scores become weights, in shared memory; what came before shrinks to the new peaks. */
template <int D, int TILE_KEYS, int KEY_TILES>
static __device__ __forceinline__ void
weigh(struct half_part<D> &part, const float (&s)[KEY_TILES][4], const float *peaks, int row0,
      uint32_t weights, int first_chunk, float scale_log2) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + half * 8 + lane / 4;
        const float peak = fmaxf(part.top[half], fmaxf(peaks[row], peaks[TILE_ROWS + row]));
        const float shrink = exp2_fast((part.top[half] - peak) * scale_log2);
        const float shift = peak > ATTENTION_NEVER ? peak * scale_log2 : 0;
        float added = 0;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
            const float low = exp2_fast(s[n][2 * half] * scale_log2 - shift);
            const float high = exp2_fast(s[n][2 * half + 1] * scale_log2 - shift);
            const uint32_t to =
                tile_address<TILE_KEYS>(weights, row, first_chunk + n) + lane % 4 * 4;
            asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(to), "r"(bf16_pack(low, high))
                         : "memory");
            added += low + high;
        }
        part.top[half] = peak;
        part.sum[half] = part.sum[half] * shrink + added;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            part.out[i][2 * half] *= shrink;
            part.out[i][2 * half + 1] *= shrink;
        }
    }
}

/* Adds the tile's values, half their channels from chunk first_chunk on. */
template <int D, int TILE_KEYS>
static __device__ __forceinline__ void add_values(struct half_part<D> &part, uint32_t weights,
                                                  uint32_t values, int row0, int first_chunk) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < TILE_KEYS / 16; k++) {
        uint32_t p[4];
        matrix_load(p, tile_address<TILE_KEYS>(weights, row0 + (lane & 15), k * 2 + (lane >> 4)));
#pragma unroll
        for (int n = 0; n < D / 32; n++) {
            uint32_t b[4];
            matrix_load_transposed(b, tile_address<D>(values, k * 16 + (lane & 15),
                                                      first_chunk + n * 2 + (lane >> 4)));
            matrix_multiply(part.out[2 * n], p, b[0], b[1]);
            matrix_multiply(part.out[2 * n + 1], p, b[2], b[3]);
        }
    }
}

template <int D>
static __global__ void __launch_bounds__(WINDOW_THREADS, 1)
    window_attention_kernel(const __grid_constant__ struct call_paged_attention call,
                            float scale_log2) {
    dependencies_wait();
    dependents_launch();
    constexpr int TILE_KEYS = WINDOW_TILE_KEYS(D), HALF = TILE_KEYS / 2, KEY_TILES = HALF / 8;
    constexpr int TILE_BYTES = TILE_KEYS * D * 2;
    extern __shared__ __align__(128) unsigned char shared[];
    const int group = call.n_heads / call.n_kv_heads, request = blockIdx.z;
    const int start = call.start[request], row0 = blockIdx.x * TILE_ROWS;
    const struct item_rows rows = {start, (call.start[request + 1] - start) * group, group,
                                   (int)blockIdx.y * group};
    if (row0 >= rows.n_rows) {
        return;
    }
    const int lane = threadIdx.x % 32, pair = threadIdx.x / 64, half_of = threadIdx.x / 32 % 2;
    const int mine = pair * 16 + lane / 4; /* the lane's first row of the tile */
    const int last_row = min(row0 + TILE_ROWS, rows.n_rows) - 1;
    const struct key_range range = range_of(call, start + row0 / group, start + last_row / group);
    const int32_t *pages = call.pages + (int64_t)request * call.max_pages;
    const uint32_t queries = shared_address(shared), ring = queries + TILE_ROWS * D * 2;
    const uint32_t weights = ring + 4 * TILE_BYTES;
    float *peaks =
        reinterpret_cast<float *>(shared + (weights - queries) + TILE_ROWS * TILE_KEYS * 2);
    float *sums = peaks + 2 * TILE_ROWS;
    struct half_part<D> part = {
        {}, {ATTENTION_NEVER, ATTENTION_NEVER}, {
            0, 0
        }
    };
    int from[2], extent[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + mine + half * 8;
        const bool valid = row < rows.n_rows;
        from[half] = valid ? first_key(call, start + row / group) : 0;
        extent[half] = valid ? call.extent[start + row / group] : 0;
    }
    const int first_tile = range.begin / TILE_KEYS, past = (range.end + TILE_KEYS - 1) / TILE_KEYS;
    fetch_queries<D>(call, rows, row0, queries);
    fetch_tile<D>(call, pages, blockIdx.y, first_tile, range, ring, ring + TILE_BYTES);
    copy_async_commit();
    for (int tile = first_tile; tile < past; tile++) {
        const uint32_t keys = ring + (tile - first_tile) % 2 * 2 * TILE_BYTES;
        copy_async_wait<0>();
        __syncthreads();
        if (tile + 1 < past) {
            const uint32_t next = ring + (tile + 1 - first_tile) % 2 * 2 * TILE_BYTES;
            fetch_tile<D>(call, pages, blockIdx.y, tile + 1, range, next, next + TILE_BYTES);
        }
        copy_async_commit();
        float s[KEY_TILES][4];
        score<D, KEY_TILES>(s, queries, keys, pair * 16, half_of * HALF);
        const int key0 = tile * TILE_KEYS + half_of * HALF + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = key0 + n * 8 + (i & 1);
                s[n][i] = key >= from[i / 2] && key < extent[i / 2] ? s[n][i] : ATTENTION_NEVER;
            }
        }
        leave_peaks(s, peaks + half_of * TILE_ROWS + mine);
        pair_sync(pair);
        weigh<D, TILE_KEYS>(part, s, peaks, pair * 16, weights, half_of * (HALF / 8), scale_log2);
        pair_sync(pair);
        add_values<D, TILE_KEYS>(part, weights, keys + TILE_BYTES, pair * 16, half_of * (D / 16));
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(part.sum[half]);
        if (lane % 4 == 0) {
            sums[half_of * TILE_ROWS + mine + half * 8] = sum;
        }
    }
    pair_sync(pair);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int in_tile = mine + half * 8, row = row0 + in_tile;
        const float scale = 1.0f / (sums[in_tile] + sums[TILE_ROWS + in_tile]);
        if (row < rows.n_rows) {
            uint32_t *to = reinterpret_cast<uint32_t *>(static_cast<__nv_bfloat16 *>(call.y) +
                                                        row_at<D>(rows, row, call.y_stride) +
                                                        half_of * (D / 2));
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                to[i * 4 + lane % 4] =
                    bf16_pack(part.out[i][2 * half] * scale, part.out[i][2 * half + 1] * scale);
            }
        }
    }
}

template <int D>
static cudaError_t start(const struct call_paged_attention *call, cudaStream_t stream) {
    static_assert(WINDOW_THREADS == PAIRS * 64 && TILE_ROWS == PAIRS * 16, "a pair has 16 rows");
    const int64_t n_rows = (int64_t)call->max_queries * (call->n_heads / call->n_kv_heads);
    const dim3 grid((unsigned)((n_rows + TILE_ROWS - 1) / TILE_ROWS), (unsigned)call->n_kv_heads,
                    (unsigned)call->n_requests);
    int most_bytes;
    cudaError_t status = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, &most_bytes);
    if (status == cudaSuccess && most_bytes < WINDOW_BYTES(D)) {
        return cudaErrorNotSupported;
    }
    status =
        status == cudaSuccess ? shared_allow(window_attention_kernel<D>, WINDOW_BYTES(D)) : status;
    if (status != cudaSuccess) {
        return status;
    }
    launch(window_attention_kernel<D>, grid, WINDOW_THREADS, WINDOW_BYTES(D), stream, *call,
           1.44269504088896341f / sqrtf((float)D));
    return cudaGetLastError();
}

static bool valid(const struct call_paged_attention *call) {
    const int rows = call->page_rows;
    return call->dtype == KERNEL_BF16 && !call->cache_fp8 && !call->before &&
           is_wide_head_size(call->head_size) && call->n_heads > 0 && call->n_kv_heads > 0 &&
           call->n_heads % call->n_kv_heads == 0 && call->n_kv_heads <= UINT16_MAX &&
           call->n_requests >= 0 && call->n_requests <= UINT16_MAX && rows >= 4 && rows <= 256 &&
           (rows & (rows - 1)) == 0 && call->q_stride % 8 == 0 && call->kv_stride % 8 == 0 &&
           call->y_stride % 8 == 0 && call->max_queries >= 0 &&
           call->max_extent <= (int64_t)call->max_pages * rows && call->local_window >= 0 &&
           (call->local_window == 0 || call->positions);
}

extern "C" cudaError_t kernel_paged_attention_window(const struct call_paged_attention *call,
                                                     cudaStream_t stream) {
    if (!valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests == 0 || call->max_queries == 0) {
        return cudaSuccess;
    }
    return by_wide_head_size(call->head_size,
                             [&](auto head) { return start<decltype(head)::SIZE>(call, stream); });
}
