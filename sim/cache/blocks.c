#include "sim/cache/blocks.h"

static uint32_t prompt_in_block(const struct request *request) {
    return request->causal == SEES_BLOCKS ? request->prompt_tokens % request->block_tokens : 0;
}

void blocks_enter(struct request *request, uint32_t block) {
    uint32_t in_block = prompt_in_block(request);
    uint32_t begin = request->prompt_tokens - in_block + block * request->block_tokens;
    uint32_t left = request->canvas_tokens - begin;
    bool before_is_cached = request->uncached_in_block == 0;
    request->block = block;
    request->block_start = begin;
    request->block_length = left < request->block_tokens ? left : request->block_tokens;
    request->step_in_block = request->passes_in_block = 0;
    request->masked_in_block = request->block_length - (block == 0 ? in_block : 0);
    request->known_in_front = request->block_length - request->masked_in_block;
    request->uncached_in_block = request->kept_in_block = request->block_length;
    request->reach_in_block = request->block_length;
    if (block > 0 && request->causal == SEES_BLOCKS && before_is_cached) {
        request->cached_tokens = begin;
    }
}

void blocks_enter_last(struct request *request) {
    uint32_t tokens = request->output_tokens + prompt_in_block(request);
    blocks_enter(request, (tokens - 1) / request->block_tokens);
}

void blocks_commit(struct request *request, uint32_t n) {
    request->masked_in_block -= n;
    request->committed_tokens += n;
    request->known_in_front = request->block_length - request->masked_in_block;
}

void blocks_cache(struct request *request) {
    if (request->span.phase == PHASE_COMMIT) {
        request->uncached_in_block = 0;
    } else if (request->span.phase == PHASE_PREFILL || request->causal == SEES_TOKENS) {
        request->cached_tokens += request->span.queries;
    } else {
        request->cached_tokens = request->block_start;
    }
}
