/* Memory that a program of this size cannot go on without. */
#ifndef UNMASK_SIM_BASE_ZEROED_H
#define UNMASK_SIM_BASE_ZEROED_H

#include <stdlib.h>

#include "sim/base/err.h"

/* `n` elements of `size` bytes, all zero, for free(); never NULL, also for no elements. */
static inline void *zeroed(size_t n, size_t size) {
    void *memory = calloc(n > 0 ? n : 1, size);
    ASSERT(memory != NULL);
    return memory;
}

#endif
