#include "sim/policy/window.h"

#include "sim/base/rng.h"

static uint32_t prompt_in_block(const struct request *request) {
    return request->causal == SEES_BLOCKS ? request->prompt_tokens % request->block_tokens : 0;
}

/* From `begin` on, at most `width` positions, of which the prompt's are decided. */
static void enter(struct request *request, uint32_t block, uint32_t before, uint32_t begin,
                  uint32_t width) {
    const struct window was = request->window;
    uint32_t left = request->canvas_tokens - begin, length = left < width ? left : width;
    uint32_t of_prompt = request->prompt_tokens > begin ? request->prompt_tokens - begin : 0;
    request->window = window_of(block, begin, length, length - of_prompt);
    request->window.before = before;
    request->window.width = was.width;
    request->window.threshold = was.threshold;
    request->window.most = was.most;
    request->window.slides = was.slides;
    request->window.edits = was.edits == EDITS_NONE ? EDITS_NONE : EDITS_OPEN;
    const bool has_blocks = request->causal == SEES_BLOCKS || request->causal == SEES_CANVASES;
    if (block > 0 && has_blocks && was.uncached == 0) {
        request->cached_tokens = begin;
    }
}

void window_enter(struct request *request, uint32_t block) {
    uint32_t begin =
        request->prompt_tokens - prompt_in_block(request) + block * request->block_tokens;
    enter(request, block, block > 0 ? begin - request->block_tokens : 0, begin,
          request->block_tokens);
}

/* Where what is in flight begins: blocks before the window whose rows are not written yet, if any
 * are. */
static uint32_t in_flight_from(const struct request *request) {
    uint32_t first = window_first(request), cached = request->cached_tokens;
    bool lacks_rows = window_most(request) > 1 && request->causal == SEES_BLOCKS &&
                      window_block(request) > 0 && cached >= window_before(request) &&
                      cached < first;
    return lacks_rows ? window_before(request) : first;
}

void window_enter_next(struct request *request) {
    const struct window was = request->window;
    const uint32_t carried = was.length - was.front;
    enter(request, was.block + 1, in_flight_from(request), was.first + was.front,
          carried > 0 ? carried : window_width(request));
    if (carried > 0) {
        struct window *window = &request->window;
        window->front = carried < request->block_tokens ? carried : request->block_tokens;
        window->active = window->front;
        window->masked = was.masked;
        window->known = carried - was.masked;
    }
    if (carried > 0 || was.slides) {
        request->window.steps = was.steps;
        request->window.passes = was.passes;
    }
}

bool window_is_full(const struct request *request) {
    const uint64_t end = in_flight_from(request) + window_tokens_of(request, window_most(request));
    return window_most(request) > 1 && window_end(request) >= end;
}

bool window_lengthen(struct request *request) {
    struct window *window = &request->window;
    const uint32_t left = request->canvas_tokens - window->first;
    const uint64_t most = window_tokens_of(request, window_most(request));
    const uint64_t wanted = (uint64_t)request->block_tokens + request->prompt_tokens +
                            request->committed_tokens - window->first;
    const uint32_t bound = most < wanted ? (uint32_t)most : (uint32_t)wanted;
    const uint32_t length = left < bound ? left : bound;
    const uint32_t more = length - window->length;
    window->length = window->front = window->active = length;
    window->masked += more;
    window->uncached = window->kept = window->reach = length;
    return more > 0;
}

bool window_add_block(struct request *request) {
    struct window *window = &request->window;
    const uint32_t left = request->canvas_tokens - window_end(request);
    const uint32_t more = left < request->block_tokens ? left : request->block_tokens;
    if (more == 0 || window_most(request) == 1 || window_is_full(request)) {
        return false;
    }
    window->length += more;
    window->masked += more;
    window->uncached = window->kept = window->reach = window->length;
    return true;
}

bool window_say(struct request *request, uint32_t width_tokens, uint32_t threshold_millionths) {
    bool is_untouched = window_decided(request) == 0 && window_steps(request) == 0;
    bool changes = is_untouched && width_tokens != request->window.width;
    request->window.width = width_tokens;
    request->window.threshold = threshold_millionths;
    if (changes) {
        enter(request, window_block(request), window_before(request), window_first(request),
              window_width(request));
    }
    return changes;
}

uint32_t window_blocks_left(const struct request *request) {
    uint32_t width = window_width(request);
    return (request->canvas_tokens - window_end(request) + width - 1) / width + 1;
}

void window_enter_last(struct request *request) {
    uint32_t tokens = request->output_tokens + prompt_in_block(request);
    window_enter(request, (tokens - 1) / request->block_tokens);
}

uint32_t window_extent(const struct request *request, uint32_t position) {
    if (request->causal == SEES_CANVASES && window_is_open(request) &&
        window_has(request, position)) {
        return window_end(request);
    }
    uint32_t block = request->causal == SEES_BLOCKS ? request->block_tokens : 1;
    uint32_t end = (position / block + 1) * block;
    const uint32_t seen = window_first(request) + window_seen(request);
    return end < seen ? end : seen;
}

uint64_t window_draw_key(const struct request *request, uint64_t seed) {
    const uint64_t own = request->sampling.seed;
    uint64_t key = own > 0 ? rng_key(own - 1, 0, request->committed_tokens)
                           : rng_key(seed, request->id, request->committed_tokens);
    uint32_t earlier = window_earlier(request);
    return earlier == 0 ? key : rng_key(key, request->committed_tokens, earlier);
}
