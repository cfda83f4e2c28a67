#include "sim/check/exercise_parts.h"

#include <string.h>

#include "sim/cache/blocks.h"

uint32_t exercise_draw(struct rng *rng, uint32_t from, uint32_t to) {
    return from + (uint32_t)(rng_next(rng) % ((uint64_t)to - from + 1));
}

uint32_t exercise_size(struct rng *rng, uint32_t max) {
    uint32_t bits = 0;
    while (bits < 31 && (max >> bits) > 1) {
        bits++;
    }
    uint32_t top = 1u << exercise_draw(rng, 0, bits);
    uint32_t size = exercise_draw(rng, top, 2 * top - 1);
    return size < max ? size : max;
}

struct request exercise_request(struct rng *rng, uint64_t id, uint32_t max_prompt,
                                uint32_t max_output) {
    static const uint32_t block_sizes[] = {1, 4, 8, 32, 64, 128};
    struct request request;
    memset(&request, 0, sizeof request);
    request.id = id;
    request.prompt_tokens = exercise_size(rng, max_prompt);
    request.output_tokens = exercise_size(rng, max_output);
    request.canvas_tokens = request.prompt_tokens + request.output_tokens;
    request.block_tokens = block_sizes[exercise_draw(rng, 0, 5)];
    request.steps_per_block = exercise_draw(rng, 1, request.block_tokens);
    request.state = REQUEST_QUEUED;
    blocks_enter(&request, 0);
    return request;
}

struct request exercise_exact_request(struct rng *rng, uint64_t id, uint32_t max_prompt,
                                      uint32_t max_output, uint32_t causal, uint32_t block_tokens) {
    struct request request = exercise_request(rng, id, max_prompt, max_output);
    request.causal = causal;
    request.block_tokens = block_tokens;
    request.steps_per_block = exercise_draw(rng, 1, block_tokens);
    blocks_enter(&request, 0);
    return request;
}
