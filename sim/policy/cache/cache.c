#include "sim/policy/cache/cache.h"

#include "sim/policy/cache/blocks.h"

/* As much as any policy may remember. */
static const uint64_t nothing_learned[CACHE_MAX_MEMORY_BYTES / sizeof(uint64_t)];

uint32_t cache_rows(const struct cache_policy *cache, const void *state, const void *memory,
                    const struct request *request, struct row_sets *rows) {
    return cache->plan(state, memory != NULL ? memory : nothing_learned, request, rows);
}

uint32_t cache_put_off(const struct cache_policy *cache, const void *state, const void *memory,
                       const struct request *request, struct row_sets *rows) {
    return cache->put_off != NULL
               ? cache->put_off(state, memory != NULL ? memory : nothing_learned, request, rows)
               : 0;
}

uint32_t cache_most_held(const struct cache_policy *cache, const void *state,
                         const struct request *request) {
    struct request last = *request;
    struct row_sets rows;
    window_enter_last(&last);
    (void)cache_rows(cache, state, NULL, &last, &rows);
    return rows.held;
}

bool cache_writes_more(const struct cache_policy *cache, const void *state, const void *memory,
                       const struct request *request) {
    struct row_sets rows;
    struct span span;
    if (!request->span.exact || window_has_several(request)) {
        return false; /* the next block's pass writes them */
    }
    (void)cache_rows(cache, state, memory, request, &rows);
    rows_span(&rows, request, &span);
    return span.queries > 0;
}

uint32_t cache_plan(const struct cache_policy *cache, const void *state, const void *memory,
                    struct request *request) {
    uint32_t holds = cache_rows(cache, state, memory, request, &request->rows);
    rows_span(&request->rows, request, &request->span);
    return holds;
}
