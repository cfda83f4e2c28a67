/* Whole numbers in as few bytes as they need, seven bits a byte (LEB128). */
#ifndef UNMASK_ANALYSIS_STORE_VARINT_H
#define UNMASK_ANALYSIS_STORE_VARINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_VARINT_BYTES = 10 };

/* Writes it and returns how many bytes it took. */
static inline size_t varint_put(unsigned char *at, uint64_t value) {
    if (value < 0x80) { /* as most are */
        at[0] = (unsigned char)value;
        return 1;
    }
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) {
        at[n++] = (unsigned char)(value | 0x80);
    }
    at[n++] = (unsigned char)value;
    return n;
}

/* Reads one and advances past it; false at the end of the bytes or when it does not fit. */
static inline bool varint_get(const unsigned char **at, const unsigned char *end, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        unsigned char byte = *(*at)++;
        if (shift == 63 && byte > 1) {
            return false;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Which of n values are `wanted`, as bits, the lowest of a byte first; returns how many bytes they
 * took. */
static inline size_t bits_put(unsigned char *at, const uint8_t *values, uint8_t wanted,
                              uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        at[i / 8] = (unsigned char)((i % 8 == 0 ? 0 : at[i / 8]) | (values[i] == wanted) << i % 8);
    }
    return ((size_t)n + 7) / 8;
}

/* Advances past `n` of them; those that are set make the value `wanted` where `values` is not NULL;
 * false where bytes lack. */
static inline bool bits_get(const unsigned char **at, const unsigned char *end, uint32_t n,
                            uint8_t wanted, uint8_t *values) {
    size_t n_bytes = ((size_t)n + 7) / 8;
    if ((size_t)(end - *at) < n_bytes) {
        return false;
    }
    for (uint32_t i = 0; values != NULL && i < n; i++) {
        values[i] = (*at)[i / 8] >> i % 8 & 1 ? wanted : values[i];
    }
    *at += n_bytes;
    return true;
}

#endif
