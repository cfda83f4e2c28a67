#include "sim/policy/window.h"

#include "sim/base/rng.h"

static uint32_t prompt_in_block(const struct request *request) {
    return request->causal == SEES_BLOCKS ? request->prompt_tokens % request->block_tokens : 0;
}

void window_enter(struct request *request, uint32_t block) {
    uint32_t in_block = prompt_in_block(request);
    uint32_t begin = request->prompt_tokens - in_block + block * request->block_tokens;
    uint32_t left = request->canvas_tokens - begin;
    uint32_t length = left < request->block_tokens ? left : request->block_tokens;
    bool before_is_cached = request->window.uncached == 0;
    request->window = window_of(block, begin, length, length - (block == 0 ? in_block : 0));
    if (block > 0 && request->causal == SEES_BLOCKS && before_is_cached) {
        request->cached_tokens = begin;
    }
}

void window_enter_last(struct request *request) {
    uint32_t tokens = request->output_tokens + prompt_in_block(request);
    window_enter(request, (tokens - 1) / request->block_tokens);
}

uint32_t window_extent(const struct request *request, uint32_t position) {
    uint32_t block = request->causal == SEES_BLOCKS ? request->block_tokens : 1;
    uint32_t end = (position / block + 1) * block;
    return end < window_end(request) ? end : window_end(request);
}

uint64_t window_draw_key(const struct request *request, uint64_t seed) {
    uint64_t key = rng_key(seed, request->id, request->committed_tokens);
    uint32_t earlier = window_earlier(request);
    return earlier == 0 ? key : rng_key(key, request->committed_tokens, earlier);
}
