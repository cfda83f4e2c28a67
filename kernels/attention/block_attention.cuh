/* Where block attention is in its line of units: the cursor that walks requests, key-value heads,
 * tiles of query rows and tiles of keys, in this order from the outside in. */
#ifndef UNMASK_KERNELS_ATTENTION_BLOCK_ATTENTION_CUH
#define UNMASK_KERNELS_ATTENTION_BLOCK_ATTENTION_CUH

#include "kernels/kernels.h"

/* MAX_BLOCKS bounds the grid, and with it the counters at the head of the scratch. */
enum {
    HEAD_SIZE = 128,
    ROW_FLOATS = HEAD_SIZE + 4,
    MERGE_COLUMNS = 64,
    MAX_BLOCKS = 4096,
    MERGE_TILES = 3,
    MERGE_ROWS = 4
};

/* One request's place in the line of units, and the cursor's place in the request. */
struct cursor {
    int request, kept, n_fresh, first_row; /* first_row: the block's first token */
    int n_rows, row_tiles, cache_tiles, n_tiles;
    int kv_head, row_tile, tile;
    int64_t cache;
};

/* What a request's metadata says: loaded once, all parts at the same time. */
struct request {
    int first_row, n_fresh, kept;
    int64_t cache;
};

static __device__ __forceinline__ struct request
request_load(const struct call_block_attention &call, int r) {
    struct request request = {0, 0, 0, 0};
    if (r < call.n_requests) {
        request.first_row = call.start[r];
        request.n_fresh = call.start[r + 1];
        request.kept = call.kept[r];
        request.cache = call.cache_start[r];
        request.n_fresh -= request.first_row;
    }
    return request;
}

/* Tiles of keys that lie beside the queries and not in the cache. */
template <int TILE_N>
static __device__ __forceinline__ int fresh_tiles(const struct call_block_attention &call,
                                                  int n_fresh) {
    return call.own_cached ? 0 : (n_fresh + TILE_N - 1) / TILE_N;
}

template <int TILE_M, int TILE_N>
static __device__ __forceinline__ int request_items(const struct call_block_attention &call,
                                                    const struct request &request, int &n_tiles) {
    const int n_rows = request.n_fresh * (call.n_heads / call.n_kv_heads);
    n_tiles = (request.kept + TILE_N - 1) / TILE_N + fresh_tiles<TILE_N>(call, request.n_fresh);
    return call.n_kv_heads * ((n_rows + TILE_M - 1) / TILE_M);
}

template <int TILE_M, int TILE_N>
static __device__ __forceinline__ void cursor_enter(struct cursor &c,
                                                    const struct call_block_attention &call,
                                                    const struct request &request) {
    c.first_row = request.first_row;
    c.n_fresh = request.n_fresh;
    c.kept = request.kept;
    c.cache = request.cache;
    c.n_rows = c.n_fresh * (call.n_heads / call.n_kv_heads);
    c.row_tiles = (c.n_rows + TILE_M - 1) / TILE_M;
    c.cache_tiles = (c.kept + TILE_N - 1) / TILE_N;
    c.n_tiles = c.cache_tiles + fresh_tiles<TILE_N>(call, c.n_fresh);
}

/* Moves to the next unit; only called when there is one. */
template <int TILE_M, int TILE_N>
static __device__ __forceinline__ void cursor_next(struct cursor &c,
                                                   const struct call_block_attention &call) {
    if (++c.tile < c.n_tiles) {
        return;
    }
    c.tile = 0;
    if (++c.row_tile < c.row_tiles) {
        return;
    }
    c.row_tile = 0;
    if (++c.kv_head < call.n_kv_heads) {
        return;
    }
    c.kv_head = 0;
    do {
        c.request++;
    } while (call.start[c.request + 1] == call.start[c.request]);
    cursor_enter<TILE_M, TILE_N>(c, call, request_load(call, c.request));
}

/* The cursor of a unit, which is in the line; found by every warp for itself, with mine the
 * metadata of each lane's among the first 32 requests. */
template <int TILE_M, int TILE_N>
static __device__ __forceinline__ struct cursor cursor_at(const struct call_block_attention &call,
                                                          const struct request &mine, int unit) {
    const int lane = threadIdx.x % 32;
    struct cursor c;
    int before = 0;
    for (int base = 0;; base += 32) {
        const int r = base + lane;
        const struct request its = base == 0 ? mine : request_load(call, r);
        int n_tiles = 0;
        const int n_items = request_items<TILE_M, TILE_N>(call, its, n_tiles);
        int upto = n_items * n_tiles;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int lower = __shfl_up_sync(~0u, upto, step);
            upto += lane >= step ? lower : 0;
        }
        const unsigned past = __ballot_sync(~0u, before + upto > unit);
        if (past) {
            const int first = __ffs(past) - 1;
            const int lower = __shfl_sync(~0u, upto, first > 0 ? first - 1 : 0);
            before += first > 0 ? lower : 0;
            c.request = base + first;
            const struct request found = {
                __shfl_sync(~0u, its.first_row, first), __shfl_sync(~0u, its.n_fresh, first),
                __shfl_sync(~0u, its.kept, first), __shfl_sync(~0u, its.cache, first)};
            cursor_enter<TILE_M, TILE_N>(c, call, found);
            break;
        }
        before += __shfl_sync(~0u, upto, 31);
    }
    const int within = unit - before;
    c.tile = within % c.n_tiles;
    c.row_tile = within / c.n_tiles % c.row_tiles;
    c.kv_head = within / c.n_tiles / c.row_tiles;
    return c;
}

/* Units from a cursor to the next place in the line where an item begins. */
static __device__ __forceinline__ int units_to_item(const struct cursor &c) {
    return c.tile > 0 ? c.n_tiles - c.tile : 0;
}

#endif
