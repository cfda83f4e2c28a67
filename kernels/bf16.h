/* bfloat16 on the host: the upper half of an IEEE single, kept as its 16 bits. */
#ifndef UNMASK_KERNELS_BF16_H
#define UNMASK_KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_to_float(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Rounds to nearest, ties to even, as the GPU does; a NaN stays a NaN. */
static inline uint16_t bf16_from_float(float value) {
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    if ((wide & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((wide >> 16) | 0x40u);
    }
    return (uint16_t)((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
}

#endif
