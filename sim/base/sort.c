#include "sim/base/sort.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

/* A double's bits have DIGITS of DIGIT_BITS; an even number of passes ends where it began. */
enum { DIGIT_BITS = 11, DIGITS = 6, DIGIT_VALUES = 1 << DIGIT_BITS, FEW = 64 };

static const uint64_t sign = UINT64_C(1) << 63;

uint64_t sort_key(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & sign) != 0 ? ~bits : bits | sign;
}

static double value_of(uint64_t key) {
    const uint64_t bits = (key & sign) != 0 ? key & ~sign : ~key;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static size_t digit(uint64_t key, int i) {
    return key >> i * DIGIT_BITS & (DIGIT_VALUES - 1);
}

/* Where those begin that have each value of each digit, by how many there are of it. */
static void find_starts(size_t starts[DIGITS][DIGIT_VALUES]) {
    for (int d = 0; d < DIGITS; d++) {
        size_t start = 0;
        for (size_t v = 0; v < DIGIT_VALUES; v++) {
            const size_t here = starts[d][v];
            starts[d][v] = start;
            start += here;
        }
    }
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
        from[i] = sort_key(values[i]);
        for (int d = 0; d < DIGITS; d++) {
            starts[d][digit(from[i], d)]++;
        }
    }
    find_starts(starts);
    for (int d = 0; d < DIGITS; d++) {
        for (size_t i = 0; i < n; i++) {
            to[starts[d][digit(from[i], d)]++] = from[i];
        }
        uint64_t *const filled = to;
        to = from;
        from = filled;
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = value_of(room[i]);
    }
    free(starts);
    free(room);
}

void sort_items(struct sort_item *items, size_t n) {
    struct sort_item *from = items, *to = mem_unwritten(n + 1, sizeof *to), *const other = to;
    size_t(*starts)[DIGIT_VALUES] = mem_zeroed(DIGITS, sizeof *starts);
    for (size_t i = 0; i < n; i++) {
        for (int d = 0; d < DIGITS; d++) {
            starts[d][digit(items[i].key, d)]++;
        }
    }
    find_starts(starts);
    for (int d = 0; d < DIGITS; d++) {
        for (size_t i = 0; i < n; i++) {
            to[starts[d][digit(from[i].key, d)]++] = from[i];
        }
        struct sort_item *const filled = to;
        to = from;
        from = filled;
    }
    free(starts);
    free(other);
}
