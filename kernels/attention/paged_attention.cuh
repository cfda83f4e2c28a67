/* What the two paths of paged attention share: where a block of the grid is in the line of units.
 * An item is (request, key-value head, tile of queries); a tile's rows are its tokens' heads of one
 * group, token after token. A unit is one item's tile of keys; in front of an item stand a few units
 * that nobody has to do, for what it takes to begin and end one. The line lists requests, key-value
 * heads, tiles of queries and tiles of keys, from the outside in; every block takes an equal
 * stretch of it, so that ragged batches, long prompts and single queries fill the GPU alike. */
#ifndef UNMASK_KERNELS_ATTENTION_PAGED_ATTENTION_CUH
#define UNMASK_KERNELS_ATTENTION_PAGED_ATTENTION_CUH

#include "kernels/calls_block.h"
#include "kernels/device.cuh"

/* MAX_BLOCKS bounds the grid, and with it the counters at the head of the scratch, which is laid
 * out as block attention's. MERGE_TILES: what putting an item's parts together takes, in the time
 * of a tile. */
enum {
    PAGED_MAX_BLOCKS = 4096,
    PAGED_MERGE_TILES = 3,
    PAGED_MERGE_ROWS = 4, /* a thread has in flight */
    PAGED_PART_ROWS = 1024, /* that one block puts together, about */
};

/* The units in front of an item. */
template <int TILE_N> constexpr int lead = TILE_N >= 128 ? 1 : 2;

/* Below any score, and finite: the difference of two is a number. */
#define PAGED_NEVER (-1e30f)

/* A request's place in the line; units are those of one key-value head, longest and shortest those
 * of an item. */
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
                const int n_units = (extent + TILE_N - 1) / TILE_N + lead<TILE_N>;
                mine.units += n_units;
                mine.longest = max(mine.longest, n_units);
                mine.shortest = min(mine.shortest, n_units);
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
            const int n_units = (extent + TILE_N - 1) / TILE_N + lead<TILE_N>;
            units += n_units;
            longest = max(longest, n_units);
            shortest = min(shortest, n_units);
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

/* How far it is to the next tile. */
template <int TILE_N>
static __device__ __forceinline__ int paged_step(const struct paged_cursor &c) {
    return c.tile + 1 < c.n_tiles ? 1 : 1 + lead<TILE_N>;
}

/* Moves to the next tile; only called when there is one. */
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
 * paged_request_load said of the first 32 requests. Its tile is negative in front of an item. */
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
        int n_units = 0;
        if (i < c.n_row_tiles) {
            const int extent = tile_extent(call, c.first, c.n_tokens, i, tile_tokens);
            n_units = (extent + TILE_N - 1) / TILE_N + lead<TILE_N>;
        }
        const int upto = warp_scan(n_units, lane);
        const unsigned past = __ballot_sync(~0u, before + upto > within);
        if (past) {
            const int at = __ffs(past) - 1;
            before += __shfl_sync(~0u, upto - n_units, at);
            c.row_tile = base + at;
            break;
        }
        before += __shfl_sync(~0u, upto, 31);
    }
    paged_enter<TILE_N>(c, call, tile_tokens);
    c.tile = within - before - lead<TILE_N>;
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

/* Found by every warp for itself. What an item's blocks have left is counted by their number: of
 * the blocks that have a stretch, those between an item's first and its last all have tiles of it.
 * Items of one length are dealt whole when that costs less than putting parts together does: a
 * block, or, where there are fewer items than blocks, a multiprocessor. WHOLE: an item is its
 * block's in whose stretch it begins, so that none is cut. No item is cut into many more parts than
 * one block puts together in a short time. cursor: at the stretch's first tile. */
template <int TILE_M, int TILE_N, bool WHOLE>
static __device__ __forceinline__ struct paged_stretch
paged_stretch_find(const struct call_paged_attention &call, int tile_tokens, int n_sms,
                   struct paged_cursor &cursor) {
    constexpr int LEAD = lead<TILE_N>;
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
    if (total == 0) {
        return s;
    }
    const int block = blockIdx.x, n_items = longest == shortest ? total / longest : 0;
    const int most_blocks = total / longest * (PAGED_PART_ROWS / TILE_M);
    int n_blocks = min(min(total, (int)gridDim.x), most_blocks), n_grains = total;
    const bool many = n_items >= n_blocks;
    const int n_lanes = many ? n_blocks : n_sms; /* what items are dealt to */
    const int extra = (n_items + n_lanes - 1) / n_lanes * longest - total / n_lanes;
    const int merge = many ? PAGED_MERGE_TILES : PAGED_MERGE_TILES * (gridDim.x / n_sms);
    if (n_items > 0 && extra <= merge) {
        n_blocks = min(n_blocks, n_items);
        n_grains = n_items;
        s.grain = longest;
    }
    if (block >= n_blocks) {
        return s;
    }
    s.share = n_grains / n_blocks;
    s.n_longer = n_grains % n_blocks;
    s.begin = stretch_begin(s, block);
    s.end = stretch_begin(s, block + 1);
    cursor = paged_at<TILE_N>(call, mine, s.begin, tile_tokens);
    if (WHOLE) {
        if (s.end < total) {
            const struct paged_cursor past = paged_at<TILE_N>(call, mine, s.end, tile_tokens);
            s.end += past.tile > -LEAD ? past.n_tiles - past.tile : 0;
        }
        if (cursor.tile > -LEAD) {
            s.begin += cursor.n_tiles - cursor.tile;
            if (s.begin >= s.end) {
                return s;
            }
            cursor = paged_at<TILE_N>(call, mine, s.begin, tile_tokens);
        }
    }
    if (cursor.tile < 0) {
        s.begin -= cursor.tile;
        cursor.tile = 0;
    }
    return s;
}

/* Some rows of an item, ROWS of them and PARTS of its parts in flight at a time. */
template <int HEAD_SIZE, int TILE_M, int N_THREADS, int ROWS, int PARTS>
static __device__ __forceinline__ void
paged_merge_rows(const struct call_paged_attention &call, const struct paged_cursor &c,
                 int tile_tokens, int n_rows, const float *partials, int first_slot,
                 int first_block, int n_parts, float scale_log2, int thread) {
    constexpr int PER_ROW = HEAD_SIZE / 4, APART = N_THREADS / PER_ROW;
    constexpr int ROW_FLOATS = HEAD_SIZE + 4;
    const int group = call.n_heads / call.n_kv_heads, column = thread % PER_ROW * 4;
#pragma unroll 1
    for (int in_tile = thread / PER_ROW; in_tile < n_rows; in_tile += ROWS * APART) {
        float peak[ROWS], weight[ROWS], y[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            peak[i] = PAGED_NEVER;
            weight[i] = y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0;
        }
#pragma unroll PARTS
        for (int part = 0; part < n_parts; part++) {
            const int slot = part ? (first_block + part) * 2 : first_slot;
            const float *from = partials + (int64_t)slot * TILE_M * ROW_FLOATS;
            float2 its[ROWS];
            float4 f[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float *row = from + min(in_tile + i * APART, n_rows - 1) * ROW_FLOATS;
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

/* The parts of an item of n_rows rows, added in the order of its keys: part 0 is in first_slot,
 * part i in slot 0 of block first_block + i. A thread, one of N_THREADS, has four columns of every
 * APART-th row. */
template <int HEAD_SIZE, int TILE_M, int N_THREADS>
static __device__ __forceinline__ void
paged_merge(const struct call_paged_attention &call, const struct paged_cursor &c, int tile_tokens,
            int n_rows, const float *partials, int first_slot, int first_block, int n_parts,
            float scale_log2, int thread) {
    constexpr int APART = N_THREADS / (HEAD_SIZE / 4);
    constexpr int ROWS = TILE_M / APART < PAGED_MERGE_ROWS ? TILE_M / APART : PAGED_MERGE_ROWS;
    if (n_rows <= APART) {
        paged_merge_rows<HEAD_SIZE, TILE_M, N_THREADS, 1, 8>(call, c, tile_tokens, n_rows, partials,
                                                             first_slot, first_block, n_parts,
                                                             scale_log2, thread);
    } else {
        paged_merge_rows<HEAD_SIZE, TILE_M, N_THREADS, ROWS, 4>(
            call, c, tile_tokens, n_rows, partials, first_slot, first_block, n_parts, scale_log2,
            thread);
    }
}

/* Whether both paths take the call's shapes. */
bool paged_attention_valid(const struct call_paged_attention *call);

#endif
