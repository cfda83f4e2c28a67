#include "sim/serve/positions.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/zeroed.h"
#include "sim/decode/block.h"
#include "sim/decode/process.h"

bool positions_wanted(const struct system *s) {
    return s->decoder->count == NULL || s->cache->leaves_out != BLOCK_WHOLE || s->cache->evicts;
}

void positions_init(struct positions *p, const struct system *system, uint64_t seed,
                    uint32_t n_slots) {
    size_t block = system->settings.block_tokens;
    *p = (struct positions){.system = system, .seed = seed};
    p->blocks = zeroed(n_slots, sizeof *p->blocks);
    p->masked = zeroed(n_slots * block, 1);
    p->uncached = zeroed(n_slots * block, 1);
    p->keep = zeroed(n_slots * block, 1);
    p->memory = zeroed(n_slots, system->cache->memory_bytes + 1);
    p->pending = zeroed(block, 1);
    p->chosen = zeroed(block, 1);
    p->picked = zeroed(block, 1);
    p->confidence = zeroed(block, sizeof(float));
    p->candidates = zeroed(block, sizeof(float));
    p->delta = zeroed(block, sizeof(float));
}

void positions_fini(struct positions *p) {
    free(p->blocks);
    free(p->masked);
    free(p->uncached);
    free(p->keep);
    free(p->memory);
    free(p->pending);
    free(p->chosen);
    free(p->picked);
    free(p->confidence);
    free(p->candidates);
    free(p->delta);
}

static void *memory_of(const struct positions *p, uint32_t slot) {
    return p->memory + (size_t)slot * p->system->cache->memory_bytes;
}

static uint8_t *row(const struct positions *p, uint8_t *flags, uint32_t slot) {
    return flags + (size_t)slot * p->system->settings.block_tokens;
}

void positions_start(struct positions *p, uint32_t slot) {
    memset(memory_of(p, slot), 0, p->system->cache->memory_bytes);
}

void positions_enter(struct positions *p, uint32_t slot, const struct request *request,
                     uint32_t n_fixed) {
    block_begin(&p->blocks[slot], (enum block_cache)p->system->cache->leaves_out,
                request->block_length, n_fixed, row(p, p->masked, slot), row(p, p->uncached, slot));
    if (p->system->cache->learn != NULL) {
        p->system->cache->learn(p->system->cache_state, memory_of(p, slot), request, 0);
    }
}

void positions_forget(struct positions *p, uint32_t slot) {
    block_forget(&p->blocks[slot]);
}

static struct decode_view view_of(const struct positions *p, uint32_t slot,
                                  const struct request *request) {
    return (struct decode_view){.request = request->id,
                                .block_start = request->block_start,
                                .block_length = request->block_length,
                                .step_in_block = request->step_in_block,
                                .step = request->steps,
                                .masked = p->blocks[slot].masked};
}

void positions_plan(struct positions *p, uint32_t slot, struct request *request, bool known) {
    struct block_state *block = &p->blocks[slot];
    const struct cache_policy *cache = p->system->cache;
    uint8_t *keep = row(p, p->keep, slot);
    request->uncached_in_block = block_pending(block, keep);
    request->known_in_front = block_known_in_front(block);
    if (cache->evicts && !known && block->n_masked > 0) {
        struct decode_view view = view_of(p, slot, request);
        memcpy(p->pending, keep, block->length);
        process_delta(&p->system->process, p->seed, &view, p->delta);
        const struct eviction_view asked = {.request = request,
                                            .length = block->length,
                                            .pending = p->pending,
                                            .masked = block->masked,
                                            .delta = p->delta,
                                            .frontier = block->frontier};
        (void)cache->evict(p->system->cache_state, memory_of(p, slot), &asked, keep);
    }
    positions_kept(p, slot, &request->kept_in_block, &request->reach_in_block);
}

void positions_run(struct positions *p, uint32_t slot, struct request *request) {
    uint32_t first = request->span.part_start, end = first + request->span.queries;
    if (p->system->cache->leaves_out != BLOCK_PARTS || request->causal != SEES_BLOCKS) {
        return;
    }
    uint8_t *keep = row(p, p->keep, slot);
    for (uint32_t i = 0; i < p->blocks[slot].length; i++) {
        keep[i] = keep[i] && i >= first && i < end;
    }
    positions_kept(p, slot, &request->kept_in_block, &request->reach_in_block);
}

void positions_kept(const struct positions *p, uint32_t slot, uint32_t *n_kept, uint32_t *reach) {
    const uint8_t *keep = row(p, p->keep, slot);
    *n_kept = *reach = 0;
    for (uint32_t i = 0; i < p->blocks[slot].length; i++) {
        *n_kept += keep[i] != 0;
        *reach = keep[i] ? i + 1 : *reach;
    }
}

uint32_t positions_candidates(const struct positions *p, uint32_t slot) {
    const struct block_state *block = &p->blocks[slot];
    const uint8_t *keep = row(p, p->keep, slot);
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        n += keep[i] && block->masked[i];
    }
    return n;
}

/* The `count` most confident of n, the earlier one on a tie. */
static void pick_most_confident(const float *confidence, uint32_t n, uint32_t count,
                                uint8_t *picked) {
    memset(picked, 0, n);
    for (; count > 0; count--) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++) {
            if (!picked[i] && (best == n || confidence[i] > confidence[best])) {
                best = i;
            }
        }
        picked[best] = 1;
    }
}

/* The decoder's choice among the masked positions that stay. */
static void choose(struct positions *p, uint32_t slot, const struct request *request,
                   uint32_t count) {
    const struct block_state *block = &p->blocks[slot];
    const struct decoder *decoder = p->system->decoder;
    const uint8_t *keep = row(p, p->keep, slot);
    struct decode_view view = view_of(p, slot, request);
    uint32_t n = 0;
    process_confidence(&p->system->process, p->seed, &view, p->confidence);
    for (uint32_t i = 0; i < block->length; i++) {
        if (keep[i] && block->masked[i]) {
            p->candidates[n++] = p->confidence[i];
        }
    }
    if (n == 0) {
        return;
    }
    if (count == 0 && decoder->count == NULL) {
        (void)decoder->choose(p->system->decoder_state, request, p->candidates, n, p->picked);
    } else {
        pick_most_confident(p->candidates, n, count < n ? count : n, p->picked);
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        if (keep[i] && block->masked[i]) {
            p->chosen[i] = p->picked[at++];
        }
    }
}

uint32_t positions_pass(struct positions *p, uint32_t slot, const struct request *request,
                        const struct positions_word *word, uint32_t count, bool decides) {
    struct block_state *block = &p->blocks[slot];
    const struct cache_policy *cache = p->system->cache;
    uint8_t *keep = row(p, p->keep, slot);
    memset(p->chosen, 0, block->length);
    if (word != NULL) {
        memcpy(keep, word->keep, block->length);
        memcpy(p->chosen, word->chosen, block->length);
    } else if (decides) {
        choose(p, slot, request, count);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        n += p->chosen[i] != 0;
    }
    block_pass(block, keep, p->chosen);
    if (decides && n > 0 && cache->learn != NULL) {
        cache->learn(p->system->cache_state, memory_of(p, slot), request, n);
    }
    return n;
}
