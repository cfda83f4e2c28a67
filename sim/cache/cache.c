#include "sim/cache/cache.h"

/* As much as any policy may remember. */
static const uint64_t nothing_learned[CACHE_MAX_MEMORY_BYTES / sizeof(uint64_t)];

struct row_sets cache_rows(const struct cache_policy *cache, const void *state, const void *memory,
                           const struct request *request, uint32_t *holds) {
    struct row_sets rows;
    *holds = cache->plan(state, memory != NULL ? memory : nothing_learned, request, &rows);
    return rows;
}

uint32_t cache_plan(const struct cache_policy *cache, const void *state, const void *memory,
                    struct request *request) {
    uint32_t holds =
        cache->plan(state, memory != NULL ? memory : nothing_learned, request, &request->rows);
    request->span = rows_span(&request->rows, request);
    return holds;
}
