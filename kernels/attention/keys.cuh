/* Where attention's keys and values come from, as template parameters of its kernels: a packed
 * cache followed by the rows of the block itself (block attention), or pages (paged attention). A
 * source says how far a tile of queries reaches (struct reach), into how many tiles its keys fall,
 * and where rows are: any row of an open source, or a tile's rows, for which something may be
 * looked up a tile ahead. */
#ifndef UNMASK_KERNELS_ATTENTION_KEYS_CUH
#define UNMASK_KERNELS_ATTENTION_KEYS_CUH

#include "kernels/calls.h"
#include "kernels/device.cuh"
#include "kernels/fp8.h"

/* Whether the kernels take the call's shapes. */
bool block_attention_valid(const struct call_block_attention *call);
bool paged_attention_valid(const struct call_paged_attention *call);

struct key_row {
    const __nv_bfloat16 *k, *v;
};

/* A row that may be one of fp8, whose k and v are codes. */
struct fp8_key_row {
    const unsigned char *k, *v;
    const float *k_scale, *v_scale;
};

/* The rows of a tile, and whether they are of fp8; strides are in bytes. */
struct fp8_key_tile {
    const unsigned char *k, *v;
    const float *k_scale, *v_scale;
    int64_t stride, scale_stride;
    bool narrow, odd; /* odd: rows are not multiples of 8 bytes */

    __device__ __forceinline__ struct fp8_key_row at(int64_t row) const {
        const int64_t scale = row * scale_stride / (int64_t)sizeof(float);
        return {k + row * stride, v + row * stride, k_scale + scale, v_scale + scale};
    }
};

/* Kept keys, n_keys apart from their values, then the block's own unless they are among the kept
 * ones. In tiles each of the two begins a tile of its own. */
template <int D> struct stored_keys {
    typedef struct call_block_attention call;
    enum { HEAD_SIZE = D };
    /* Whether a request's queries reach differently far, whether cached rows are in fp8, and
     * whether queries leave some out. */
    static constexpr bool RAGGED = false, FP8 = false, LEAVES_OUT = false;

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
    /* A tile's rows: where the first one is, from the column that a thread copies, and how far they
     * are apart. */
    struct tile {
        const __nv_bfloat16 *k, *v;
        int64_t stride;

        __device__ __forceinline__ struct key_row row(int i, bool valid, int looked_up) const {
            (void)looked_up;
            const int64_t from = (valid ? i : 0) * stride;
            return {k + from, v + from};
        }
    };
    template <int TILE_N>
    static __device__ __forceinline__ struct tile
    tile_at(const call &c, int kv_head, int first, const struct reach &reach, int at, int column) {
        const int n_cached = (reach.n_kept + TILE_N - 1) / TILE_N;
        const bool cached = at < n_cached;
        const int64_t base =
            cached ? reach.cache + ((int64_t)kv_head * reach.n_kept + at * TILE_N) * HEAD_SIZE
                   : (first + (at - n_cached) * TILE_N) * c.kv_stride + kv_head * HEAD_SIZE;
        const __nv_bfloat16 *k =
            static_cast<const __nv_bfloat16 *>(cached ? c.cache : c.k) + base + column;
        const __nv_bfloat16 *v = cached ? k + (int64_t)c.n_kv_heads * reach.n_kept * HEAD_SIZE
                                        : static_cast<const __nv_bfloat16 *>(c.v) + base + column;
        return {k, v, cached ? (int64_t)HEAD_SIZE : c.kv_stride};
    }
    template <int TILE_N>
    static __device__ __forceinline__ int look_up(const call &c, int r, int at,
                                                  const struct reach &reach) {
        (void)c, (void)r, (void)at, (void)reach;
        return 0;
    }
    /* How many keys a token attends to at most. */
    static __device__ __forceinline__ int extent(const call &c, int token) {
        (void)c, (void)token;
        return INT32_MAX;
    }
};

/* The rows of a pool, by the pages of a request: as many as the tile's last token attends to. */
struct paged_keys {
    typedef struct call_paged_attention call;
    enum { FETCH_ROWS = 4 }; /* of a page, which has at least as many, to a lane */
    static constexpr bool RAGGED = true, FP8 = false, LEAVES_OUT = false;

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

    int page_shift;
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
    }
    /* The row of the pool that a request's row is in. */
    __device__ __forceinline__ int in_pool(int j) const {
        return (pages[j >> page_shift] << page_shift) + (j & ((1 << page_shift) - 1));
    }
    __device__ __forceinline__ struct key_row row(int j) const {
        const int64_t at = in_pool(j) * stride;
        return {pool.k + at, pool.v + at};
    }
    struct tile {
        const __nv_bfloat16 *k, *v;
        int64_t stride;

        __device__ __forceinline__ struct key_row row(int i, bool valid, int looked_up) const {
            const int base = __shfl_sync(~0u, looked_up, i / FETCH_ROWS);
            const int64_t from = valid ? (base + i % FETCH_ROWS) * stride : 0;
            return {k + from, v + from};
        }
    };
    template <int TILE_N>
    static __device__ __forceinline__ struct tile
    tile_at(const call &c, int kv_head, int first, const struct reach &reach, int at, int column) {
        (void)first, (void)reach, (void)at;
        const int64_t from = kv_head * c.head_size + column;
        return {static_cast<const __nv_bfloat16 *>(c.k) + from,
                static_cast<const __nv_bfloat16 *>(c.v) + from, c.kv_stride};
    }
    /* Where in the pool FETCH_ROWS rows of the tile are, a lane each. */
    template <int TILE_N>
    static __device__ __forceinline__ int look_up(const call &c, int r, int at,
                                                  const struct reach &reach) {
        const int lane = threadIdx.x % 32, j = at * TILE_N + lane * FETCH_ROWS;
        if (lane >= TILE_N / FETCH_ROWS || j >= reach.extent) {
            return 0;
        }
        const int shift = 31 - __clz(c.page_rows);
        const int page = c.pages[(int64_t)r * c.max_pages + (j >> shift)];
        return (page << shift) + (j & ((1 << shift) - 1));
    }
    static __device__ __forceinline__ int extent(const call &c, int token) {
        return c.extent[token];
    }
};

/* The same of queries some of which leave rows out. */
struct checked_keys : paged_keys {
    static constexpr bool LEAVES_OUT = true;

    static __device__ __forceinline__ int before(const call &c, int token) {
        return c.before[token];
    }
};

/* The same where cached rows are in fp8; only of tiles. */
template <int D> struct stored_fp8_keys : stored_keys<D> {
    typedef struct call_block_attention call;
    static constexpr bool FP8 = true;

    template <int TILE_N>
    static __device__ __forceinline__ bool is_narrow(const typename stored_keys<D>::reach &reach,
                                                     int at) {
        return at < (reach.n_kept + TILE_N - 1) / TILE_N;
    }
    struct tile : fp8_key_tile {
        __device__ __forceinline__ struct fp8_key_row row(int i, bool valid, int looked_up) const {
            (void)looked_up;
            return this->at(valid ? i : 0);
        }
    };
    template <int TILE_N>
    static __device__ __forceinline__ struct tile
    tile_at(const call &c, int kv_head, int first, const typename stored_keys<D>::reach &reach,
            int at, int column) {
        constexpr int64_t SCALES = (D + FP8_HEAD_GROUP - 1) / FP8_HEAD_GROUP;
        const int n_cached = (reach.n_kept + TILE_N - 1) / TILE_N, n_heads = c.n_kv_heads;
        struct tile tile;
        tile.narrow = at < n_cached;
        tile.odd = false;
        if (tile.narrow) {
            const unsigned char *cache = static_cast<const unsigned char *>(c.cache) + reach.cache;
            const struct fp8_place k =
                fp8_packed(n_heads, reach.n_kept, D, kv_head, (int64_t)at * TILE_N);
            const struct fp8_place v =
                fp8_packed(n_heads, reach.n_kept, D, n_heads + kv_head, (int64_t)at * TILE_N);
            const int group = column / FP8_HEAD_GROUP;
            tile.k = cache + k.codes + column;
            tile.v = cache + v.codes + column;
            tile.k_scale = reinterpret_cast<const float *>(cache + k.scales) + group;
            tile.v_scale = reinterpret_cast<const float *>(cache + v.scales) + group;
            tile.stride = D;
            tile.scale_stride = SCALES * (int64_t)sizeof(float);
        } else {
            const int64_t from = (first + (at - n_cached) * TILE_N) * c.kv_stride + kv_head * D;
            const __nv_bfloat16 *k = static_cast<const __nv_bfloat16 *>(c.k) + from + column;
            const __nv_bfloat16 *v = static_cast<const __nv_bfloat16 *>(c.v) + from + column;
            tile.k = reinterpret_cast<const unsigned char *>(k);
            tile.v = reinterpret_cast<const unsigned char *>(v);
            tile.k_scale = tile.v_scale = nullptr;
            tile.stride = c.kv_stride * 2;
            tile.scale_stride = 0;
        }
        return tile;
    }
};

template <int D> struct paged_fp8_keys : paged_keys {
    static constexpr bool FP8 = true;

    template <int TILE_N>
    static __device__ __forceinline__ bool is_narrow(const struct reach &reach, int at) {
        (void)reach, (void)at;
        return true;
    }
    struct tile : fp8_key_tile {
        __device__ __forceinline__ struct fp8_key_row row(int i, bool valid, int looked_up) const {
            const int base = __shfl_sync(~0u, looked_up, i / FETCH_ROWS);
            return this->at(valid ? base + i % FETCH_ROWS : 0);
        }
    };
    template <int TILE_N>
    static __device__ __forceinline__ struct tile
    tile_at(const call &c, int kv_head, int first, const struct reach &reach, int at, int column) {
        (void)first, (void)reach, (void)at;
        const struct fp8_place place = fp8_paged(c.n_kv_heads, D, kv_head);
        const unsigned char *k = static_cast<const unsigned char *>(c.k);
        const unsigned char *v = static_cast<const unsigned char *>(c.v);
        const int64_t scale = place.scales + column / FP8_HEAD_GROUP * (int64_t)sizeof(float);
        struct tile tile;
        tile.narrow = true;
        tile.odd = c.kv_stride % 8 != 0;
        tile.k = k + place.codes + column;
        tile.v = v + place.codes + column;
        tile.k_scale = reinterpret_cast<const float *>(k + scale);
        tile.v_scale = reinterpret_cast<const float *>(v + scale);
        tile.stride = tile.scale_stride = c.kv_stride;
        return tile;
    }
};

#endif
