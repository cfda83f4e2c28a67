/* Numbers that were seen, each with a number of its own: a hash table. Starts zeroed. */
#ifndef UNMASK_TRACES_FORMAT_KNOWN_H
#define UNMASK_TRACES_FORMAT_KNOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct known {
    uint64_t *keys;
    int64_t *values;
    bool *is_used;
    size_t n, room;
};

/* Where the value of a key stands; `*is_new`: it was not there, and the value is 0. The pointer
 * holds until the next call. */
int64_t *known_add(struct known *known, uint64_t key, bool *is_new);
/* NULL: it was not seen. */
const int64_t *known_find(const struct known *known, uint64_t key);
void known_clear(struct known *known);

#endif
