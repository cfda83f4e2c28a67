#include "sim/base/wait.h"

#include <stdatomic.h>

/* More at once are not followed. */
enum { MOST_WAITS = 128 };

static atomic_uint_fast64_t count, waits[MOST_WAITS]; /* by number from 1 on; 0: none */

int wait_begin(void) {
    const uint_fast64_t number = atomic_fetch_add(&count, 1) + 1;
    for (int i = 0; i < MOST_WAITS; i++) {
        uint_fast64_t none = 0;
        if (atomic_compare_exchange_strong(&waits[i], &none, number)) {
            return i;
        }
    }
    return -1;
}

void wait_end(int place) {
    if (place >= 0) {
        atomic_store(&waits[place], 0);
    }
}

uint64_t wait_count(void) {
    return atomic_load(&count);
}

bool wait_is_on(uint64_t number) {
    for (int i = 0; i < MOST_WAITS; i++) {
        const uint64_t began = atomic_load(&waits[i]);
        if (began != 0 && began <= number) {
            return true;
        }
    }
    return false;
}
