/* FP8 (e4m3) on the host: sign, 4 bits of exponent (bias 7), 3 of fraction; no infinities, one NaN
 * of each sign, 448 the largest (Micikevicius et al., arXiv 2209.05433, table 1).
 *
 * Numbers share a scale in single precision: a number is its code's value times the scale. A row of
 * K numbers in groups of `group` is K codes, then ceil(K / group) scales, then bytes without a
 * meaning up to a multiple of FP8_ROW_ALIGN, a line of the L2 cache: where 128 codes of a row lie
 * in two lines, a product of 512 rows takes up to a quarter longer (one H200). K is a multiple
 * of 4. */
#ifndef UNMASK_KERNELS_FP8_H
#define UNMASK_KERNELS_FP8_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/rules/portable.h"

enum { E4M3_NAN = 0x7f, E4M3_MOST = 448, E4M3_CODES = 256 };

static inline float e4m3_to_float(uint8_t code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float size = (code & 0x7f) == E4M3_NAN ? NAN
                       : exponent == 0           ? (float)fraction * 0x1p-9f
                                                 : ldexpf((float)(8 + fraction), exponent - 10);
    return (code & 0x80) != 0 ? -size : size;
}

/* Rounds to nearest, ties to even; what is larger becomes the largest; a NaN stays a NaN. */
static inline uint8_t e4m3_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) {
        return (uint8_t)(sign | E4M3_NAN);
    }
    if (bits >= 0x43e00000u) { /* 448 */
        return (uint8_t)(sign | (E4M3_NAN - 1));
    }
    if (bits < 0x3c800000u) { /* 2^-6, the least with a full fraction: steps of 2^-9 */
        float size;
        memcpy(&size, &bits, sizeof size);
        size += 16384; /* whose last bit is 2^-9 */
        memcpy(&bits, &size, sizeof bits);
        return (uint8_t)(sign | (bits & 15));
    }
    bits += 0x7ffffu + (bits >> 20 & 1);
    return (uint8_t)(sign | ((bits >> 20) - (120u << 3)));
}

/* By which numbers no larger than `most` fill e4m3's range: most / 448; 1 where that is too small
 * to divide by. */
RULE_FUNCTION float e4m3_scale(float most) {
    const float scale = RULE_DIVIDE(most, (float)E4M3_MOST);
    return scale < 0x1p-126f ? 1 : scale;
}

/* Of n numbers; a NaN among them is left out. */
static inline float e4m3_most(const float *values, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(values[i]);
        most = size > most ? size : most;
    }
    return most;
}

RULE_FUNCTION int64_t fp8_groups(int64_t n, int64_t group) {
    return (n + group - 1) / group;
}

enum { FP8_ROW_ALIGN = 128 };

RULE_FUNCTION int64_t fp8_row_bytes(int64_t n, int64_t group) {
    const int64_t bytes = n + fp8_groups(n, group) * (int64_t)sizeof(float);
    return (bytes + FP8_ROW_ALIGN - 1) / FP8_ROW_ALIGN * FP8_ROW_ALIGN;
}

/* Cached keys and values have a scale for each 128 numbers of a head. A head of D numbers in a row
 * of the cache has this many elements: bytes in fp8, else numbers. */
enum { FP8_HEAD_GROUP = 128 };

static inline int64_t fp8_head_elements(int64_t size, bool fp8) {
    return fp8 ? size + fp8_groups(size, FP8_HEAD_GROUP) * (int64_t)sizeof(float) : size;
}

/* Where a head's row of a cache in fp8 has its codes and its scales, in bytes. All codes lie before
 * all scales, so that those of a row begin at a multiple of 8 where D is one. */
struct fp8_place {
    int64_t codes, scales;
};

/* From the beginning of a packed cache: codes of keys [G, kept, D], then of values, scales of keys
 * [G, kept, groups], then of values. `head` counts keys' heads, then values'. */
RULE_FUNCTION struct fp8_place fp8_packed(int64_t n_heads, int64_t kept, int64_t size, int64_t head,
                                          int64_t row) {
    struct fp8_place place;
    place.codes = (head * kept + row) * size;
    place.scales = 2 * n_heads * kept * size +
                   (head * kept + row) * fp8_groups(size, FP8_HEAD_GROUP) * (int64_t)sizeof(float);
    return place;
}

/* From the beginning of a row of a pool of keys, or of values: codes [G, D], then scales. */
RULE_FUNCTION struct fp8_place fp8_paged(int64_t n_heads, int64_t size, int64_t head) {
    struct fp8_place place;
    place.codes = head * size;
    place.scales =
        n_heads * size + head * fp8_groups(size, FP8_HEAD_GROUP) * (int64_t)sizeof(float);
    return place;
}

/* Scale g of those that begin at `scales`. */
static inline float fp8_scale_at(const uint8_t *scales, int64_t g) {
    float scale;
    memcpy(&scale, scales + g * (int64_t)sizeof scale, sizeof scale);
    return scale;
}

/* The scale of a row's group g. */
static inline float fp8_row_scale(const uint8_t *row, int64_t n, int64_t g) {
    return fp8_scale_at(row + n, g);
}

/* n numbers as a row; and back. */
static inline void fp8_row_from(uint8_t *row, const float *values, int64_t n, int64_t group) {
    for (int64_t g = 0; g < fp8_groups(n, group); g++) {
        const int64_t end = (g + 1) * group < n ? (g + 1) * group : n;
        const float scale = e4m3_scale(e4m3_most(values + g * group, end - g * group));
        for (int64_t i = g * group; i < end; i++) {
            row[i] = e4m3_from_float(values[i] / scale);
        }
        memcpy(row + n + g * (int64_t)sizeof scale, &scale, sizeof scale);
    }
}

static inline float fp8_row_at(const uint8_t *row, int64_t n, int64_t group, int64_t i) {
    return e4m3_to_float(row[i]) * fp8_row_scale(row, n, i / group);
}

#endif
