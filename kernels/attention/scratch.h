/* The scratch that attention's blocks share: counters, then for each block two slots for the part
 * of an item that it leaves to be put together. */
#ifndef UNMASK_KERNELS_ATTENTION_SCRATCH_H
#define UNMASK_KERNELS_ATTENTION_SCRATCH_H

#include <stdint.h>

/* MAX_BLOCKS bounds the grid, and with it the counters. */
enum {
    ATTENTION_MAX_BLOCKS = 4096,
    ATTENTION_COUNTER_BYTES = ATTENTION_MAX_BLOCKS * 4,
    ATTENTION_MOST_PER_SM = 3,               /* blocks */
    ATTENTION_PART_FLOATS = 128 * (128 + 4), /* 128 rows of heads of 128, or fewer of wider ones */
};

#ifdef __CUDACC__
static __device__ __forceinline__ float *attention_partials(void *scratch) {
    return reinterpret_cast<float *>(static_cast<char *>(scratch) + ATTENTION_COUNTER_BYTES);
}
#endif

#endif
