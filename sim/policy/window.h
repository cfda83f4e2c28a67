/* The window of a request: the positions of its canvas that are in flight, one contiguous range, of
 * which each step decides some. One block is in flight, as wide as the scheduler says or else as
 * configured, or several blocks of the configured width are, each decided as far as it is. When all
 * of the first block is decided the window moves on to the next. Or it has no blocks, and slides
 * over the canvas.
 * Which of its positions are masked, uncached, run and kept, and how each came out of a pass, is
 * followed where a policy needs it (sim/serve/positions.h).
 *
 * Every reader of struct window goes through the functions here, and so does every writer: the
 * loop, those that walk a request ahead of it, and tests. `make lint` refuses others. Policies
 * read. */
#ifndef UNMASK_SIM_POLICY_WINDOW_H
#define UNMASK_SIM_POLICY_WINDOW_H

#include <stdbool.h>

#include "sim/policy/request.h"

/* ---- where it is ---- */

static inline uint32_t window_first(const struct request *request) {
    return request->window.first;
}

static inline uint32_t window_length(const struct request *request) {
    return request->window.length;
}

/* One past its last position. */
static inline uint32_t window_end(const struct request *request) {
    return request->window.first + request->window.length;
}

static inline struct range window_range(const struct request *request) {
    return (struct range){window_first(request), window_end(request)};
}

static inline bool window_has(const struct request *request, uint32_t position) {
    return range_has(window_range(request), position);
}

/* ---- how far it is ---- */

/* Positions that are still masked, and those that are not. */
static inline uint32_t window_masked(const struct request *request) {
    return request->window.masked;
}

static inline uint32_t window_decided(const struct request *request) {
    return request->window.length - request->window.masked;
}

/* Decided positions before the first masked one; where positions are not followed, as if decoded
 * from left to right. */
static inline uint32_t window_known(const struct request *request) {
    return request->window.known;
}

/* Where a cache leaves some out: positions whose keys and values are not final, or those of them
 * that it lists for its next step. */
static inline uint32_t window_uncached(const struct request *request) {
    return request->window.uncached;
}

/* Evicting caches: of these, those that stay in the next step, and the window's positions up to the
 * right-most of them. */
static inline uint32_t window_kept(const struct request *request) {
    return request->window.kept;
}

static inline uint32_t window_reach(const struct request *request) {
    return request->window.reach;
}

/* Its positions up to the last one that a pass has run, or that the next one runs: no query sees
 * further. All of them, unless a scheduler leaves some out (run_tokens). */
static inline uint32_t window_seen(const struct request *request) {
    return request->window.length - request->window.unseen;
}

/* ---- its block ---- */

/* Positions of its first block, by whose end the window moves: all of them, where one block is in
 * flight. */
static inline uint32_t window_front(const struct request *request) {
    return request->window.front;
}

/* Whether blocks after its first are in flight. */
static inline bool window_has_several(const struct request *request) {
    return request->window.front < request->window.length;
}

/* How many blocks are in flight, and the positions of one of them, counted from 0. */
static inline uint32_t window_marks(const struct request *request) {
    uint32_t after = request->window.length - request->window.front;
    return 1 + (after + request->block_tokens - 1) / request->block_tokens;
}

static inline struct range window_mark(const struct request *request, uint32_t mark) {
    uint32_t front = request->window.front, block = request->block_tokens;
    uint32_t first = window_first(request) + (mark > 0 ? front + (mark - 1) * block : 0);
    uint32_t end = first + (mark > 0 ? block : front);
    return (struct range){first, end < window_end(request) ? end : window_end(request)};
}

/* How many blocks may be in flight, those that are decided and whose keys and values the next pass
 * writes among them. */
static inline uint32_t window_most(const struct request *request) {
    return request->window.most > 0 ? request->window.most : 1;
}

/* Whether as many are, of several. */
bool window_is_full(const struct request *request);

/* Its positions up to the end of the last block that passes decide on: all of them, but where
 * blocks run that wait for the one before them. */
static inline uint32_t window_active(const struct request *request) {
    return request->window.active;
}

/* Positions of its first block that are still masked; where several blocks are in flight, those
 * from the first masked one on. */
static inline uint32_t window_front_masked(const struct request *request) {
    uint32_t known = request->window.known, front = request->window.front;
    return window_has_several(request) ? (known < front ? front - known : 0)
                                       : request->window.masked;
}

/* Whether its tokens may still be revised, and whether passes decide on it: something of it is
 * masked, or may be revised. The same of its first block. */
static inline bool window_is_revised(const struct request *request) {
    return request->window.edits == EDITS_OPEN;
}

static inline bool window_is_open(const struct request *request) {
    return window_masked(request) > 0 || window_is_revised(request);
}

static inline bool window_front_is_open(const struct request *request) {
    return window_front_masked(request) > 0 || window_is_revised(request);
}

/* The index of the first block. */
static inline uint32_t window_block(const struct request *request) {
    return request->window.block;
}

/* Steps done since it began, and those of them since the request was last preempted: with 0 of them
 * nothing of it has keys and values. */
static inline uint32_t window_steps(const struct request *request) {
    return request->window.steps;
}

static inline uint32_t window_passes(const struct request *request) {
    return request->window.passes;
}

/* Passes before the next one that began with as many positions decided: 0 where every pass commits
 * some and none is taken back. */
static inline uint32_t window_earlier(const struct request *request) {
    return request->window.earlier;
}

/* The key of the next pass's draws, which no other pass of the request has: it is made of seed and
 * id, or of the request's own seed alone, of how many positions are committed, and of
 * window_earlier. */
uint64_t window_draw_key(const struct request *request, uint64_t seed);

/* Where logits are shifted the row before a block decides on its first position, and is run before
 * the block: whether it does so at once, as one block is in flight. With several, what it said is
 * kept, and the decoder takes it when it is sure enough. */
static inline bool window_begins_decided(const struct request *request) {
    return request->shifted != 0 && request->causal == SEES_BLOCKS && window_most(request) == 1;
}

/* Whether what is stored before the window has to end with that row: its first position is masked,
 * or may be. */
static inline bool window_lacks_row(const struct request *request) {
    return request->shifted != 0 && request->causal == SEES_BLOCKS &&
           window_first(request) >= request->prompt_tokens && window_masked(request) > 0 &&
           (window_most(request) > 1 || window_decided(request) == 0);
}

/* ---- the scheduler's words, 0: as configured ---- */

/* Positions of the next window. */
static inline uint32_t window_width(const struct request *request) {
    return request->window.width > 0 ? request->window.width : request->block_tokens;
}

/* In millionths. */
static inline uint32_t window_threshold(const struct request *request) {
    return request->window.threshold;
}

/* ---- where blocks lie ---- */

/* Positions of n whole blocks, and of those whole ones among `tokens`. */
static inline uint64_t window_tokens_of(const struct request *request, uint32_t n_blocks) {
    return (uint64_t)n_blocks * request->block_tokens;
}

static inline uint32_t window_whole(const struct request *request, uint32_t tokens) {
    return tokens / request->block_tokens * request->block_tokens;
}

/* The first position of the block before, where there is one, or of the first of those before whose
 * keys and values are not written yet. */
static inline uint32_t window_before(const struct request *request) {
    return request->window.before;
}

/* Blocks that are left, the window's among them, as wide as the scheduler said last. */
uint32_t window_blocks_left(const struct request *request);

/* Blocks of the output, the prompt's tokens in the first of them left aside. */
static inline uint32_t window_blocks(const struct request *request) {
    return (request->output_tokens + request->block_tokens - 1) / request->block_tokens;
}

/* Where a position's keys end, one past the last that it sees of what is before the window and in
 * it: after its block, which may be shorter where it is the window's, or, where a position sees no
 * further than itself, after itself. */
uint32_t window_extent(const struct request *request, uint32_t position);

/* ---- its writers ---- */

/* A window of a made-up request: `masked` positions of the last of `length` are masked, none is
 * settled, no step is done. */
static inline struct window window_of(uint32_t block, uint32_t first, uint32_t length,
                                      uint32_t masked) {
    return (struct window){.block = block,
                           .first = first,
                           .masked = masked,
                           .length = length,
                           .known = length - masked,
                           .front = length,
                           .uncached = length,
                           .kept = length,
                           .reach = length,
                           .active = length};
}

/* Moves it to `block`, with every position that is to be decided masked, where all blocks are as
 * wide as configured; in an exact cache of blocks, those before it are cached, the last of them
 * unless its own keys and values are not. The first block starts where the prompt ends or, where
 * blocks start at multiples of their length, with the prompt tokens that do not fill one. */
void window_enter(struct request *request, uint32_t block);
void window_enter_last(struct request *request);

/* Moves it to the block after its first, which begins where that ends; one that is not in flight
 * yet is as wide as was said last. Of blocks that are in flight already what is decided stays so.
 */
void window_enter_next(struct request *request);

/* As many blocks may be in flight, of this window and of those to come. */
static inline void window_allow_blocks(struct request *request, uint32_t most) {
    request->window.most = (uint16_t)most;
}

/* It slides: after each pass it begins at its first masked position, and is lengthened where the
 * canvas goes on. */
static inline void window_allow_sliding(struct request *request) {
    request->window.slides = 1;
}

static inline bool window_slides(const struct request *request) {
    return request->window.slides != 0;
}

/* A pass left as many decided positions before the first masked one, by which it moves on. */
static inline void window_slide(struct request *request, uint32_t known) {
    request->window.known = known;
    request->window.front = known > 0 ? known : request->window.length;
}

/* Takes as many positions into flight as it moved on by, or, where it may be as long as several
 * blocks, as were committed, so that a block's worth of it is masked; returns whether there are
 * any. */
bool window_lengthen(struct request *request);

/* Takes the block after its last into flight, with every position masked; false, and nothing
 * changes, where it is full or the canvas ends. */
bool window_add_block(struct request *request);

/* Passes decide on its first blocks, up to this one, counted from 0. */
static inline void window_activate(struct request *request, uint32_t mark) {
    request->window.active = window_mark(request, mark).end - window_first(request);
}

/* Tokens of this window and of those to come may be revised; not any more of this one. */
static inline void window_allow_edits(struct request *request) {
    request->window.edits = EDITS_OPEN;
}

static inline void window_end_edits(struct request *request) {
    request->window.edits = request->window.edits == EDITS_NONE ? EDITS_NONE : EDITS_OVER;
}

/* The scheduler's words. Returns whether the window's width, in which nothing was done, changed
 * with it: all of it is masked then. */
bool window_say(struct request *request, uint32_t width_tokens, uint32_t threshold_millionths);

/* n positions are decided, the left-most ones for all that is known. */
static inline void window_commit(struct request *request, uint32_t n) {
    request->window.masked -= n;
    request->committed_tokens += n;
    request->window.known = window_decided(request);
}

/* n decided positions are masked again. */
static inline void window_take_back(struct request *request, uint32_t n) {
    request->window.masked += n;
    request->committed_tokens -= n;
}

/* `steps` steps over it are done, which committed n positions; known positions are told apart when
 * the next step is planned. */
static inline void window_advance(struct request *request, uint32_t steps, uint32_t n) {
    request->window.steps += steps;
    request->window.passes += steps;
    request->window.masked -= n;
    request->committed_tokens += n;
}

/* As it was before the last step over it, which is the one that its decoder is asked about. */
static inline void window_go_back(struct request *request) {
    request->window.steps--;
    request->window.passes--;
}

/* The next step is planned: how many positions are listed, and how many decided ones stand before
 * the first masked one. */
static inline void window_list(struct request *request, uint32_t uncached, uint32_t known) {
    request->window.uncached = uncached;
    request->window.known = known;
}

static inline void window_count_earlier(struct request *request, uint32_t earlier) {
    request->window.earlier = earlier;
}

/* How far its queries see once the step planned has run. */
static inline void window_see(struct request *request, uint32_t seen) {
    request->window.unseen = request->window.length - seen;
}

/* What an eviction leaves of them. */
static inline void window_keep(struct request *request, uint32_t kept, uint32_t reach) {
    request->window.kept = kept;
    request->window.reach = reach;
}

/* All of it has its final keys and values, or none has. */
static inline void window_settle(struct request *request) {
    request->window.uncached = 0;
}

static inline void window_forget(struct request *request) {
    request->window.uncached = request->window.length;
    request->window.passes = 0;
}

#endif
