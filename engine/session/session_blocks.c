#include "engine/session/session_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/zeroed.h"
#include "sim/cache/blocks.h"

bool session_blocks_wanted(const struct system *system) {
    return rows_leave_out(&system->rows);
}

void session_blocks_open(struct session_blocks *blocks, const struct system *system,
                         uint32_t n_slots, uint32_t max_requests) {
    size_t block = system->settings.block_tokens;
    *blocks = (struct session_blocks){.system = system};
    blocks->blocks = zeroed(n_slots, sizeof *blocks->blocks);
    blocks->active = zeroed(n_slots, sizeof *blocks->active);
    blocks->masked = zeroed(n_slots * block, 1);
    blocks->uncached = zeroed(n_slots * block, 1);
    blocks->memory = zeroed(n_slots, system->cache->memory_bytes + 1);
    blocks->keep = zeroed(max_requests * block, 1);
    blocks->chosen = zeroed(max_requests * block, 1);
    blocks->words = zeroed(max_requests, sizeof *blocks->words);
    blocks->delta = zeroed(block, sizeof *blocks->delta);
    blocks->pending = zeroed(block, 1);
    for (uint32_t i = 0; i < max_requests; i++) {
        blocks->words[i] =
            (struct positions_word){blocks->keep + i * block, blocks->chosen + i * block};
    }
}

void session_blocks_close(struct session_blocks *blocks) {
    free(blocks->blocks);
    free(blocks->active);
    free(blocks->masked);
    free(blocks->uncached);
    free(blocks->memory);
    free(blocks->keep);
    free(blocks->chosen);
    free(blocks->words);
    free(blocks->delta);
    free(blocks->pending);
    *blocks = (struct session_blocks){0};
}

static uint8_t *row(const struct session_blocks *blocks, uint8_t *flags, uint32_t i) {
    return flags + (size_t)i * blocks->system->settings.block_tokens;
}

static void *memory_of(const struct session_blocks *blocks, uint32_t slot) {
    return blocks->memory + (size_t)slot * blocks->system->cache->memory_bytes;
}

void session_blocks_start(struct session_blocks *blocks, uint32_t slot) {
    blocks->active[slot] = 0;
    memset(memory_of(blocks, slot), 0, blocks->system->cache->memory_bytes);
}

void session_blocks_forget(struct session_blocks *blocks, uint32_t slot) {
    if (blocks->active[slot] > 0) {
        block_forget(&blocks->blocks[slot]);
    }
}

/* Before its first pass, what is known of a block stands first in it: prompt tokens, or what the
 * block before it yielded. */
static void enter(struct session_blocks *blocks, const struct request *request, uint32_t slot) {
    const struct cache_policy *cache = blocks->system->cache;
    uint32_t n_fixed = request->block_length - request->masked_in_block;
    block_begin(&blocks->blocks[slot], (enum block_cache)blocks->system->rows.settles,
                request->block_length, n_fixed, row(blocks, blocks->masked, slot),
                row(blocks, blocks->uncached, slot));
    blocks->active[slot] = request->block + 1;
    if (cache->learn != NULL) {
        cache->learn(blocks->system->cache_state, memory_of(blocks, slot), request, 0);
    }
}

/* A step of a record: so many positions run, every masked one among them. Others have been computed
 * often enough from the left on, or are computed once more from the right on. */
static void play_pending(struct block_state *block, uint32_t n) {
    for (uint32_t i = 0; i < block->length && block->n_uncached > n; i++) {
        bool drops = block->uncached[i] && !block->masked[i];
        block->uncached[i] = block->uncached[i] && !drops;
        block->n_uncached -= drops;
    }
    for (uint32_t i = block->length; i-- > 0 && block->n_uncached < n;) {
        block->n_uncached += !block->uncached[i];
        block->uncached[i] = 1;
    }
}

/* So many of the pending ones stay, up to the one that the record reaches to: the policy's choice
 * with masked ones added from the left on, or let go from the right on. */
static void play_kept(const struct block_state *block, const struct request *request,
                      const uint8_t *pending, uint8_t *keep) {
    uint32_t n = 0, last = request->reach_in_block - 1;
    for (uint32_t i = 0; i < block->length; i++) {
        bool is_beyond = i > last && block->masked[i];
        keep[i] = pending[i] && !is_beyond && (keep[i] || i == last);
        n += keep[i] != 0;
    }
    for (uint32_t i = 0; i < block->length && n < request->kept_in_block; i++) {
        n += pending[i] && !keep[i];
        keep[i] = keep[i] || pending[i];
    }
    for (uint32_t i = block->length; i-- > 0 && n > request->kept_in_block;) {
        bool goes = keep[i] && block->masked[i] && i != last;
        keep[i] = keep[i] && !goes;
        n -= goes;
    }
}

/* The active block before a pass over it, of which nothing is kept or committed so far. */
static void begin(struct session_blocks *blocks, const struct request *request, uint32_t slot,
                  uint32_t member) {
    if (blocks->active[slot] != request->block + 1) {
        enter(blocks, request, slot);
    }
    memset(row(blocks, blocks->chosen, member), 0, request->block_length);
}

uint32_t session_blocks_list(struct session_blocks *blocks, const struct request *request,
                             uint32_t slot, uint32_t member, int32_t *positions, uint8_t *masked) {
    uint8_t *keep = row(blocks, blocks->keep, member);
    begin(blocks, request, slot, member);
    struct block_state *block = &blocks->blocks[slot];
    if (blocks->plays && block->cache != BLOCK_PARTS) {
        play_pending(block, request->uncached_in_block);
    }
    (void)block_pending(block, keep);
    uint32_t n = 0, first = request->span.part_start;
    for (uint32_t i = 0; i < block->length; i++) {
        bool in_part =
            block->cache != BLOCK_PARTS || (i >= first && i < first + request->span.queries);
        keep[i] = keep[i] && in_part;
        if (keep[i] && n < request->span.queries) {
            positions[n] = (int32_t)(request->block_start + i);
            masked[n] = block->masked[i];
        }
        n += keep[i] != 0;
    }
    return n;
}

uint32_t session_blocks_evict(struct session_blocks *blocks, const struct request *request,
                              uint32_t slot, uint32_t member, const float *before,
                              const float *after, int32_t *kept) {
    const struct system *system = blocks->system;
    const struct block_state *block = &blocks->blocks[slot];
    uint8_t *keep = row(blocks, blocks->keep, member);
    uint32_t n = 0, n_kept = 0;
    memcpy(blocks->pending, keep, block->length);
    if (block->n_masked > 0) {
        for (uint32_t i = 0; i < block->length; i++) {
            bool runs = blocks->pending[i] != 0;
            blocks->delta[i] = runs && block->masked[i] ? after[n] - before[n] : 0;
            n += runs;
        }
        const struct eviction_view view = {.request = request,
                                           .length = block->length,
                                           .pending = blocks->pending,
                                           .masked = block->masked,
                                           .delta = blocks->delta,
                                           .frontier = block->frontier};
        (void)system->cache->evict(system->cache_state, memory_of(blocks, slot), &view, keep);
        if (blocks->plays) {
            play_kept(block, request, blocks->pending, keep);
        }
        n = 0;
    }
    for (uint32_t i = 0; i < block->length; i++) {
        if (keep[i]) {
            kept[n_kept++] = (int32_t)n;
        }
        n += blocks->pending[i] != 0;
    }
    return n_kept;
}

void session_blocks_choose(struct session_blocks *blocks, const struct request *request,
                           uint32_t member, uint32_t position) {
    ASSERT(position >= request->block_start &&
           position < request->block_start + request->block_length);
    row(blocks, blocks->chosen, member)[position - request->block_start] = 1;
}

void session_blocks_pass(struct session_blocks *blocks, const struct request *request,
                         uint32_t slot, uint32_t member) {
    const struct system *system = blocks->system;
    const uint8_t *chosen = row(blocks, blocks->chosen, member);
    struct block_state *block = &blocks->blocks[slot];
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        n += chosen[i] != 0;
    }
    block_pass(block, row(blocks, blocks->keep, member), chosen);
    if (n > 0 && blocks_decide(request) && system->cache->learn != NULL) {
        system->cache->learn(system->cache_state, memory_of(blocks, slot), request, n);
    }
}
