/* The guard of cache policies that evict: which positions go on, and what is remembered of them. */
#include "sim/check/guard_parts.h"

#include <string.h>

/* Lends copies of the view's lists, and of the memory; answers into commit[asking]. */
static bool evict_once(struct guard *guard, const void *memory, const struct eviction_view *view,
                       int asking, uint32_t *kept) {
    struct guard_scratch *scratch = guard->scratch;
    const struct cache_policy *cache = (const struct cache_policy *)guard->inner;
    uint32_t length = view->length;
    uint8_t *keep = scratch->commit[asking];
    struct request lent;
    memcpy(&lent, view->request, sizeof lent);
    memcpy(scratch->flags[0], view->pending, length);
    memcpy(scratch->flags[1], view->masked, length);
    memcpy(scratch->seen_values[0], view->delta, length * sizeof *view->delta);
    memcpy(scratch->memory[0], memory, cache->memory_bytes);
    memset(keep, FILL, length + MARGIN);
    const struct eviction_view given = {.request = &lent,
                                        .length = length,
                                        .pending = scratch->flags[0],
                                        .masked = scratch->flags[1],
                                        .delta = scratch->seen_values[0],
                                        .frontier = view->frontier};
    guard_enter(guard, "evict");
    *kept = cache->evict(guard->inner_state, scratch->memory[0], &given, keep);
    guard_leave(guard);
    bool untouched =
        memcmp(scratch->flags[0], view->pending, length) == 0 &&
        memcmp(scratch->flags[1], view->masked, length) == 0 &&
        memcmp(scratch->seen_values[0], view->delta, length * sizeof *view->delta) == 0 &&
        memcmp(scratch->memory[0], memory, cache->memory_bytes) == 0;
    return guard_keeps_request(guard, &lent, view->request) && guard_keeps_state(guard) &&
           guard_keeps(guard, PROMISE_READS, untouched,
                       "writes to what it is shown of the block, which it may only read");
}

static bool keeps_flags(struct guard *guard, const struct eviction_view *view, const uint8_t *keep,
                        uint32_t kept) {
    uint32_t sum = 0, n_masked = 0, end = view->length;
    for (uint32_t i = 0; i < view->length; i++) {
        bool stays = view->pending[i] && !view->masked[i];
        if (!guard_keeps(guard, PROMISE_EVICT, keep[i] <= 1,
                         "leaves keep[%u] unset or sets it to %u, neither 0 nor 1", i, keep[i]) ||
            !guard_keeps(guard, PROMISE_EVICT, keep[i] == 0 || view->pending[i],
                         "keeps position %u, which does not run in this step", i) ||
            !guard_keeps(guard, PROMISE_EVICT, keep[i] == 1 || !stays,
                         "evicts position %u, which is committed and not yet cached", i)) {
            return false;
        }
        sum += keep[i];
        n_masked += keep[i] == 1 && view->masked[i];
    }
    while (end < view->length + MARGIN && keep[end] == FILL) {
        end++;
    }
    return guard_keeps(guard, PROMISE_EVICT, end == view->length + MARGIN,
                       "writes to keep[%u], beyond its %u entries", end, view->length) &&
           guard_keeps(guard, PROMISE_EVICT, kept == sum, "returns %u but keeps %u positions", kept,
                       sum) &&
           guard_keeps(guard, PROMISE_EVICT, n_masked >= 1,
                       "keeps none of the masked positions, which leaves nothing to commit");
}

uint32_t guarded_evict(const void *state, const void *memory, const struct eviction_view *view,
                       uint8_t *keep) {
    struct guard *guard = (struct guard *)state;
    struct guard_scratch *scratch = guard->scratch;
    uint32_t first, second, length = view->length;
    ASSERT(length >= 1 && length <= scratch->max_slots);
    if (guard->err.kind == ERR_NONE && evict_once(guard, memory, view, 0, &first) &&
        keeps_flags(guard, view, scratch->commit[0], first) &&
        evict_once(guard, memory, view, 1, &second) &&
        guard_keeps(guard, PROMISE_REPEATABLE,
                    memcmp(scratch->commit[0], scratch->commit[1], length) == 0,
                    "evicts differently when asked the same again: %u positions kept, then %u",
                    first, second)) {
        memcpy(keep, scratch->commit[0], length);
        return first;
    }
    memcpy(keep, view->pending, length);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < length; i++) {
        kept += keep[i];
    }
    return kept;
}

static bool learn_once(struct guard *guard, const void *memory, const struct request *request,
                       const struct learned *learned, int asking) {
    const struct cache_policy *cache = (const struct cache_policy *)guard->inner;
    uint8_t *copy = guard->scratch->memory[asking];
    uint32_t size = cache->memory_bytes, end = size;
    uint8_t *commit = guard->scratch->flags[0];
    float *entropy = guard->scratch->seen_values[0];
    size_t length = learned->n > 0 ? request->block_length : 0;
    bool has_entropy = length > 0 && learned->entropy != NULL;
    const struct learned told = {learned->n, length > 0 ? commit : NULL,
                                 has_entropy ? entropy : NULL};
    struct request lent;
    memcpy(&lent, request, sizeof lent);
    memcpy(copy, memory, size);
    memset(copy + size, FILL, MARGIN);
    if (length > 0) {
        memcpy(commit, learned->commit, length);
    }
    if (has_entropy) {
        memcpy(entropy, learned->entropy, length * sizeof *entropy);
    }
    guard_enter(guard, "learn");
    cache->learn(guard->inner_state, copy, &lent, &told);
    guard_leave(guard);
    bool keeps =
        length == 0 ||
        (memcmp(commit, learned->commit, length) == 0 &&
         (!has_entropy || memcmp(entropy, learned->entropy, length * sizeof *entropy) == 0));
    while (end < size + MARGIN && copy[end] == FILL) {
        end++;
    }
    return guard_keeps_request(guard, &lent, request) && guard_keeps_state(guard) &&
           guard_keeps(guard, PROMISE_READS, keeps,
                       "writes to what it learns, which it may only read") &&
           guard_keeps(guard, PROMISE_READS, end == size + MARGIN,
                       "writes to byte %u of its memory, beyond its memory_bytes of %u", end, size);
}

void guarded_learn(const void *state, void *memory, const struct request *request,
                   const struct learned *learned) {
    struct guard *guard = (struct guard *)state;
    uint8_t **copies = guard->scratch->memory;
    uint32_t size = ((const struct cache_policy *)guard->inner)->memory_bytes;
    if (guard->err.kind == ERR_NONE && learn_once(guard, memory, request, learned, 0) &&
        learn_once(guard, memory, request, learned, 1) &&
        guard_keeps(guard, PROMISE_REPEATABLE, memcmp(copies[0], copies[1], size) == 0,
                    "learns differently when told the same again")) {
        memcpy(memory, copies[0], size);
    }
}
