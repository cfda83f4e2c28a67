/* Random numbers that are a function of a key and an index: any element of an array can be made
 * anywhere, in any order, with the same bits on a CPU and on a GPU. */
#ifndef UNMASK_KERNELS_KEYED_H
#define UNMASK_KERNELS_KEYED_H

#include <stdint.h>

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

#endif
