/* A scheduler's answer over lists that lie one after the other. */
#ifndef UNMASK_TESTS_SUPPORT_BATCH_H
#define UNMASK_TESTS_SUPPORT_BATCH_H

#include "sim/policy/scheduler/scheduler.h"

enum { BATCH_LISTS = 11 };

/* `lists` are BATCH_LISTS of `stride` each, of which the answer may use `capacity`. */
static inline struct batch batch_over(uint32_t *lists, uint32_t stride, uint32_t capacity) {
    return (struct batch){.capacity = capacity,
                          .selected = lists,
                          .chunk_tokens = lists + 1 * stride,
                          .preempted = lists + 2 * stride,
                          .idle = lists + 3 * stride,
                          .width_tokens = lists + 4 * stride,
                          .threshold_millionths = lists + 5 * stride,
                          .puts_off = lists + 6 * stride,
                          .rejected = lists + 7 * stride,
                          .reasons = lists + 8 * stride,
                          .swaps = lists + 9 * stride,
                          .run_tokens = lists + 10 * stride};
}

#endif
