#include "sim/cache/canvas.h"

struct canvas_run canvas_run_of(const struct cache_policy *cache, const void *state,
                                const struct request *request) {
    struct canvas_run run = {0, request->canvas_tokens, true};
    if (request->span.context > 0) {
        run.first = request->block_start;
        run.end = request->block_start + request->block_length;
        if (cache->window != NULL) {
            cache->window(state, request, &run.first, &run.end);
        }
        run.all = request->span.queries == run.end - run.first;
    }
    return run;
}

uint32_t canvas_run_in_block(const struct cache_policy *cache, const void *state,
                             const struct request *request) {
    return canvas_run_of(cache, state, request).all ? request->block_length
                                                    : request->uncached_in_block;
}
