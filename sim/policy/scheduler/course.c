#include "sim/policy/scheduler/course.h"

#include <math.h>

#include "sim/base/num.h"
#include "sim/policy/cache/blocks.h"

void course_plan(const struct course *course, struct request *request) {
    uint32_t holds = cache_plan(course->cache, course->cache_state, NULL, request);
    request->commit_tokens = 0;
    request->steps_to_change = 1;
    if (!blocks_decide(request)) {
        return;
    }
    uint32_t to_end, repeat = UINT32_MAX;
    if (course->decoder->count != NULL) {
        uint32_t n = course->decoder->count(course->decoder_state, request, &repeat);
        request->commit_tokens = smaller(n > 0 ? n : 1, window_masked(request));
        to_end = window_front_masked(request) / request->commit_tokens;
    } else {
        to_end = (uint32_t)ceil((window_masked(request) - course->owed) / course->tokens_per_pass);
    }
    holds = smaller(smaller(holds, repeat), to_end);
    if (course->adjust != NULL) {
        holds = course->adjust(course->adjust_state, request, holds);
    }
    request->steps_to_change = holds > 0 ? holds : 1;
}

/* Positions that `steps` steps commit, where the number is drawn: its expectation. */
static uint32_t expected(struct course *course, const struct request *request, uint32_t steps) {
    double tokens = course->owed + steps * course->tokens_per_pass;
    const uint32_t masked = window_masked(request);
    uint32_t whole = tokens < masked ? (uint32_t)tokens : masked;
    whole = whole > 0 || masked == 0 ? whole : 1;
    course->owed = whole < masked && tokens > whole ? tokens - whole : 0;
    return whole;
}

bool course_take(struct course *course, struct request *request, uint32_t steps) {
    bool decides = blocks_decide(request), yields = blocks_yield(request);
    bool in_block = request->span.phase != PHASE_PREFILL;
    bool is_drawn = decides && course->decoder->count == NULL;
    uint32_t masked = window_masked(request);
    request->steps += steps;
    window_advance(request, in_block ? steps : 0, 0);
    request->steps_to_change -= steps;
    if (decides && masked == 0) { /* one pass that changes nothing, for all that is known */
        window_end_edits(request);
    }
    window_commit(request,
                  is_drawn ? expected(course, request, steps) : steps * request->commit_tokens);
    if (request->rows.settles == BLOCK_DELAYED || request->rows.settles == BLOCK_NEIGHBOUR) {
        /* What was decoded before is settled; a step ago, that is, for the neighbours' sake. */
        window_list(request, masked, window_known(request));
        window_keep(request, smaller(window_kept(request), masked), window_reach(request));
    }
    if (request->span.exact) {
        blocks_cache(request);
    }
    if (yields && !in_block) {
        window_commit(request, 1);
    }
    while (!window_front_is_open(request) &&
           !cache_writes_more(course->cache, course->cache_state, NULL, request)) {
        if (request->committed_tokens == request->output_tokens) {
            return false;
        }
        window_enter_next(request);
        if (yields) {
            window_commit(request, 1);
        }
    }
    return true;
}

static void add_pass(const struct request *request, struct pass_ahead *passes, uint32_t capacity,
                     struct outlook *out) {
    const struct span *span = &request->span;
    bool is_whole = span->phase == PHASE_PREFILL || span->phase == PHASE_REFRESH;
    if (is_whole && out->to_refresh == UINT32_MAX) {
        out->to_refresh = (uint32_t)out->steps;
    }
    if (out->n_passes < capacity) {
        passes[out->n_passes] =
            (struct pass_ahead){*span, request->steps_to_change, window_block(request)};
    }
    out->n_passes++;
    out->steps += request->steps_to_change;
    out->tokens += (uint64_t)request->steps_to_change * span->queries;
}

void course_foresee(struct course *course, const struct request *request, struct pass_ahead *passes,
                    uint32_t capacity, struct outlook *out) {
    struct request ahead = *request;
    /* Each step writes rows or commits a position; a user's policy may answer otherwise. */
    const uint64_t most_steps = 3 * (uint64_t)request->canvas_tokens;
    *out = (struct outlook){.n_blocks = window_blocks_left(request), .to_refresh = UINT32_MAX};
    do {
        course_plan(course, &ahead);
        add_pass(&ahead, passes, capacity, out);
    } while (course_take(course, &ahead, ahead.steps_to_change) && out->steps < most_steps);
}
