/* The guard of cache policies that list what a step runs of a block. */
#include "sim/check/guard_parts.h"

#include <string.h>

/* Lends copies of the view's lists; answers into commit[asking]. */
static bool list_once(struct guard *guard, const struct listing_view *view, int asking,
                      uint32_t *listed) {
    struct guard_scratch *scratch = guard->scratch;
    const struct cache_policy *cache = (const struct cache_policy *)guard->inner;
    const uint8_t *shown[N_BLOCK_FLAGS] = {view->pending, view->masked, view->next};
    uint8_t *runs = scratch->commit[asking];
    uint32_t length = view->length;
    struct request lent;
    memcpy(&lent, view->request, sizeof lent);
    for (int i = 0; i < N_BLOCK_FLAGS; i++) {
        memcpy(scratch->flags[i], shown[i], length);
    }
    memset(runs, FILL, length + MARGIN);
    const struct listing_view given = {.request = &lent,
                                       .length = length,
                                       .pending = scratch->flags[0],
                                       .masked = scratch->flags[1],
                                       .next = scratch->flags[2]};
    guard_enter(guard, "list");
    *listed = cache->list(guard->inner_state, &given, runs);
    guard_leave(guard);
    bool untouched = true;
    for (int i = 0; i < N_BLOCK_FLAGS; i++) {
        untouched = untouched && memcmp(scratch->flags[i], shown[i], length) == 0;
    }
    return guard_keeps_request(guard, &lent, view->request) && guard_keeps_state(guard) &&
           guard_keeps(guard, PROMISE_READS, untouched,
                       "writes to what it is shown of the block, which it may only read");
}

static bool keeps_flags(struct guard *guard, const struct listing_view *view, const uint8_t *runs,
                        uint32_t listed) {
    uint32_t sum = 0, end = view->length;
    for (uint32_t i = 0; i < view->length; i++) {
        bool must_run = view->next[i] || (view->pending[i] && !view->masked[i]);
        if (!guard_keeps(guard, PROMISE_RUNS, runs[i] <= 1,
                         "leaves runs[%u] unset or sets it to %u, neither 0 nor 1", i, runs[i]) ||
            !guard_keeps(guard, PROMISE_RUNS, runs[i] == 0 || view->pending[i],
                         "lists position %u, whose keys and values are final", i) ||
            !guard_keeps(guard, PROMISE_RUNS, runs[i] == 1 || !must_run,
                         "leaves out position %u, which %s", i,
                         view->next[i] ? "the step decides" : "was decided and not run since")) {
            return false;
        }
        sum += runs[i];
    }
    while (end < view->length + MARGIN && runs[end] == FILL) {
        end++;
    }
    return guard_keeps(guard, PROMISE_RUNS, end == view->length + MARGIN,
                       "writes to runs[%u], beyond its %u entries", end, view->length) &&
           guard_keeps(guard, PROMISE_RUNS, listed == sum, "returns %u but lists %u positions",
                       listed, sum);
}

uint32_t guarded_list(const void *state, const struct listing_view *view, uint8_t *runs) {
    struct guard *guard = (struct guard *)state;
    struct guard_scratch *scratch = guard->scratch;
    uint32_t first, second, length = view->length;
    ASSERT(length >= 1 && length <= scratch->max_slots);
    if (guard->err.kind == ERR_NONE && list_once(guard, view, 0, &first) &&
        keeps_flags(guard, view, scratch->commit[0], first) && list_once(guard, view, 1, &second) &&
        guard_keeps(
            guard, PROMISE_REPEATABLE, memcmp(scratch->commit[0], scratch->commit[1], length) == 0,
            "lists differently when asked the same again: %u positions, then %u", first, second)) {
        memcpy(runs, scratch->commit[0], length);
        return first;
    }
    memcpy(runs, view->pending, length);
    uint32_t n = 0;
    for (uint32_t i = 0; i < length; i++) {
        n += runs[i];
    }
    return n;
}
