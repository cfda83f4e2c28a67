/* Where attention's keys and values come from, as template parameters of its kernels: a packed
 * cache followed by the rows of the block itself (block attention), or pages (paged attention). A
 * source says how far a tile of queries reaches (struct reach), into how many tiles its keys fall,
 * and where a tile's rows are. In between tiles the line's kernel may look up where the next tile's
 * rows are, a tile ahead. */
#ifndef UNMASK_KERNELS_ATTENTION_KEYS_CUH
#define UNMASK_KERNELS_ATTENTION_KEYS_CUH

#include "kernels/calls_block.h"
#include "kernels/device.cuh"

/* Whether the kernels take the call's shapes. */
bool block_attention_valid(const struct call_block_attention *call);
bool paged_attention_valid(const struct call_paged_attention *call);

struct key_row {
    const __nv_bfloat16 *k, *v;
};

/* Kept keys, n_keys apart from their values, then the block's own unless they are among the kept
 * ones. In tiles each of the two begins a tile of its own. */
struct stored_keys {
    typedef struct call_block_attention call;
    enum { HEAD_SIZE = 128 };
    /* Whether a request's queries reach differently far. */
    static constexpr bool RAGGED = false;

    struct reach {
        int n_kept, n_own;
        int64_t cache;

        template <int TILE_N> __device__ __forceinline__ int n_tiles() const {
            return (n_kept + TILE_N - 1) / TILE_N + (n_own + TILE_N - 1) / TILE_N;
        }
        __device__ __forceinline__ int n_keys() const {
            return n_kept + n_own;
        }
        /* Keys from a tile's first one on, of those that lie together. */
        template <int TILE_N> __device__ __forceinline__ int in_tile(int tile) const {
            const int n_cached = (n_kept + TILE_N - 1) / TILE_N;
            return tile < n_cached ? n_kept - tile * TILE_N : n_own - (tile - n_cached) * TILE_N;
        }
        __device__ __forceinline__ struct reach of_lane(int lane) const {
            return {__shfl_sync(~0u, n_kept, lane), __shfl_sync(~0u, n_own, lane),
                    __shfl_sync(~0u, cache, lane)};
        }
    };

    int n_kept;
    const __nv_bfloat16 *kept, *k, *v;
    int64_t to_values, stride; /* from a kept key to its value; from a block's key to the next */
    struct key_row tile; /* the first row of the tile at hand, and how far its rows are apart */
    int64_t tile_stride;

    /* For tokens [first, first + n_tokens) of request r, of which the tile's last is the last-th.
     */
    static __device__ __forceinline__ struct reach reach_of(const call &c, int r, int first,
                                                            int n_tokens, int last) {
        (void)first, (void)last;
        return {c.kept[r], c.own_cached ? 0 : n_tokens, c.cache_start[r]};
    }
    __device__ __forceinline__ void open(const call &c, int r, int kv_head, int first,
                                         const struct reach &reach) {
        (void)r;
        n_kept = reach.n_kept;
        stride = c.kv_stride;
        to_values = (int64_t)c.n_kv_heads * n_kept * HEAD_SIZE;
        kept = static_cast<const __nv_bfloat16 *>(c.cache) + reach.cache +
               (int64_t)kv_head * n_kept * HEAD_SIZE;
        k = static_cast<const __nv_bfloat16 *>(c.k) + first * stride + kv_head * HEAD_SIZE;
        v = static_cast<const __nv_bfloat16 *>(c.v) + first * stride + kv_head * HEAD_SIZE;
    }
    /* Row j of all; beyond the last of a tile that is not whole, any row will do. */
    __device__ __forceinline__ struct key_row row(int j) const {
        const int64_t at = j < n_kept ? (int64_t)j * HEAD_SIZE : (j - n_kept) * stride;
        return j < n_kept ? key_row{kept + at, kept + at + to_values} : key_row{k + at, v + at};
    }
    template <int TILE_N>
    __device__ __forceinline__ void look_up(int at, const struct reach &reach) {
        (void)at, (void)reach;
    }
    template <int TILE_N> __device__ __forceinline__ void open_tile(int at) {
        const int n_cached = (n_kept + TILE_N - 1) / TILE_N;
        const bool cached = at < n_cached;
        tile_stride = cached ? HEAD_SIZE : stride;
        const int64_t from = (cached ? at : at - n_cached) * TILE_N * tile_stride;
        tile.k = (cached ? kept : k) + from;
        tile.v = (cached ? kept + to_values : v) + from;
    }
    __device__ __forceinline__ struct key_row tile_row(int i, bool valid) const {
        const int64_t from = (valid ? i : 0) * tile_stride;
        return {tile.k + from, tile.v + from};
    }
    /* Keys that a token attends to at most. */
    static __device__ __forceinline__ int extent(const call &c, int token) {
        (void)c, (void)token;
        return INT32_MAX;
    }
};

/* The rows of a pool, by the pages of a request: as many as the tile's last token attends to. */
struct paged_keys {
    typedef struct call_paged_attention call;
    enum { FETCH_ROWS = 4 }; /* of a page, which has at least as many, to a lane */
    static constexpr bool RAGGED = true;

    struct reach {
        int extent;

        template <int TILE_N> __device__ __forceinline__ int n_tiles() const {
            return (extent + TILE_N - 1) / TILE_N;
        }
        __device__ __forceinline__ int n_keys() const {
            return extent;
        }
        template <int TILE_N> __device__ __forceinline__ int in_tile(int tile) const {
            return extent - tile * TILE_N;
        }
        __device__ __forceinline__ struct reach of_lane(int lane) const {
            return {__shfl_sync(~0u, extent, lane)};
        }
    };

    int page_shift, pool_row; /* where FETCH_ROWS rows of a tile are that this lane looked up */
    const int32_t *pages;
    struct key_row pool;
    int64_t stride;

    static __device__ __forceinline__ struct reach reach_of(const call &c, int r, int first,
                                                            int n_tokens, int last) {
        (void)r, (void)n_tokens;
        return {c.extent[first + last]};
    }
    __device__ __forceinline__ void open(const call &c, int r, int kv_head, int first,
                                         const struct reach &reach) {
        (void)first, (void)reach;
        page_shift = 31 - __clz(c.page_rows);
        pages = c.pages + (int64_t)r * c.max_pages;
        stride = c.kv_stride;
        pool.k = static_cast<const __nv_bfloat16 *>(c.k) + kv_head * c.head_size;
        pool.v = static_cast<const __nv_bfloat16 *>(c.v) + kv_head * c.head_size;
        pool_row = 0;
    }
    /* The row of the pool that a request's row is in. */
    __device__ __forceinline__ int in_pool(int j) const {
        return (pages[j >> page_shift] << page_shift) + (j & ((1 << page_shift) - 1));
    }
    __device__ __forceinline__ struct key_row row(int j) const {
        const int64_t at = in_pool(j) * stride;
        return {pool.k + at, pool.v + at};
    }
    template <int TILE_N>
    __device__ __forceinline__ void look_up(int at, const struct reach &reach) {
        const int lane = threadIdx.x % 32, j = at * TILE_N + lane * FETCH_ROWS;
        if (lane < TILE_N / FETCH_ROWS && j < reach.extent) {
            pool_row = in_pool(j);
        }
    }
    template <int TILE_N> __device__ __forceinline__ void open_tile(int at) {
        (void)at;
    }
    __device__ __forceinline__ struct key_row tile_row(int i, bool valid) const {
        const int base = __shfl_sync(~0u, pool_row, i / FETCH_ROWS);
        const int64_t from = valid ? (base + i % FETCH_ROWS) * stride : 0;
        return {pool.k + from, pool.v + from};
    }
    static __device__ __forceinline__ int extent(const call &c, int token) {
        return c.extent[token];
    }
};

#endif
