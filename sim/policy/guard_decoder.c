/* The guard of decoders, counting and reading ones. */
#include "sim/policy/guard_parts.h"

#include <string.h>

static bool count_once(struct guard *guard, const struct request *request, uint32_t fill,
                       uint32_t *n, uint32_t *repeat) {
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    *repeat = fill;
    guard_enter(guard, "count");
    *n = ((const struct decoder *)guard->inner)->count(guard->inner_state, &lent, repeat);
    guard_leave(guard);
    return guard_keeps_request(guard, &lent, request) && guard_keeps_state(guard) &&
           guard_keeps(guard, PROMISE_COMMIT, *n >= 1 && *n <= request->masked_in_block,
                       "commits %u of %u masked positions", *n, request->masked_in_block);
}

static bool keeps_count(struct guard *guard, const struct request *request, uint32_t *n,
                        uint32_t *repeat) {
    uint32_t again, repeat_again, masked = request->masked_in_block;
    if (!count_once(guard, request, 0, n, repeat) ||
        !count_once(guard, request, UINT32_MAX, &again, &repeat_again) ||
        !guard_keeps(guard, PROMISE_COUNT_REPEAT, *repeat >= 1,
                     "says that its count holds for 0 steps, or leaves repeat unset") ||
        !guard_keeps(
            guard, PROMISE_REPEATABLE, *n == again && *repeat == repeat_again,
            "counts differently when asked the same again: %u for %u steps, then %u for %u", *n,
            *repeat, again, repeat_again)) {
        return false;
    }
    ASSERT(*n > 0);
    /* While as many as that are masked. */
    uint32_t steps = *repeat < masked / *n ? *repeat : masked / *n;
    const uint32_t after[] = {1, steps / 2, steps - 1};
    for (int i = 0; steps >= 2 && i < 3; i++) {
        struct request moved = guard_later(request, after[i], after[i] * *n);
        uint32_t then, then_repeat;
        if (!count_once(guard, &moved, 0, &then, &then_repeat) ||
            !guard_keeps(
                guard, PROMISE_COUNT_REPEAT, then == *n,
                "says that its count of %u holds for %u steps, but after %u steps it is %u", *n,
                *repeat, after[i], then)) {
            return false;
        }
    }
    return true;
}

uint32_t guarded_count(const void *state, const struct request *request, uint32_t *repeat) {
    struct guard *guard = (struct guard *)state;
    uint32_t n;
    if (guard->err.kind == ERR_NONE && keeps_count(guard, request, &n, repeat)) {
        return n;
    }
    *repeat = 1;
    return 1;
}

static bool choose_once(struct guard *guard, const struct request *request, const float *confidence,
                        uint32_t n, int asking, uint32_t *chosen) {
    struct guard_scratch *scratch = guard->scratch;
    uint8_t *commit = scratch->commit[asking];
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    memcpy(scratch->confidence, confidence, n * sizeof *confidence);
    memset(commit, FILL, n + MARGIN);
    guard_enter(guard, "choose");
    *chosen = ((const struct decoder *)guard->inner)
                  ->choose(guard->inner_state, &lent, scratch->confidence, n, commit);
    guard_leave(guard);
    if (!guard_keeps_request(guard, &lent, request) || !guard_keeps_state(guard) ||
        !guard_keeps(guard, PROMISE_READS,
                     memcmp(scratch->confidence, confidence, n * sizeof *confidence) == 0,
                     "writes to the confidences, which it may only read")) {
        return false;
    }
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!guard_keeps(guard, PROMISE_FLAGS, commit[i] <= 1,
                         "leaves commit[%u] unset or sets it to %u, neither 0 nor 1", i,
                         commit[i])) {
            return false;
        }
        sum += commit[i];
    }
    uint32_t end = n;
    while (end < n + MARGIN && commit[end] == FILL) {
        end++;
    }
    return guard_keeps(guard, PROMISE_FLAGS, end == n + MARGIN,
                       "writes to commit[%u], beyond its %u entries", end, n) &&
           guard_keeps(guard, PROMISE_FLAGS, *chosen == sum, "returns %u but sets %u flags",
                       *chosen, sum) &&
           guard_keeps(guard, PROMISE_COMMIT, sum >= 1, "commits %u of %u masked positions", sum,
                       n);
}

uint32_t guarded_choose(const void *state, const struct request *request, const float *confidence,
                        uint32_t n, uint8_t *commit) {
    struct guard *guard = (struct guard *)state;
    struct guard_scratch *scratch = guard->scratch;
    ASSERT(n >= 1 && n <= scratch->max_slots);
    uint32_t first, second;
    if (guard->err.kind == ERR_NONE && choose_once(guard, request, confidence, n, 0, &first) &&
        choose_once(guard, request, confidence, n, 1, &second) &&
        guard_keeps(guard, PROMISE_REPEATABLE,
                    memcmp(scratch->commit[0], scratch->commit[1], n) == 0,
                    "chooses differently when asked the same again: %u positions, then %u", first,
                    second)) {
        memcpy(commit, scratch->commit[0], n);
        return first;
    }
    memset(commit, 0, n);
    commit[0] = 1;
    return 1;
}
