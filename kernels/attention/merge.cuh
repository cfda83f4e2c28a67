/* Items that the line (line.cuh) cuts into several blocks' parts: each block leaves its part in
 * scratch, and the one that arrives last puts them together. */
#ifndef UNMASK_KERNELS_ATTENTION_MERGE_CUH
#define UNMASK_KERNELS_ATTENTION_MERGE_CUH

#include "kernels/attention/line.cuh"
#include "kernels/attention/scratch.h"

enum { MERGE_ROWS = 4 /* a thread has in flight */ };

/* Where the parts of an item are: part 0 in slot `first_slot`, part i in slot 0 of block
 * first_block + i. A block has two slots: for its first unfinished item, and for its last. */
struct item_parts {
    int first_slot, first_block, n_parts;
};

/* The parts of the item whose first tile is at unit item_begin. */
template <int LEAD>
static __device__ __forceinline__ struct item_parts item_parts_of(const struct stretch &s,
                                                                  int item_begin, int n_tiles) {
    const int first = stretch_of(s, item_begin);
    /* The item was its first block's last segment, and the others' first one. */
    const bool starts_first = stretch_begin(s, first) >= item_begin - LEAD;
    return {first * 2 + !starts_first, first, stretch_of(s, item_begin + n_tiles - 1) - first + 1};
}

/* Some rows of an item, ROWS of them and PARTS of its parts in flight at a time, added in the order
 * of its keys. A thread, one of N_THREADS, has four columns of every APART-th row. */
template <int D, int TILE_M, int N_THREADS, int ROWS, int PARTS>
static __device__ __forceinline__ void
merge_rows(void *base, int64_t stride, const struct item_rows &rows, const float *partials,
           const struct item_parts &parts, float scale_log2, int thread) {
    constexpr int PER_ROW = D / 4, APART = N_THREADS / PER_ROW, ROW_FLOATS = part_floats<D>;
    const int column = thread % PER_ROW * 4;
    if (N_THREADS % PER_ROW != 0 && thread >= APART * PER_ROW) {
        return;
    }
#pragma unroll 1
    for (int in_tile = thread / PER_ROW; in_tile < rows.n_rows; in_tile += ROWS * APART) {
        float peak[ROWS], weight[ROWS], y[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            peak[i] = ATTENTION_NEVER;
            weight[i] = y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0;
        }
#pragma unroll PARTS
        for (int part = 0; part < parts.n_parts; part++) {
            const int slot = part ? (parts.first_block + part) * 2 : parts.first_slot;
            const float *from = partials + (int64_t)slot * TILE_M * ROW_FLOATS;
            float2 its[ROWS];
            float4 f[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float *row = from + min(in_tile + i * APART, rows.n_rows - 1) * ROW_FLOATS;
                its[i] = __ldcg(reinterpret_cast<const float2 *>(row + D));
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
            if (row < rows.n_rows) {
                *reinterpret_cast<uint2 *>(static_cast<__nv_bfloat16 *>(base) +
                                           row_at<D>(rows, row, stride) + column) =
                    make_uint2(bf16_pack(y[i][0] * scale, y[i][1] * scale),
                               bf16_pack(y[i][2] * scale, y[i][3] * scale));
            }
        }
    }
}

/* To be called by N_THREADS threads, `sync` among them, when each has left its rows of a part: the
 * last block of an item to arrive puts its parts together. arrived: in shared memory. */
template <int D, int TILE_M, int N_THREADS, class SYNC>
static __device__ __forceinline__ void
item_merge(void *scratch, void *y, int64_t stride, const struct item_rows &rows,
           const struct item_parts &parts, float scale_log2, int thread, int &arrived, SYNC sync) {
    int *counters = static_cast<int *>(scratch);
    __threadfence();
    sync();
    if (thread == 0) {
        arrived = atomicAdd(&counters[parts.first_block], 1);
    }
    sync();
    if (arrived != parts.n_parts - 1) {
        return;
    }
    __threadfence();
    if (thread == 0) {
        counters[parts.first_block] = 0;
    }
    constexpr int APART = N_THREADS / (D / 4);
    constexpr int ROWS = TILE_M / APART < MERGE_ROWS ? TILE_M / APART : MERGE_ROWS;
    const float *partials = attention_partials(scratch);
    if (rows.n_rows <= APART) {
        merge_rows<D, TILE_M, N_THREADS, 1, 8>(y, stride, rows, partials, parts, scale_log2,
                                               thread);
    } else {
        merge_rows<D, TILE_M, N_THREADS, ROWS, 4>(y, stride, rows, partials, parts, scale_log2,
                                                  thread);
    }
}

#endif
