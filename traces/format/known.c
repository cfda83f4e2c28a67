#include "traces/format/known.h"

#include <stdlib.h>

#include "sim/base/mem.h"

/* The place of a key, or the free one where it belongs. */
static size_t place_of(const struct known *known, uint64_t key) {
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 20) % known->room;
    while (known->is_used[at] && known->keys[at] != key) {
        at = (at + 1) % known->room;
    }
    return at;
}

static void grow(struct known *known) {
    struct known larger = {.room = 2 * known->room + 1024};
    larger.keys = mem_unwritten(larger.room, sizeof *larger.keys);
    larger.values = mem_unwritten(larger.room, sizeof *larger.values);
    larger.is_used = mem_zeroed(larger.room, sizeof *larger.is_used);
    for (size_t i = 0; i < known->room; i++) {
        if (known->is_used[i]) {
            bool is_new;
            *known_add(&larger, known->keys[i], &is_new) = known->values[i];
        }
    }
    known_clear(known);
    *known = larger;
}

int64_t *known_add(struct known *known, uint64_t key, bool *is_new) {
    if (2 * known->n >= known->room) {
        grow(known);
    }
    size_t at = place_of(known, key);
    *is_new = !known->is_used[at];
    if (*is_new) {
        known->is_used[at] = true;
        known->keys[at] = key;
        known->values[at] = 0;
        known->n++;
    }
    return &known->values[at];
}

const int64_t *known_find(const struct known *known, uint64_t key) {
    if (known->room == 0) {
        return NULL;
    }
    size_t at = place_of(known, key);
    return known->is_used[at] ? &known->values[at] : NULL;
}

void known_clear(struct known *known) {
    free(known->keys);
    free(known->values);
    free(known->is_used);
    *known = (struct known){0};
}
