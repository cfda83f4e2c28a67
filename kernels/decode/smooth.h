/* The two numbers of iteration smoothing, for kernels and reference implementations alike: double
 * precision, one rounding an operation, then single precision. */
#ifndef UNMASK_KERNELS_DECODE_SMOOTH_H
#define UNMASK_KERNELS_DECODE_SMOOTH_H

#include "kernels/calls_smooth.h"

/* A compiler for the GPU would fuse products and sums otherwise; the host's is told not to. */
#ifdef __CUDA_ARCH__
#define SMOOTH_MULTIPLY(a, b) __dmul_rn(a, b)
#define SMOOTH_ADD(a, b)      __dadd_rn(a, b)
#else
#define SMOOTH_MULTIPLY(a, b) ((a) * (b))
#define SMOOTH_ADD(a, b)      ((a) + (b))
#endif

#ifdef __CUDACC__
#define SMOOTH_FUNCTION static __host__ __device__ __forceinline__
#else
#define SMOOTH_FUNCTION static inline
#endif

SMOOTH_FUNCTION float smooth_weight(const struct call_keep_expected *call, int32_t step) {
    const double grown =
        SMOOTH_ADD(call->weight_init, SMOOTH_MULTIPLY(call->weight_growth, (double)step));
    return (float)(grown < call->weight_most ? grown : call->weight_most);
}

SMOOTH_FUNCTION float smooth_threshold(double decay, int32_t step, float least) {
    const float sunk = (float)SMOOTH_ADD(1.0, -SMOOTH_MULTIPLY(decay, (double)step));
    return sunk > least ? sunk : least;
}

#endif
