/* Arrays on both sides, and how a kernel's results are compared with its reference's. */
#ifndef UNMASK_TESTS_GPU_ARRAYS_H
#define UNMASK_TESTS_GPU_ARRAYS_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/bf16.h"
#include "kernels/ref/ref.h"
#include "tests/gpu/chance.h"

static inline void must(cudaError_t status, const char *what) {
    if (status != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(status));
        exit(2);
    }
}

/* One array on both sides; only what the device needs is copied, by push and pull. */
struct array {
    void *host, *device;
    size_t n_bytes;
};

enum { MAX_ARRAYS = 512 };
static struct array *arrays[MAX_ARRAYS];
static int n_arrays;

static inline struct array *array_new(size_t n_bytes) {
    if (n_arrays == MAX_ARRAYS) {
        fprintf(stderr, "more than %d arrays at once\n", MAX_ARRAYS);
        exit(2);
    }
    struct array *a = calloc(1, sizeof *a);
    n_bytes += 16; /* never empty */
    a->host = malloc(n_bytes);
    a->n_bytes = n_bytes;
    memset(a->host, 0xff, n_bytes); /* NaN in bf16 and in single */
    must(cudaMalloc(&a->device, n_bytes), "cudaMalloc");
    must(cudaMemset(a->device, 0xff, n_bytes), "cudaMemset");
    arrays[n_arrays++] = a;
    return a;
}

static inline void arrays_free(void) {
    for (int i = 0; i < n_arrays; i++) {
        free(arrays[i]->host);
        must(cudaFree(arrays[i]->device), "cudaFree");
        free(arrays[i]);
    }
    n_arrays = 0;
}

static inline void push(struct array *a) {
    must(cudaMemcpy(a->device, a->host, a->n_bytes, cudaMemcpyHostToDevice), "push");
}

static inline struct array *random_bf16(int64_t n, double scale) {
    struct array *a = array_new((size_t)n * 2);
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)a->host)[i] = bf16_from_float((float)(normal() * scale));
    }
    push(a);
    return a;
}

/* Small whole numbers: every sum of products of them is exact in single precision. */
static inline struct array *random_whole(int64_t n, int most) {
    struct array *a = array_new((size_t)n * 2);
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)a->host)[i] = bf16_from_float((float)between(-most, most));
    }
    push(a);
    return a;
}

static inline struct array *integers(const int32_t *values, int64_t n) {
    struct array *a = array_new((size_t)n * 4);
    memcpy(a->host, values, (size_t)n * 4);
    push(a);
    return a;
}

static inline struct array *longs(const int64_t *values, int64_t n) {
    struct array *a = array_new((size_t)n * 8);
    memcpy(a->host, values, (size_t)n * 8);
    push(a);
    return a;
}

/* What the device has in an array, in fresh memory. */
static inline void *pull(const struct array *a) {
    void *copy = malloc(a->n_bytes);
    must(cudaMemcpy(copy, a->device, a->n_bytes, cudaMemcpyDeviceToHost), "pull");
    return copy;
}

static inline void launched(cudaError_t status, const char *name) {
    must(status, name);
    must(cudaDeviceSynchronize(), name);
}

/* A narrow row's few numbers may all have cancelled out: it counts as large as a quarter of the
 * mean row. 0 for wide ones, and where there is no other row. */
static inline double least_squares(const struct array *a, enum kernel_dtype dtype, int64_t n_rows,
                                   int64_t width, int64_t stride) {
    double squares = 0;
    for (int64_t row = 0; width < 32 && row < n_rows; row++) {
        for (int64_t i = 0; i < width; i++) {
            const double want = ref_load(a->host, dtype, row * stride + i);
            squares += isfinite(want) ? want * want : 0;
        }
    }
    return squares / (double)n_rows / 16;
}

/* Compares the device's rows with the reference's in a->host: each row's relative error, and every
 * element against the row's size. */
static inline void check_rows(const struct array *a, enum kernel_dtype dtype, int64_t n_rows,
                              int64_t width, int64_t stride, int64_t length, const char *name) {
    void *got = pull(a);
    const double bound = ref_bound(dtype, length);
    const double least = least_squares(a, dtype, n_rows, width, stride);
    double worst = 0;
    bool good = true;
    const int64_t size = dtype == KERNEL_BF16 ? 2 : 4;
    for (int64_t row = 0; row < n_rows; row++) {
        const int64_t at = row * stride * size; /* a row that neither side wrote is no number */
        if (memcmp((char *)got + at, (char *)a->host + at, (size_t)(width * size)) == 0) {
            continue;
        }
        double errors = 0, squares = 0, largest = 0;
        for (int64_t i = 0; i < width; i++) {
            const double want = ref_load(a->host, dtype, row * stride + i);
            const double error = ref_load(got, dtype, row * stride + i) - want;
            errors += error * error;
            squares += want * want;
            if (!(fabs(error) <= largest)) { /* also when it is a NaN */
                largest = fabs(error);
            }
        }
        squares = fmax(squares, least);
        const double relative = sqrt(errors) / sqrt(squares + 1e-30);
        const double spread = sqrt(squares / (double)width);
        /* An element may be five times the row's root mean square and off by its own rounding. */
        if (!(relative <= bound) || !(largest <= 8 * bound * (spread + 1e-30))) {
            good = false;
        }
        if (!(relative <= worst)) {
            worst = relative;
        }
    }
    check(good, "%s: relative error %g, bound %g (%" PRId64 " rows of %" PRId64 ")", name, worst,
          bound, n_rows, width);
    free(got);
}

static inline void check_bytes(const struct array *a, size_t n_bytes, const char *name) {
    void *got = pull(a);
    check(memcmp(got, a->host, n_bytes) == 0, "%s: bytes differ", name);
    free(got);
}

/* What was never written is poisoned on both sides. */
static inline void check_all(const struct array *a, const char *name) {
    check_bytes(a, a->n_bytes, name);
}

/* NaN in bf16 and in single: what a launch does not write stays so. */
static inline void poison(struct array *a) {
    must(cudaMemset(a->device, 0xff, a->n_bytes), "poison");
}

/* From first_byte on: rows that belong to no pair, and what follows the array in memory. */
static inline void check_untouched(const struct array *a, int64_t first_byte, const char *name) {
    unsigned char *got = pull(a);
    bool good = true;
    for (size_t i = (size_t)first_byte; i < a->n_bytes; i++) {
        good = good && got[i] == 0xff;
    }
    check(good, "%s: wrote past its pairs", name);
    free(got);
}

#endif
