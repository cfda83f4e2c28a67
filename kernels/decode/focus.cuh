/* What FOCUS's kernels share: the list of a request's masked tokens. */
#ifndef UNMASK_KERNELS_DECODE_FOCUS_CUH
#define UNMASK_KERNELS_DECODE_FOCUS_CUH

#include <stdint.h>

#include "kernels/calls_block.h"

/* Lists tokens first .. first + n_tokens - 1 that are masked, in order, as many as there is room
 * for; returns how many there are. For a whole block of THREADS threads; counts has one place a
 * warp. list is ready for all when it returns. */
template <int THREADS>
static __device__ __forceinline__ int list_masked(const uint8_t *masked, int first, int n_tokens,
                                                  int *list, int *counts) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int n = 0;
    for (int base = 0; base < n_tokens; base += THREADS) {
        const int i = base + threadIdx.x;
        const bool is_masked = i < n_tokens && masked[first + i];
        const unsigned all = __ballot_sync(~0u, is_masked);
        if (lane == 0) {
            counts[warp] = __popc(all);
        }
        __syncthreads();
        const int its = lane < THREADS / 32 ? counts[lane] : 0;
        const int before = __reduce_add_sync(~0u, lane < warp ? its : 0);
        const int at = n + before + __popc(all & ((1u << lane) - 1));
        if (is_masked && at < FOCUS_MAX_BLOCK) {
            list[at] = first + i;
        }
        n += __reduce_add_sync(~0u, its);
        __syncthreads();
    }
    return n;
}

#endif
