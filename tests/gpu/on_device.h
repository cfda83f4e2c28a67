/* The CUDA device through its table, loaded as the engine loads it, and arrays on both of its
 * sides: what the programs that test it share. Each is run as `NAME [seed] [small] [LIBRARY]` and
 * prints the seed, a line for each failure, and the count; `small` keeps to what a memory checker
 * gets through and leaves out what such a one would report. */
#ifndef UNMASK_TESTS_GPU_ON_DEVICE_H
#define UNMASK_TESTS_GPU_ON_DEVICE_H

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/bf16.h"
#include "kernels/device.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/keyed.h"
#include "tests/gpu/chance.h"

enum { MAX_BUFFERS = 64, D = 128 };

static const struct device_table *table;
static struct device *device;
static bool small;

/* For what the tests cannot go on without. */
static inline void must(int status, const char *what) {
    if (status != DEVICE_OK) {
        printf("%s: %s\n", what, device ? table->trouble(device) : "no device");
        exit(2);
    }
}

/* One array on both sides. */
struct buffer {
    void *host, *device;
    int64_t bytes;
};

static struct buffer *buffers[MAX_BUFFERS];
static int n_buffers;

static inline struct buffer *buffer_new(int64_t bytes) {
    struct buffer *b = calloc(1, sizeof *b);
    if (!b || n_buffers == MAX_BUFFERS) {
        exit(2);
    }
    b->bytes = bytes + 16; /* never empty */
    must(table->allocate_host(device, b->bytes, &b->host), "allocate_host");
    must(table->allocate(device, b->bytes, &b->device), "allocate");
    memset(b->host, 0xff, (size_t)b->bytes); /* NaN in bf16 and in single */
    buffers[n_buffers++] = b;
    return b;
}

static inline void push(struct buffer *b) {
    must(table->upload(device, b->device, b->host, b->bytes), "upload");
}

static inline struct buffer *poisoned(int64_t bytes) {
    struct buffer *b = buffer_new(bytes);
    push(b);
    return b;
}

static inline struct buffer *holding(const void *values, int64_t bytes) {
    struct buffer *b = buffer_new(bytes);
    memcpy(b->host, values, (size_t)bytes);
    push(b);
    return b;
}

static inline struct buffer *random_bf16(int64_t n, double scale) {
    struct buffer *b = buffer_new(n * 2);
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)b->host)[i] = bf16_from_float((float)(normal() * scale));
    }
    push(b);
    return b;
}

static inline void *pull(const struct buffer *b) {
    void *copy = malloc((size_t)b->bytes);
    must(table->download(device, copy, b->device, b->bytes), "download");
    return copy;
}

static inline void buffers_free(void) {
    for (int i = 0; i < n_buffers; i++) {
        table->release(device, buffers[i]->device);
        table->release_host(device, buffers[i]->host);
        free(buffers[i]);
    }
    n_buffers = 0;
}

static inline void check_bytes(const struct buffer *b, const char *name) {
    void *got = pull(b);
    check(memcmp(got, b->host, (size_t)b->bytes) == 0, "%s: bytes differ", name);
    free(got);
}

/* Rows of width elements, stride apart, each within the reference's bound; a NaN never is. */
static inline void check_rows(const struct buffer *b, int64_t n_rows, int64_t width, int64_t stride,
                              int64_t length, const char *name) {
    void *got = pull(b);
    const double bound = ref_bound(KERNEL_BF16, length);
    double worst = 0;
    bool good = true;
    for (int64_t row = 0; row < n_rows; row++) {
        double errors = 0, squares = 0;
        for (int64_t i = row * stride; i < row * stride + width; i++) {
            const double want = ref_load(b->host, KERNEL_BF16, i);
            const double error = ref_load(got, KERNEL_BF16, i) - want;
            errors += error * error;
            squares += want * want;
        }
        const double relative = sqrt(errors / (squares + 1e-30));
        good = good && relative <= bound;
        worst = relative <= worst ? worst : relative;
    }
    check(good, "%s: relative error %g, bound %g (%" PRId64 " rows of %" PRId64 ")", name, worst,
          bound, n_rows, width);
    free(got);
}

/* Calls that hold pointers name them twice; the reference implementation runs on the host's, then
 * the device. */
#define BOTH(field, b) call.field = side ? (b)->device : (b)->host

/* Beside the program, as make leaves it. */
static inline const char *own_library(void) {
    static char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash = n > 0 ? strrchr(path, '/') : NULL;
    const size_t room = slash ? (size_t)(path + sizeof path - slash) : 0;
    if (room > 0) {
        snprintf(slash, room, "/../../kernels/libunmask_cuda.so");
    }
    return path;
}

/* 0 with the device open, else the program's status. */
static inline int device_begin(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    small = argc > 2 && strcmp(argv[2], "small") == 0;
    const char *path = argc > 3 ? argv[3] : own_library();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    table = library ? dlsym(library, DEVICE_CUDA_SYMBOL) : NULL;
    if (!table || table->abi != DEVICE_ABI || table->size != sizeof *table) {
        printf("%s: %s\n", path, table ? "another version" : dlerror());
        return 2;
    }
    char text[DEVICE_TEXT_CHARS] = "";
    const int status = table->open(0, KERNEL_BF16, &device, text);
    if (status != DEVICE_OK) {
        printf("status %d: %s\n", status, text);
        return 2;
    }
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    return 0;
}

/* Nothing may be left allocated. */
static inline void check_empty(void) {
    check(table->allocated_bytes(device) == 0, "%" PRId64 " bytes are left allocated",
          table->allocated_bytes(device));
}

static inline int device_end(void) {
    table->close(device);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}

#endif
