/* Random numbers that are a function of a key and an index: any element of an array can be made
 * anywhere, in any order, with the same bits on a CPU and on a GPU. */
#ifndef UNMASK_KERNELS_RULES_KEYED_H
#define UNMASK_KERNELS_RULES_KEYED_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KEYED_FUNCTION static __host__ __device__ __forceinline__
#else
#define KEYED_FUNCTION static inline
#endif

/* The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16). */
KEYED_FUNCTION uint64_t keyed_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* u in [0, 1), a multiple of 2^-53. The key is mixed first, so that neighbouring keys do not give
 * the same sequence shifted; the index then walks by splitmix64's golden-ratio step. */
KEYED_FUNCTION double uniform_keyed(uint64_t key, uint64_t index) {
    const uint64_t start = keyed_mix(key + 0x9e3779b97f4a7c15u);
    return (double)(keyed_mix(start + (index + 1) * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
}

/* A draw from [0, 1), a multiple of 2^-24, of a key that is mixed already (sim/base/rng.h, whose
 * rng_keyed_bits these are the leading bits of). */
KEYED_FUNCTION float keyed_draw(uint64_t key, uint64_t index) {
    return (float)(keyed_mix(key ^ (index + 0x9e3779b97f4a7c15u)) >> 40) * 0x1p-24f;
}

/* One rounding an operation, on a device that would fuse them too. */
#ifdef __CUDA_ARCH__
#define KEYED_ADD(a, b)      __fadd_rn(a, b)
#define KEYED_MULTIPLY(a, b) __fmul_rn(a, b)
#define KEYED_DIVIDE(a, b)   __fdiv_rn(a, b)
#else
#define KEYED_ADD(a, b)      ((a) + (b))
#define KEYED_MULTIPLY(a, b) ((a) * (b))
#define KEYED_DIVIDE(a, b)   ((a) / (b))
#endif

/* -log(x) of a normal x > 0: by powers of two to m in [2/3, 4/3), there by the series of
 * log((1 + s) / (1 - s)) up to s^9, at |s| <= 1/5. */
KEYED_FUNCTION float keyed_minus_log(float x) {
    uint32_t bits;
    float m;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t power = (bits - 0x3f2aaaabu + (127u << 23)) >> 23;
    bits -= (power - 127u) << 23;
    memcpy(&m, &bits, sizeof m);
    const float f = KEYED_ADD(m, -1.0f), s = KEYED_DIVIDE(f, KEYED_ADD(2.0f, f));
    const float z = KEYED_MULTIPLY(s, s), twice = KEYED_MULTIPLY(2.0f, s);
    float p = KEYED_ADD(0x1.24924ap-3f, KEYED_MULTIPLY(z, 0x1.c71c72p-4f));
    p = KEYED_ADD(0x1.99999ap-3f, KEYED_MULTIPLY(z, p));
    p = KEYED_MULTIPLY(z, KEYED_ADD(0x1.555556p-2f, KEYED_MULTIPLY(z, p)));
    const float log_m = KEYED_ADD(twice, KEYED_MULTIPLY(twice, p));
    return KEYED_ADD(KEYED_MULTIPLY((float)(127 - (int32_t)power), 0x1.62e43p-1f), -log_m);
}

/* Standard Gumbel noise, -log(-log u) with u in (0, 1) an odd multiple of 2^-24, of a key that is
 * mixed already (sim/decode/rule.h, decode_noise: the same operations). */
KEYED_FUNCTION float keyed_noise(uint64_t key, uint64_t index) {
    const uint64_t bits = keyed_mix(key ^ (index + 0x9e3779b97f4a7c15u));
    const float u = (float)(2 * (uint32_t)(bits >> 41) + 1) * 0x1p-24f;
    return keyed_minus_log(keyed_minus_log(u));
}

/* A value with so much of that noise. */
KEYED_FUNCTION float keyed_noised(float value, float temperature, uint64_t key, uint64_t index) {
    return KEYED_ADD(value, KEYED_MULTIPLY(temperature, keyed_noise(key, index)));
}

#endif
