/* What the two paths of paged attention share: where a block of the grid is in the line of units.
 * An item is (request, key-value head, tile of queries); a tile's rows are its tokens' heads of one
 * group, token after token. A unit is one item's tile of keys. The line lists requests, key-value
 * heads, tiles of queries and tiles of keys, from the outside in; every block takes an equal
 * stretch of it, so that ragged batches, long prompts and single queries fill the GPU alike. */
#ifndef UNMASK_KERNELS_PAGED_ATTENTION_CUH
#define UNMASK_KERNELS_PAGED_ATTENTION_CUH

#include "kernels/calls_block.h"
#include "kernels/device.cuh"

/* MAX_BLOCKS bounds the grid, and with it the counters at the head of the scratch, which is laid
 * out as block attention's. MERGE_TILES: what putting an item's parts together takes, in the time
 * of a tile. */
enum { PAGED_MAX_BLOCKS = 4096, PAGED_MERGE_TILES = 3, PAGED_MERGE_ROWS = 4 };

/* Below any score, and finite: the difference of two is a number. */
#define PAGED_NEVER (-1e30f)

/* A request's place in the line; units are those of one key-value head. */
struct paged_request {
    int first, n_tokens, n_row_tiles, units, longest, shortest;
};

/* How far the queries of a tile reach: its last one reaches furthest. */
static __device__ __forceinline__ int tile_extent(const struct call_paged_attention &call,
                                                  int first, int n_tokens, int row_tile,
                                                  int tile_tokens) {
    return call.extent[first + min((row_tile + 1) * tile_tokens, n_tokens) - 1];
}

/* Every lane's own request, loaded by a whole warp: many tiles of queries are shared out. */
template <int TILE_N>
static __device__ __forceinline__ struct paged_request
paged_request_load(const struct call_paged_attention &call, int r, int tile_tokens) {
    constexpr int FEW = 2;
    const int lane = threadIdx.x % 32;
    struct paged_request mine = {0, 0, 0, 0, 0, INT32_MAX};
    if (r < call.n_requests) {
        mine.first = call.start[r];
        mine.n_tokens = call.start[r + 1] - mine.first;
        mine.n_row_tiles = (mine.n_tokens + tile_tokens - 1) / tile_tokens;
    }
    if (mine.n_row_tiles <= FEW) {
#pragma unroll
        for (int i = 0; i < FEW; i++) {
            if (i < mine.n_row_tiles) {
                const int extent = tile_extent(call, mine.first, mine.n_tokens, i, tile_tokens);
                const int n_tiles = (extent + TILE_N - 1) / TILE_N;
                mine.units += n_tiles;
                mine.longest = max(mine.longest, n_tiles);
                mine.shortest = min(mine.shortest, n_tiles);
            }
        }
    }
    for (unsigned many = __ballot_sync(~0u, mine.n_row_tiles > FEW); many; many &= many - 1) {
        const int at = __ffs(many) - 1;
        const int first = __shfl_sync(~0u, mine.first, at);
        const int n_tokens = __shfl_sync(~0u, mine.n_tokens, at);
        const int n_row_tiles = __shfl_sync(~0u, mine.n_row_tiles, at);
        int units = 0, longest = 0, shortest = INT32_MAX;
        for (int i = lane; i < n_row_tiles; i += 32) {
            const int extent = tile_extent(call, first, n_tokens, i, tile_tokens);
            const int n_tiles = (extent + TILE_N - 1) / TILE_N;
            units += n_tiles;
            longest = max(longest, n_tiles);
            shortest = min(shortest, n_tiles);
        }
        units = __reduce_add_sync(~0u, units);
        longest = __reduce_max_sync(~0u, longest);
        shortest = __reduce_min_sync(~0u, shortest);
        if (lane == at) {
            mine.units = units;
            mine.longest = longest;
            mine.shortest = shortest;
        }
    }
    return mine;
}

/* A place in the line, and the item it is in. */
struct paged_cursor {
    int request, first, n_tokens, n_row_tiles;
    int kv_head, row_tile, extent, n_tiles, tile;
};

template <int TILE_N>
static __device__ __forceinline__ void paged_enter(struct paged_cursor &c,
                                                   const struct call_paged_attention &call,
                                                   int tile_tokens) {
    c.extent = tile_extent(call, c.first, c.n_tokens, c.row_tile, tile_tokens);
    c.n_tiles = (c.extent + TILE_N - 1) / TILE_N;
    c.tile = 0;
}

/* Moves to the next unit; only called when there is one. */
template <int TILE_N>
static __device__ __forceinline__ void paged_next(struct paged_cursor &c,
                                                  const struct call_paged_attention &call,
                                                  int tile_tokens) {
    if (++c.tile < c.n_tiles) {
        return;
    }
    if (++c.row_tile == c.n_row_tiles) {
        c.row_tile = 0;
        if (++c.kv_head == call.n_kv_heads) {
            c.kv_head = 0;
            do {
                c.request++;
                c.first = call.start[c.request];
                c.n_tokens = call.start[c.request + 1] - c.first;
            } while (c.n_tokens == 0);
            c.n_row_tiles = (c.n_tokens + tile_tokens - 1) / tile_tokens;
        }
    }
    paged_enter<TILE_N>(c, call, tile_tokens);
}

/* The inclusive sums of the lanes' numbers. */
static __device__ __forceinline__ int warp_scan(int x, int lane) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int lower = __shfl_up_sync(~0u, x, step);
        x += lane >= step ? lower : 0;
    }
    return x;
}

/* The cursor of a unit, which is in the line; found by every warp for itself, with mine what
 * paged_request_load said of the first 32 requests. */
template <int TILE_N>
static __device__ __forceinline__ struct paged_cursor
paged_at(const struct call_paged_attention &call, const struct paged_request &mine, int unit,
         int tile_tokens) {
    const int lane = threadIdx.x % 32;
    struct paged_cursor c;
    int before = 0, units;
    for (int base = 0;; base += 32) {
        const struct paged_request its =
            base == 0 ? mine : paged_request_load<TILE_N>(call, base + lane, tile_tokens);
        const int all = its.units * call.n_kv_heads, upto = warp_scan(all, lane);
        const unsigned past = __ballot_sync(~0u, before + upto > unit);
        if (past) {
            const int at = __ffs(past) - 1;
            before += __shfl_sync(~0u, upto - all, at);
            c.request = base + at;
            c.first = __shfl_sync(~0u, its.first, at);
            c.n_tokens = __shfl_sync(~0u, its.n_tokens, at);
            c.n_row_tiles = __shfl_sync(~0u, its.n_row_tiles, at);
            units = __shfl_sync(~0u, its.units, at);
            break;
        }
        before += __shfl_sync(~0u, upto, 31);
    }
    c.kv_head = (unit - before) / units;
    const int within = (unit - before) % units;
    before = 0;
    for (int base = 0;; base += 32) {
        const int i = base + lane;
        int n_tiles = 0;
        if (i < c.n_row_tiles) {
            n_tiles =
                (tile_extent(call, c.first, c.n_tokens, i, tile_tokens) + TILE_N - 1) / TILE_N;
        }
        const int upto = warp_scan(n_tiles, lane);
        const unsigned past = __ballot_sync(~0u, before + upto > within);
        if (past) {
            const int at = __ffs(past) - 1;
            before += __shfl_sync(~0u, upto - n_tiles, at);
            c.row_tile = base + at;
            break;
        }
        before += __shfl_sync(~0u, upto, 31);
    }
    paged_enter<TILE_N>(c, call, tile_tokens);
    c.tile = within - before;
    return c;
}

/* A block's stretch of the line, and what tells whose the rest is. */
struct paged_stretch {
    int begin, end;      /* units; empty: the block has nothing to do */
    int share, n_longer; /* the first n_longer blocks take one grain more than the rest */
    int grain;
};

static __device__ __forceinline__ int stretch_begin(const struct paged_stretch &s, int block) {
    return (s.share * block + min(block, s.n_longer)) * s.grain;
}

/* Whose stretch a unit is in. */
static __device__ __forceinline__ int stretch_of(const struct paged_stretch &s, int unit) {
    const int at = unit / s.grain, in_longer = s.n_longer * (s.share + 1);
    return at < in_longer ? at / (s.share + 1) : s.n_longer + (at - in_longer) / s.share;
}

/* Found by every warp for itself. No stretch of the blocks that have one is empty: what an item's
 * blocks have left is counted by their number. Items of one length are dealt whole when that costs
 * a block less than putting parts together does. WHOLE: an item is its block's in whose stretch it
 * begins, so that none is cut. cursor: at the stretch's begin. */
template <int TILE_N, bool WHOLE>
static __device__ __forceinline__ struct paged_stretch
paged_stretch_find(const struct call_paged_attention &call, int tile_tokens,
                   struct paged_cursor &cursor) {
    const int lane = threadIdx.x % 32;
    const struct paged_request mine = paged_request_load<TILE_N>(call, lane, tile_tokens);
    int total = mine.units, longest = mine.longest, shortest = mine.shortest;
    for (int base = 32; base < call.n_requests; base += 32) {
        const struct paged_request its =
            paged_request_load<TILE_N>(call, base + lane, tile_tokens);
        total += its.units;
        longest = max(longest, its.longest);
        shortest = min(shortest, its.shortest);
    }
    total = __reduce_add_sync(~0u, total) * call.n_kv_heads;
    longest = __reduce_max_sync(~0u, longest);
    shortest = __reduce_min_sync(~0u, shortest);
    struct paged_stretch s = {0, 0, 0, 0, 1};
    const int n_blocks = min(total, (int)gridDim.x), block = blockIdx.x;
    if (block >= n_blocks) {
        return s;
    }
    const int n_items = longest == shortest ? total / longest : 0;
    const int dealt = (n_items + n_blocks - 1) / n_blocks * longest;
    const bool deal_whole = n_items >= n_blocks && dealt - total / n_blocks <= PAGED_MERGE_TILES;
    const int n_grains = deal_whole ? n_items : total;
    s.grain = deal_whole ? longest : 1;
    s.share = n_grains / n_blocks;
    s.n_longer = n_grains % n_blocks;
    s.begin = stretch_begin(s, block);
    s.end = stretch_begin(s, block + 1);
    cursor = paged_at<TILE_N>(call, mine, s.begin, tile_tokens);
    if (WHOLE) {
        if (s.end < total) {
            const struct paged_cursor past = paged_at<TILE_N>(call, mine, s.end, tile_tokens);
            s.end += past.tile > 0 ? past.n_tiles - past.tile : 0;
        }
        if (cursor.tile > 0) {
            s.begin += cursor.n_tiles - cursor.tile;
            if (s.begin < s.end) {
                cursor = paged_at<TILE_N>(call, mine, s.begin, tile_tokens);
            }
        }
    }
    return s;
}

/* The parts of an item, added in the order of its keys: part 0 is in first_slot, part i in slot 0
 * of block first_block + i. A thread, one of N_THREADS, has four columns of every so-manieth row,
 * and several of those rows in flight. */
template <int HEAD_SIZE, int TILE_M, int N_THREADS>
static __device__ __forceinline__ void
paged_merge(const struct call_paged_attention &call, const struct paged_cursor &c, int tile_tokens,
            const float *partials, int first_slot, int first_block, int n_parts, float scale_log2,
            int thread) {
    constexpr int PER_ROW = HEAD_SIZE / 4, APART = N_THREADS / PER_ROW;
    constexpr int ROWS = TILE_M / APART < PAGED_MERGE_ROWS ? TILE_M / APART : PAGED_MERGE_ROWS;
    constexpr int ROW_FLOATS = HEAD_SIZE + 4;
    const int group = call.n_heads / call.n_kv_heads, column = thread % PER_ROW * 4;
    const int n_rows = min(tile_tokens, c.n_tokens - c.row_tile * tile_tokens) * group;
#pragma unroll 1
    for (int in_tile = thread / PER_ROW; in_tile < TILE_M; in_tile += ROWS * APART) {
        float peak[ROWS], weight[ROWS], y[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            peak[i] = PAGED_NEVER;
            weight[i] = y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0;
        }
#pragma unroll 4
        for (int part = 0; part < n_parts; part++) {
            const int slot = part ? (first_block + part) * 2 : first_slot;
            const float *from = partials + ((int64_t)slot * TILE_M + in_tile) * ROW_FLOATS;
            float2 its[ROWS];
            float4 f[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float *row = from + i * APART * ROW_FLOATS;
                its[i] = __ldcg(reinterpret_cast<const float2 *>(row + HEAD_SIZE));
                f[i] = __ldcg(reinterpret_cast<const float4 *>(row + column));
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float higher = fmaxf(peak[i], its[i].x);
                const float mine = exp2_fast((peak[i] - higher) * scale_log2);
                const float scale = exp2_fast((its[i].x - higher) * scale_log2);
                peak[i] = higher;
                weight[i] = weight[i] * mine + its[i].y * scale;
                y[i][0] = y[i][0] * mine + f[i].x * scale;
                y[i][1] = y[i][1] * mine + f[i].y * scale;
                y[i][2] = y[i][2] * mine + f[i].z * scale;
                y[i][3] = y[i][3] * mine + f[i].w * scale;
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int row = in_tile + i * APART;
            const float scale = 1.0f / weight[i];
            if (row < n_rows) {
                const int64_t token = c.first + c.row_tile * tile_tokens + row / group;
                *reinterpret_cast<uint2 *>(static_cast<__nv_bfloat16 *>(call.y) +
                                           token * call.y_stride +
                                           (c.kv_head * group + row % group) * HEAD_SIZE + column) =
                    make_uint2(bf16_pack(y[i][0] * scale, y[i][1] * scale),
                               bf16_pack(y[i][2] * scale, y[i][3] * scale));
            }
        }
    }
}

/* Whether both paths take the call's shapes. */
bool paged_attention_valid(const struct call_paged_attention *call);

#endif
