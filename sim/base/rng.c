#include "sim/base/rng.h"

#include "kernels/rules/keyed.h"

static double to_unit(uint64_t bits) {
    return ((double)(bits >> 11) + 0.5) * 0x1.0p-53;
}

uint64_t hash_text(const char *text) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text != '\0'; text++) {
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    }
    return hash;
}

struct rng rng_stream(uint64_t seed, const char *name) {
    uint64_t state = keyed_mix(seed) ^ hash_text(name);
    struct rng rng;
    for (int i = 0; i < 4; i++) {
        state += KEYED_GOLDEN;
        rng.s[i] = keyed_mix(state);
    }
    return rng;
}

static uint64_t rotate_left(uint64_t x, int bits) {
    return (x << bits) | (x >> (64 - bits));
}

uint64_t rng_next(struct rng *rng) {
    uint64_t *s = rng->s;
    uint64_t result = rotate_left(s[0] + s[3], 23) + s[0];
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double rng_uniform(struct rng *rng) {
    return to_unit(rng_next(rng));
}

uint64_t rng_key(uint64_t seed, uint64_t request, uint64_t step) {
    return keyed_bits(keyed_bits(keyed_mix(seed + KEYED_GOLDEN), request), step);
}

double rng_keyed(uint64_t seed, uint64_t request, uint64_t step, uint64_t position) {
    return to_unit(keyed_bits(rng_key(seed, request, step), position));
}

double rng_at(uint64_t key, uint64_t position) {
    return to_unit(keyed_bits(key, position));
}

double rng_bell(uint64_t key, uint64_t position) {
    uint64_t bits = keyed_bits(key, position);
    uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    /* Each part has mean 65535 / 2 and variance (65536^2 - 1) / 12. */
    return ((double)sum - 131070) * (1.7320508075688772 / 65536);
}
