/* What products of many tokens on sm_90a share, whatever the type of their weights (gate_up.cu,
 * fp8_tiles.cu): persistent blocks in clusters of one or two, each with a ring of stages that one
 * thread feeds, walk over tiles of tokens by two boxes of weight rows. */
#ifndef UNMASK_KERNELS_LINEAR_TILES_CUH
#define UNMASK_KERNELS_LINEAR_TILES_CUH

#include "kernels/device.cuh"

/* What the two blocks of a cluster have in common; none: the cluster is one block. */
enum sharing { SHARE_NONE, SHARE_WEIGHTS, SHARE_INPUTS };

#if HOPPER_DEVICE
template <class RING> static __device__ __forceinline__ void ring_advance(RING *ring) {
    if (++ring->at == RING::STAGES) {
        ring->at = 0;
        ring->parity ^= 1;
    }
}

template <int BLOCKS> static __device__ __forceinline__ void blocks_sync() {
    if (BLOCKS > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }
}

/* Tiles are dealt to clusters: tokens first within MOST tiles of tokens, then outputs. A cut says
 * how many there are: n_token_tiles, n_output_tiles. */
template <int SHARING, int MOST, class CUT>
static __device__ __forceinline__ void tile_of(const CUT &cut, int deal, int rank, int *token_tile,
                                               int *output_tile) {
    const int n_rows = cut.n_token_tiles / (SHARING == SHARE_WEIGHTS ? 2 : 1);
    const int n_columns = cut.n_output_tiles / (SHARING == SHARE_INPUTS ? 2 : 1);
    const int most = MOST / (SHARING == SHARE_WEIGHTS ? 2 : 1);
    const int first = deal / (most * n_columns) * most, at = deal % (most * n_columns);
    const int height = min(most, n_rows - first);
    *token_tile = first + at % height;
    *output_tile = at / height;
    if (SHARING == SHARE_WEIGHTS) {
        *token_tile = *token_tile * 2 + rank;
    } else if (SHARING == SHARE_INPUTS) {
        *output_tile = *output_tile * 2 + rank;
    }
}
#endif

/* How a product is cut into tiles. */
struct tile_cut {
    enum sharing sharing;
    int width; /* rows of weights a tile */
    int n_token_tiles, n_output_tiles;
    int64_t cost;
};

/* `overhead` is what a tile costs beyond its products, in rows of weights. */
template <int TILE_TOKENS>
static struct tile_cut tile_cut_of(int width, int n_tokens, int n_outputs, int outputs_per_tile,
                                   int n_sms, int overhead) {
    struct tile_cut cut;
    cut.width = width;
    cut.n_token_tiles = (n_tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    cut.n_output_tiles = (n_outputs + outputs_per_tile - 1) / outputs_per_tile;
    cut.sharing = SHARE_NONE;
    if (cut.n_token_tiles % 2 == 0 || cut.n_token_tiles > 8) {
        /* An odd count pays for a whole idle tile: not worth it below nine. */
        cut.sharing = SHARE_WEIGHTS;
        cut.n_token_tiles += cut.n_token_tiles % 2;
    } else if (n_tokens >= TILE_TOKENS && cut.n_output_tiles % 2 == 0) {
        cut.sharing = SHARE_INPUTS;
    }
    const int n_workers = cut.sharing == SHARE_NONE ? n_sms : n_sms / 2 * 2;
    const int64_t n_tiles = (int64_t)cut.n_token_tiles * cut.n_output_tiles;
    cut.cost = (n_tiles + n_workers - 1) / n_workers * (width + overhead);
    return cut;
}

#endif
