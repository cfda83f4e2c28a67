/* Arrays that grow by doubling. */
#ifndef UNMASK_SIM_BASE_GROW_H
#define UNMASK_SIM_BASE_GROW_H

#include <stdlib.h>

#include "sim/base/err.h"

/* `items` with room for one more than the `n` of `size` bytes that it holds; `*room` is how many it
 * has room for. Never NULL. */
static inline void *grow(void *items, size_t n, size_t *room, size_t size) {
    if (n == *room) {
        *room = 2 * *room + 64;
        items = realloc(items, *room * size);
        ASSERT(items != NULL);
    }
    return items;
}

#endif
