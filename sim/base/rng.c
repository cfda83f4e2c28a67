#include "sim/base/rng.h"

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
    return rng_to_unit(rng_next(rng));
}

double rng_keyed(uint64_t seed, uint64_t request, uint64_t step, uint64_t position) {
    return rng_at(rng_key(seed, request, step), position);
}
