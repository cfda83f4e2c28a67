/* Where a block of the grid is in the line of units. An item is (request, key-value head, tile of
 * queries); a tile's rows are its tokens' heads of one group, token after token. A unit is one
 * item's tile of keys; where requests are ragged a few empty units precede an item, for what it
 * takes to begin and end one. The line lists requests, key-value heads, tiles of queries and tiles
 * of keys, from the outside in; every block takes an equal stretch of it, so that ragged batches,
 * long prompts and single queries fill the GPU alike. An item that ends up in several blocks leaves
 * parts in scratch, which the block that arrives last puts together. */
#ifndef UNMASK_KERNELS_ATTENTION_LINE_CUH
#define UNMASK_KERNELS_ATTENTION_LINE_CUH

#include "kernels/attention/fragments.cuh"
#include "kernels/attention/keys.cuh"

enum {
    MERGE_TILES = 3,  /* what putting an item's parts together takes, in the time of a tile */
    PART_ROWS = 1024, /* that one block puts together, about */
};

/* The empty units before an item. */
template <class KEYS, int TILE_N> constexpr int lead = !KEYS::RAGGED ? 0 : TILE_N >= 128 ? 1 : 2;

/* A request's place in the line; units are those of one key-value head, longest and shortest those
 * of an item. reach: of all its queries, where they are not ragged. */
template <class KEYS> struct line_request {
    int first, n_tokens, n_row_tiles, units, longest, shortest;
    typename KEYS::reach reach;
};

/* How far the queries of a tile reach: its last one reaches furthest. */
template <class KEYS>
static __device__ __forceinline__ typename KEYS::reach tile_reach(const typename KEYS::call &call,
                                                                  int r, int first, int n_tokens,
                                                                  int row_tile, int tile_tokens) {
    return KEYS::reach_of(call, r, first, n_tokens,
                          min((row_tile + 1) * tile_tokens, n_tokens) - 1);
}

/* The units of some of a request's items: those of the tiles begin, begin + step .. of its
 * queries. */
template <class KEYS, int TILE_N>
static __device__ __forceinline__ void
request_add(struct line_request<KEYS> &request, const typename KEYS::call &call, int r, int first,
            int n_tokens, int tile_tokens, int row_tile) {
    const typename KEYS::reach reach =
        tile_reach<KEYS>(call, r, first, n_tokens, row_tile, tile_tokens);
    const int n_units = reach.template n_tiles<TILE_N>() + lead<KEYS, TILE_N>;
    request.units += n_units;
    request.longest = max(request.longest, n_units);
    request.shortest = min(request.shortest, n_units);
}

/* The items of requests whose queries are ragged: every lane's own, many tiles of queries shared
 * out among the warp. */
template <class KEYS, int TILE_N>
static __device__ __forceinline__ void request_measure(struct line_request<KEYS> &mine,
                                                       const typename KEYS::call &call, int r,
                                                       int tile_tokens) {
    constexpr int FEW = 2;
    const int lane = threadIdx.x % 32;
    if (mine.n_row_tiles <= FEW) {
#pragma unroll
        for (int i = 0; i < FEW; i++) {
            if (i < mine.n_row_tiles) {
                request_add<KEYS, TILE_N>(mine, call, r, mine.first, mine.n_tokens, tile_tokens, i);
            }
        }
    }
    for (unsigned many = __ballot_sync(~0u, mine.n_row_tiles > FEW); many; many &= many - 1) {
        const int at = __ffs(many) - 1;
        const int first = __shfl_sync(~0u, mine.first, at), of = __shfl_sync(~0u, r, at);
        const int n_tokens = __shfl_sync(~0u, mine.n_tokens, at);
        const int n_row_tiles = __shfl_sync(~0u, mine.n_row_tiles, at);
        struct line_request<KEYS> shared = {
            0, 0, 0, 0, 0, INT32_MAX, {
            }
        };
        for (int i = lane; i < n_row_tiles; i += 32) {
            request_add<KEYS, TILE_N>(shared, call, of, first, n_tokens, tile_tokens, i);
        }
        const int units = __reduce_add_sync(~0u, shared.units);
        const int longest = __reduce_max_sync(~0u, shared.longest);
        const int shortest = __reduce_min_sync(~0u, shared.shortest);
        if (lane == at) {
            mine.units = units;
            mine.longest = longest;
            mine.shortest = shortest;
        }
    }
}

/* Every lane's own request, loaded by a whole warp. */
template <class KEYS, int TILE_N>
static __device__ __forceinline__ struct line_request<KEYS>
request_load(const typename KEYS::call &call, int r, int tile_tokens) {
    struct line_request<KEYS> mine = {
        0, 0, 0, 0, 0, INT32_MAX, {
        }
    };
    if (r < call.n_requests) {
        mine.first = call.start[r];
        mine.n_tokens = call.start[r + 1] - mine.first;
        mine.n_row_tiles = (mine.n_tokens + tile_tokens - 1) / tile_tokens;
        if constexpr (!KEYS::RAGGED) {
            mine.reach = KEYS::reach_of(call, r, mine.first, mine.n_tokens, mine.n_tokens - 1);
        }
    }
    if constexpr (KEYS::RAGGED) {
        request_measure<KEYS, TILE_N>(mine, call, r, tile_tokens);
    } else if (mine.n_tokens > 0) {
        mine.longest = mine.shortest = mine.reach.template n_tiles<TILE_N>();
        mine.units = mine.n_row_tiles * mine.longest;
    }
    return mine;
}

/* A place in the line, and the item it is in. */
template <class KEYS>
struct line_cursor {
    int request, first, n_tokens, n_row_tiles;
    int kv_head, row_tile, n_tiles, tile;
    typename KEYS::reach reach;
};

/* At the first tile of the item that the cursor names. */
template <class KEYS, int TILE_N>
static __device__ __forceinline__ void
line_enter(struct line_cursor<KEYS> &c, const typename KEYS::call &call, int tile_tokens) {
    if constexpr (KEYS::RAGGED) {
        c.reach = tile_reach<KEYS>(call, c.request, c.first, c.n_tokens, c.row_tile, tile_tokens);
    }
    c.n_tiles = c.reach.template n_tiles<TILE_N>();
    c.tile = 0;
}

/* How far it is to the next tile. */
template <class KEYS, int TILE_N>
static __device__ __forceinline__ int line_step(const struct line_cursor<KEYS> &c) {
    return c.tile + 1 < c.n_tiles ? 1 : 1 + lead<KEYS, TILE_N>;
}

/* Moves to the next tile; only called when there is one. */
template <class KEYS, int TILE_N>
static __device__ __forceinline__ void line_next(struct line_cursor<KEYS> &c,
                                                 const typename KEYS::call &call, int tile_tokens) {
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
            if constexpr (!KEYS::RAGGED) {
                c.reach = KEYS::reach_of(call, c.request, c.first, c.n_tokens, c.n_tokens - 1);
            }
        }
    }
    line_enter<KEYS, TILE_N>(c, call, tile_tokens);
}

/* The tokens and heads of the cursor's item. */
template <class KEYS>
static __device__ __forceinline__ struct item_rows line_rows(const struct line_cursor<KEYS> &c,
                                                             int tile_tokens, int group) {
    const int before = c.row_tile * tile_tokens;
    return {c.first + before, min(tile_tokens, c.n_tokens - before) * group, group,
            c.kv_head * group};
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

/* The tile of queries that holds unit `within` of a request and head; *within becomes the unit
 * within the item. */
template <class KEYS, int TILE_N>
static __device__ __forceinline__ int row_tile_at(const struct line_cursor<KEYS> &c,
                                                  const typename KEYS::call &call, int tile_tokens,
                                                  int *within) {
    if constexpr (!KEYS::RAGGED) {
        const int n_tiles = c.reach.template n_tiles<TILE_N>(), at = *within / n_tiles;
        *within -= at * n_tiles;
        return at;
    }
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int base = 0;; base += 32) {
        const int i = base + lane;
        int n_units = 0;
        if (i < c.n_row_tiles) {
            n_units = tile_reach<KEYS>(call, c.request, c.first, c.n_tokens, i, tile_tokens)
                          .template n_tiles<TILE_N>() +
                      lead<KEYS, TILE_N>;
        }
        const int upto = warp_scan(n_units, lane);
        const unsigned past = __ballot_sync(~0u, before + upto > *within);
        if (past) {
            const int at = __ffs(past) - 1;
            *within -= before + __shfl_sync(~0u, upto - n_units, at);
            return base + at;
        }
        before += __shfl_sync(~0u, upto, 31);
    }
}

/* The cursor of a unit, which is in the line; found by every warp for itself; `mine`:
 * request_load's result for the first 32 requests. Its tile is negative before an item. */
template <class KEYS, int TILE_N>
static __device__ __forceinline__ struct line_cursor<KEYS>
line_at(const typename KEYS::call &call, const struct line_request<KEYS> &mine, int unit,
        int tile_tokens) {
    const int lane = threadIdx.x % 32;
    struct line_cursor<KEYS> c;
    int before = 0, units;
    for (int base = 0;; base += 32) {
        const struct line_request<KEYS> its =
            base == 0 ? mine : request_load<KEYS, TILE_N>(call, base + lane, tile_tokens);
        const int all = its.units * call.n_kv_heads, upto = warp_scan(all, lane);
        const unsigned past = __ballot_sync(~0u, before + upto > unit);
        if (past) {
            const int at = __ffs(past) - 1;
            before += __shfl_sync(~0u, upto - all, at);
            c.request = base + at;
            c.first = __shfl_sync(~0u, its.first, at);
            c.n_tokens = __shfl_sync(~0u, its.n_tokens, at);
            c.n_row_tiles = __shfl_sync(~0u, its.n_row_tiles, at);
            c.reach = its.reach.of_lane(at);
            units = __shfl_sync(~0u, its.units, at);
            break;
        }
        before += __shfl_sync(~0u, upto, 31);
    }
    c.kv_head = (unit - before) / units;
    int within = (unit - before) % units;
    c.row_tile = row_tile_at<KEYS, TILE_N>(c, call, tile_tokens, &within);
    line_enter<KEYS, TILE_N>(c, call, tile_tokens);
    c.tile = within - lead<KEYS, TILE_N>;
    return c;
}

/* A block's stretch of the line, and what tells whose the rest is. */
struct stretch {
    int begin, end;      /* units; empty: the block has nothing to do */
    int share, n_longer; /* the first n_longer blocks take one grain more than the rest */
    int grain;
};

static __device__ __forceinline__ int stretch_begin(const struct stretch &s, int block) {
    return (s.share * block + min(block, s.n_longer)) * s.grain;
}

/* Whose stretch a unit is in. */
static __device__ __forceinline__ int stretch_of(const struct stretch &s, int unit) {
    const int at = unit / s.grain, in_longer = s.n_longer * (s.share + 1);
    return at < in_longer ? at / (s.share + 1) : s.n_longer + (at - in_longer) / s.share;
}

/* The line cut for all blocks alike. What an item's blocks have left is counted by their number: of
 * the blocks that have a stretch, those between an item's first and its last all have tiles of it.
 * Items of one length are dealt whole when that costs less than putting parts together does: a
 * block, or, where there are fewer items than blocks, a multiprocessor. No ragged item is cut into
 * many more parts than one block puts together in a short time. */
template <class KEYS, int TILE_M>
static __device__ __forceinline__ struct stretch stretch_cut(int total, int longest, int shortest,
                                                             int n_sms) {
    struct stretch s = {0, 0, 0, 0, 1};
    const int block = blockIdx.x, n_items = longest == shortest ? total / longest : 0;
    int n_blocks = min(total, (int)gridDim.x), n_grains = total;
    if (KEYS::RAGGED) {
        n_blocks = min(n_blocks, total / longest * (PART_ROWS / TILE_M));
    }
    const bool many = n_items >= n_blocks;
    const int n_lanes = many ? n_blocks : n_sms; /* what items are dealt to */
    const int extra = (n_items + n_lanes - 1) / n_lanes * longest - total / n_lanes;
    const int merge = many ? MERGE_TILES : MERGE_TILES * (gridDim.x / n_sms);
    if (n_items > 0 && extra <= merge && (many || KEYS::RAGGED)) {
        n_blocks = min(n_blocks, n_items);
        n_grains = n_items;
        s.grain = longest;
    }
    if (block < n_blocks) {
        s.share = n_grains / n_blocks;
        s.n_longer = n_grains % n_blocks;
        s.begin = stretch_begin(s, block);
        s.end = stretch_begin(s, block + 1);
    }
    return s;
}

/* Found by every warp for itself. WHOLE: an item is its block's in whose stretch it begins, so that
 * none is cut. cursor: at the stretch's first tile. */
template <class KEYS, int TILE_M, int TILE_N, bool WHOLE>
static __device__ __forceinline__ struct stretch stretch_find(const typename KEYS::call &call,
                                                              int tile_tokens, int n_sms,
                                                              struct line_cursor<KEYS> &cursor) {
    constexpr int LEAD = lead<KEYS, TILE_N>;
    const int lane = threadIdx.x % 32;
    const struct line_request<KEYS> mine = request_load<KEYS, TILE_N>(call, lane, tile_tokens);
    int total = mine.units, longest = mine.longest, shortest = mine.shortest;
    for (int base = 32; base < call.n_requests; base += 32) {
        const struct line_request<KEYS> its =
            request_load<KEYS, TILE_N>(call, base + lane, tile_tokens);
        total += its.units;
        longest = max(longest, its.longest);
        shortest = min(shortest, its.shortest);
    }
    total = __reduce_add_sync(~0u, total) * call.n_kv_heads;
    longest = __reduce_max_sync(~0u, longest);
    shortest = __reduce_min_sync(~0u, shortest);
    if (total == 0) {
        return {0, 0, 0, 0, 1};
    }
    struct stretch s = stretch_cut<KEYS, TILE_M>(total, longest, shortest, n_sms);
    if (s.begin == s.end) {
        return s;
    }
    cursor = line_at<KEYS, TILE_N>(call, mine, s.begin, tile_tokens);
    if (WHOLE) {
        if (s.end < total) {
            const struct line_cursor<KEYS> past =
                line_at<KEYS, TILE_N>(call, mine, s.end, tile_tokens);
            s.end += past.tile > -LEAD ? past.n_tiles - past.tile : 0;
        }
        if (cursor.tile > -LEAD) {
            s.begin += cursor.n_tiles - cursor.tile;
            if (s.begin >= s.end) {
                return s;
            }
            cursor = line_at<KEYS, TILE_N>(call, mine, s.begin, tile_tokens);
        }
    }
    if (cursor.tile < 0) {
        s.begin -= cursor.tile;
        cursor.tile = 0;
    }
    return s;
}

#endif
