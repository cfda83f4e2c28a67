/* Random numbers from named streams.
 *
 * Every consumer asks for its own stream, `rng_stream(seed, "arrivals")`, so that adding a consumer
 * changes no other one's numbers. Draws that belong to a request and a step are keyed instead
 * (`rng_keyed`), so that they do not depend on the order in which requests are served. */
#ifndef UNMASK_SIM_BASE_RNG_H
#define UNMASK_SIM_BASE_RNG_H

#include <stdint.h>

#include "kernels/rules/keyed.h"

/* xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021). */
struct rng {
    uint64_t s[4];
};

/* A stream that depends only on `seed` and the characters of `name`. */
struct rng rng_stream(uint64_t seed, const char *name);

uint64_t rng_next(struct rng *rng);

/* Uniform in the open interval (0, 1): safe under log and inverse distribution functions. */
double rng_uniform(struct rng *rng);

/* Uniform in (0, 1), a pure function of its four keys (SplitMix64 finaliser, Steele et al. 2014).
 */
double rng_keyed(uint64_t seed, uint64_t request, uint64_t step, uint64_t position);

/* The first three keys of such a draw, mixed: for many positions of one step. rng_at is rng_keyed
 * of them, the leading 53 bits of keyed_bits(key, position) as a number (kernels/rules/keyed.h). */
static inline uint64_t rng_key(uint64_t seed, uint64_t request, uint64_t step) {
    return keyed_bits(keyed_bits(keyed_mix(seed + KEYED_GOLDEN), request), step);
}
static inline double rng_to_unit(uint64_t bits) {
    return ((double)(bits >> 11) + 0.5) * 0x1.0p-53;
}
static inline double rng_at(uint64_t key, uint64_t position) {
    return rng_to_unit(keyed_bits(key, position));
}

/* Nearly standard normal, a pure function of its keys: the sum of four 16-bit uniforms, scaled
 * (Irwin and Hall). Mean 0 and variance 1 to 1e-9, kurtosis 2.7, within 3.47; no call of libm. */
static inline double rng_bell(uint64_t key, uint64_t position) {
    const uint64_t bits = keyed_bits(key, position);
    const uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    /* Each part has mean 65535 / 2 and variance (65536^2 - 1) / 12. */
    return ((double)sum - 131070) * (1.7320508075688772 / 65536);
}

/* FNV-1a over the characters of `text`: names to seeds, never used for ordering. */
uint64_t hash_text(const char *text);

#endif
