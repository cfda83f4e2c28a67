/* Numbers as people write them, read strictly: the whole text must be the number. */
#ifndef UNMASK_SIM_BASE_NUM_H
#define UNMASK_SIM_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits only (no sign, no spaces); false when empty, malformed or above `max`. */
bool num_u64(const char *text, uint64_t max, uint64_t *out);

/* A finite decimal number (no hex, no nan, no inf). */
bool num_f64(const char *text, double *out);

/* Digits, at most 15, with at most one point after the first of them: what follows them in `text`.
 * NULL: it does not begin so, and num_f64 may still read it. */
const char *num_plain(const char *text, double *out);
/* The same with more digits, too; an exponent after 15 digits or fewer is not read. */
const char *num_decimal(const char *text, double *out);

/* A number with an optional unit of one family: bytes (B KiB MiB GiB KB MB GB), time (ns us ms s),
 * or none when `unit` is NULL. `unit` is "bytes", "ns" or NULL; the result is in that unit. */
bool num_with_unit(const char *text, const char *unit, double *out);

/* "14.9 GiB", "3.2 ms": for people, three significant digits. Returns `text`. */
const char *num_format_bytes(char *text, size_t size, double bytes);
const char *num_format_ns(char *text, size_t size, double ns);

static inline uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ceil(a / b) for a >= 0, b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t num_smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t num_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Of a, b >= 0; of 0 and b it is b. */
static inline int64_t common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The least multiple of `align` > 0 that is not below `offset` >= 0. */
static inline int64_t align_up(int64_t offset, int64_t align) {
    return align == 1 ? offset : (offset + align - 1) / align * align;
}

#endif
