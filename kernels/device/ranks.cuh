/* What ranks do through each other's memory, on GPUs that reach their peers' addresses. */
#ifndef UNMASK_KERNELS_DEVICE_RANKS_CUH
#define UNMASK_KERNELS_DEVICE_RANKS_CUH

#include <cuda_runtime_api.h>

#include "kernels/calls.h"

enum {
    RANKS_MAX_BLOCKS = 64,
    RANKS_SLOT_BYTES = 16 << 20, /* of what a call sends; calls take two slots in turns */
    RANKS_STAGING_BYTES = 2 * RANKS_SLOT_BYTES,
    /* A call's pieces: what its slot has room for. */
    RANKS_MOST_BYTES = RANKS_SLOT_BYTES / 2,
    /* Up to here everybody sends everything to everybody; beyond, each rank adds up its share and
     * sends the sum. Two ranks send no less that way. */
    RANKS_DIRECT_BYTES = 512 << 10,
};

/* Written by ranks' blocks, one word for each block of each sender; zeros at first. A block knows
 * by its sender's word that what the sender's block of the same number has sent is there. */
struct rank_words {
    uint32_t sent[2][RANKS_MAX_BLOCKS][CALL_MAX_RANKS]; /* in the first and the second round */
    uint32_t n_calls; /* so far, the rank's own; its blocks read it and the last one adds to it */
    uint32_t n_readers;
};

/* The same on every rank, but for who it is. */
struct rank_peers {
    unsigned char *staging[CALL_MAX_RANKS];
    struct rank_words *words[CALL_MAX_RANKS];
    int32_t n, rank;
};

/* At most RANKS_MOST_BYTES, a multiple of 16; 16-byte alignment. */
cudaError_t ranks_all_reduce(const struct rank_peers *peers, const void *x, void *y, int64_t bytes,
                             enum kernel_dtype dtype, cudaStream_t stream);
/* At most RANKS_SLOT_BYTES / n bytes to the n ranks' places `stride` bytes apart in y; multiples of
 * 4. */
cudaError_t ranks_all_gather(const struct rank_peers *peers, const void *x, void *y, int64_t bytes,
                             int64_t stride, cudaStream_t stream);

#endif
