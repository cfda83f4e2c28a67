/* What the GPU's test programs draw and count. */
#ifndef UNMASK_TESTS_GPU_CHANCE_H
#define UNMASK_TESTS_GPU_CHANCE_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/calls.h"
#include "kernels/rules/keyed.h"
#include "tests/support/make.h"

static uint64_t state; /* of what is drawn: the seed at first */
static int n_passed, n_failed;

static inline uint64_t draw(void) {
    return keyed_mix(state += 0x9e3779b97f4a7c15u);
}

/* Both may come up. */
static inline int between(int low, int high) {
    return low + (int)(draw() % (uint64_t)(high - low + 1));
}

static inline double normal(void) {
    const double u = ((double)(draw() >> 11) + 0.5) * 0x1p-53;
    const double v = ((double)(draw() >> 11) + 0.5) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Every size of a head that the kernels take. */
static const int head_sizes[] = {
#define HEAD(D) D,
    HEAD_SIZES(HEAD)
#undef HEAD
};
enum { N_HEAD_SIZES = sizeof head_sizes / sizeof head_sizes[0] };

static inline int draw_head_size(void) {
    return head_sizes[draw() % N_HEAD_SIZES];
}

/* Counts, and says what failed. */
__attribute__((format(printf, 2, 3))) static inline void check(bool good, const char *format, ...) {
    if (good) {
        n_passed++;
        return;
    }
    n_failed++;
    va_list list;
    va_start(list, format);
    printf("FAILED ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

#endif
