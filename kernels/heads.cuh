/* Kernels by the size of their heads: each is compiled for every one of HEAD_SIZES. */
#ifndef UNMASK_KERNELS_HEADS_CUH
#define UNMASK_KERNELS_HEADS_CUH

#include <cuda_runtime_api.h>

#include "kernels/calls.h"

template <int D> struct head_of { static constexpr int SIZE = D; };

#define START_OF_HEAD(D)                                                                           \
    case D:                                                                                        \
        return start(head_of<D>());

/* start(head_of<size>()); cudaErrorInvalidValue for a size that nothing is compiled for. */
template <class START> static inline cudaError_t by_head_size(int size, START start) {
    switch (size) {
        HEAD_SIZES(START_OF_HEAD)
    default:
        return cudaErrorInvalidValue;
    }
}

/* The same of the wider ones, too. */
template <class START> static inline cudaError_t by_wide_head_size(int size, START start) {
    switch (size) {
        WIDE_HEAD_SIZES(START_OF_HEAD)
    default:
        return cudaErrorInvalidValue;
    }
}

/* How the threads of a block copy rows of a head, 16 bytes a lane: LANES neighbours have a row
 * together, CHUNKS pieces each, LANES pieces apart. */
template <int D, int THREADS> struct row_copy {
    static constexpr int LANES = D / 8 % 8 == 0 ? D / 8 : 4, CHUNKS = D / 8 / LANES;
    static constexpr int ROWS = THREADS / LANES; /* at a time */
};

#endif
