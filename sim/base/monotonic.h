/* The machine's clock: of what the program measures, never of what it simulates. */
#ifndef UNMASK_SIM_BASE_MONOTONIC_H
#define UNMASK_SIM_BASE_MONOTONIC_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since a moment that stays the same while the program runs; never goes back. */
static inline int64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
