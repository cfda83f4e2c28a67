/* Random numbers that are a function of a key and an index: any element of an array can be made
 * anywhere, in any order, with the same bits on a CPU and on a GPU. */
#ifndef UNMASK_KERNELS_RULES_KEYED_H
#define UNMASK_KERNELS_RULES_KEYED_H

#include <stdint.h>
#include <string.h>

#include "kernels/rules/portable.h"

/* The step of splitmix64: 2^64 over the golden ratio. */
#define KEYED_GOLDEN 0x9e3779b97f4a7c15u

/* The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16). */
RULE_FUNCTION uint64_t keyed_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* u in [0, 1), a multiple of 2^-53. The key is mixed first, so that neighbouring keys do not give
 * the same sequence shifted; the index then walks by splitmix64's golden-ratio step. */
RULE_FUNCTION double uniform_keyed(uint64_t key, uint64_t index) {
    const uint64_t start = keyed_mix(key + KEYED_GOLDEN);
    return (double)(keyed_mix(start + (index + 1) * KEYED_GOLDEN) >> 11) * 0x1p-53;
}

/* The bits of an index under a key that is mixed already (sim/base/rng.h, rng_key). */
RULE_FUNCTION uint64_t keyed_bits(uint64_t key, uint64_t index) {
    return keyed_mix(key ^ (index + KEYED_GOLDEN));
}

/* A draw from [0, 1), a multiple of 2^-24, by their leading ones. */
RULE_FUNCTION float keyed_draw(uint64_t key, uint64_t index) {
    return (float)(keyed_bits(key, index) >> 40) * 0x1p-24f;
}

/* -log(x) of a normal x > 0: by powers of two to m in [2/3, 4/3), there by the series of
 * log((1 + s) / (1 - s)) up to s^9, at |s| <= 1/5. */
RULE_FUNCTION float keyed_minus_log(float x) {
    uint32_t bits;
    float m;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t power = (bits - 0x3f2aaaabu + (127u << 23)) >> 23;
    bits -= (power - 127u) << 23;
    memcpy(&m, &bits, sizeof m);
    const float f = RULE_ADD(m, -1.0f), s = RULE_DIVIDE(f, RULE_ADD(2.0f, f));
    const float z = RULE_MULTIPLY(s, s), twice = RULE_MULTIPLY(2.0f, s);
    float p = RULE_ADD(0x1.24924ap-3f, RULE_MULTIPLY(z, 0x1.c71c72p-4f));
    p = RULE_ADD(0x1.99999ap-3f, RULE_MULTIPLY(z, p));
    p = RULE_MULTIPLY(z, RULE_ADD(0x1.555556p-2f, RULE_MULTIPLY(z, p)));
    const float log_m = RULE_ADD(twice, RULE_MULTIPLY(twice, p));
    return RULE_ADD(RULE_MULTIPLY((float)(127 - (int32_t)power), 0x1.62e43p-1f), -log_m);
}

/* Standard Gumbel noise by the same bits: -log(-log u) of u in (0, 1), an odd multiple of 2^-24;
 * from -2.82 to 16.64, within 4e-7 of its exact value relative to the larger of it and 1. */
RULE_FUNCTION float keyed_noise(uint64_t key, uint64_t index) {
    const float u = (float)(2 * (uint32_t)(keyed_bits(key, index) >> 41) + 1) * 0x1p-24f;
    return keyed_minus_log(keyed_minus_log(u));
}

/* A value with that noise at this temperature. */
RULE_FUNCTION float keyed_noised(float value, float temperature, uint64_t key, uint64_t index) {
    return RULE_ADD(value, RULE_MULTIPLY(temperature, keyed_noise(key, index)));
}

#endif
