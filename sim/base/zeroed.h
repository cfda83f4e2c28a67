/* Memory that a program of this size cannot go on without. */
#ifndef UNMASK_SIM_BASE_ZEROED_H
#define UNMASK_SIM_BASE_ZEROED_H

#include <stdint.h>
#include <stdlib.h>

#include "sim/base/err.h"

/* `n` elements of `size` bytes, all zero, for free(); never NULL, also for no elements. */
static inline void *zeroed(size_t n, size_t size) {
    void *memory = calloc(n > 0 ? n : 1, size);
    ASSERT(memory != NULL);
    return memory;
}

/* The same without the zeros, for what is written before it is read. */
static inline void *unwritten(size_t n, size_t size) {
    ASSERT(size > 0 && n <= SIZE_MAX / size);
    void *memory = malloc(n > 0 ? n * size : size);
    ASSERT(memory != NULL);
    return memory;
}

#endif
