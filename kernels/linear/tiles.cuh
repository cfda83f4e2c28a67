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

#endif
