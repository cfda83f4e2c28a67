/* The logistic function in single precision, the same bits on a CPU and on a GPU, so that both
 * choose the same experts by it. */
#ifndef UNMASK_KERNELS_ELEMENTWISE_SIGMOID_H
#define UNMASK_KERNELS_ELEMENTWISE_SIGMOID_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A compiler for the GPU would fuse products and sums otherwise; the host's is told not to. */
#ifdef __CUDA_ARCH__
#define SIGMOID_MULTIPLY(a, b) __fmul_rn(a, b)
#define SIGMOID_ADD(a, b)      __fadd_rn(a, b)
#define SIGMOID_DIVIDE(a, b)   __fdiv_rn(a, b)
#else
#define SIGMOID_MULTIPLY(a, b) ((a) * (b))
#define SIGMOID_ADD(a, b)      ((a) + (b))
#define SIGMOID_DIVIDE(a, b)   ((a) / (b))
#endif

#ifdef __CUDACC__
#define SIGMOID_FUNCTION static __host__ __device__ __forceinline__
#else
#define SIGMOID_FUNCTION static inline
#endif

/* 1 / (1 + exp(-x)) within a few units in the last place; NaN for NaN. The exponential's reduction
 * and polynomial are those of expf.c in Moshier's Cephes Mathematical Library, 2.2. */
SIGMOID_FUNCTION float sigmoid_single(float x) {
    const float most = 87.0f; /* exp(87) is still finite */
    const float z = x > most ? -most : x < -most ? most : -x;
    const float n = rintf(SIGMOID_MULTIPLY(z, 1.44269504088896341f));
    const float r = SIGMOID_ADD(SIGMOID_ADD(z, SIGMOID_MULTIPLY(n, -0.693359375f)),
                                SIGMOID_MULTIPLY(n, 2.12194440e-4f));
    float p = 1.9875691500e-4f;
    p = SIGMOID_ADD(SIGMOID_MULTIPLY(p, r), 1.3981999507e-3f);
    p = SIGMOID_ADD(SIGMOID_MULTIPLY(p, r), 8.3334519073e-3f);
    p = SIGMOID_ADD(SIGMOID_MULTIPLY(p, r), 4.1665795894e-2f);
    p = SIGMOID_ADD(SIGMOID_MULTIPLY(p, r), 1.6666665459e-1f);
    p = SIGMOID_ADD(SIGMOID_MULTIPLY(p, r), 5.0000001201e-1f);
    p = SIGMOID_ADD(SIGMOID_ADD(SIGMOID_MULTIPLY(SIGMOID_MULTIPLY(p, r), r), r), 1.0f);
    const uint32_t bits = x == x ? (uint32_t)((int32_t)n + 127) << 23 : 0x7fc00000u;
    float power;
    memcpy(&power, &bits, sizeof power);
    return SIGMOID_DIVIDE(1.0f, SIGMOID_ADD(1.0f, SIGMOID_MULTIPLY(p, power)));
}

#endif
