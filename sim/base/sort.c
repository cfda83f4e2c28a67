#include "sim/base/sort.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

/* A double's bits have DIGITS of DIGIT_BITS; an even number of passes ends where it began. */
enum { DIGIT_BITS = 11, DIGITS = 6, DIGIT_VALUES = 1 << DIGIT_BITS, FEW = 64 };

static const uint64_t sign = UINT64_C(1) << 63;

/* Numbers that rise as the doubles of these bits do, and back. */
static uint64_t rising(uint64_t bits) {
    return (bits & sign) != 0 ? ~bits : bits | sign;
}

static uint64_t bits_of(uint64_t number) {
    return (number & sign) != 0 ? number & ~sign : ~number;
}

static size_t digit(uint64_t number, int i) {
    return number >> i * DIGIT_BITS & (DIGIT_VALUES - 1);
}

static void sort_few(double *values, size_t n) {
    for (size_t i = 1; i < n; i++) {
        const double value = values[i];
        size_t at = i;
        for (; at > 0 && values[at - 1] > value; at--) {
            values[at] = values[at - 1];
        }
        values[at] = value;
    }
}

/* Digit by digit from the last, each in a pass that keeps the order of equal ones. */
void sort_doubles(double *values, size_t n) {
    if (n <= FEW) {
        sort_few(values, n);
        return;
    }
    uint64_t *from = mem_unwritten(2 * n, sizeof *from), *to = from + n, *const room = from;
    size_t(*starts)[DIGIT_VALUES] = mem_zeroed(DIGITS, sizeof *starts);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        from[i] = rising(bits);
        for (int d = 0; d < DIGITS; d++) {
            starts[d][digit(from[i], d)]++;
        }
    }
    for (int d = 0; d < DIGITS; d++) {
        size_t start = 0;
        for (size_t v = 0; v < DIGIT_VALUES; v++) {
            const size_t here = starts[d][v];
            starts[d][v] = start;
            start += here;
        }
        for (size_t i = 0; i < n; i++) {
            to[starts[d][digit(from[i], d)]++] = from[i];
        }
        uint64_t *const filled = to;
        to = from;
        from = filled;
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = bits_of(room[i]);
        memcpy(&values[i], &bits, sizeof bits);
    }
    free(starts);
    free(room);
}
