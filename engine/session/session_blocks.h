/* The active blocks of running requests, position by position, where a cache policy leaves some of
 * them out of a block's passes (a delayed cache, dKV-Cache) or evicts some in the middle of a step
 * (FOCUS).
 *
 * Which positions run follows from what was committed, by the same rules as in a simulation
 * (sim/decode/block.h, the policy's own evict and learn); what was committed is the device's word.
 * The loop is told both after each step. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_BLOCKS_H
#define UNMASK_ENGINE_SESSION_SESSION_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/decode/block.h"
#include "sim/serve/executor.h"
#include "sim/system/system.h"

struct session_blocks {
    const struct system *system;
    struct block_state *blocks;   /* [n_slots] */
    uint32_t *active;             /* [n_slots], index of the block, + 1; 0: none yet */
    uint8_t *masked, *uncached;   /* [n_slots, block_tokens] */
    unsigned char *memory;        /* [n_slots], the policy's of each request */
    uint8_t *keep, *chosen;       /* [max_requests, block_tokens], of the step under way */
    struct positions_word *words; /* [max_requests], the same as the loop takes them */
    float *delta;                 /* [block_tokens] */
    uint8_t *pending;             /* the same */
    bool plays; /* the step under way is a record's: as many positions run and stay as requests say
                 */
};

/* Whether the system's cache policy asks for them; else nothing below is called but close. */
bool session_blocks_wanted(const struct system *system);

void session_blocks_open(struct session_blocks *blocks, const struct system *system,
                         uint32_t n_slots, uint32_t max_requests);
void session_blocks_close(struct session_blocks *blocks);

/* A request starts anew; its keys and values are lost, what it committed is not. */
void session_blocks_start(struct session_blocks *blocks, uint32_t slot);
void session_blocks_forget(struct session_blocks *blocks, uint32_t slot);

/* The positions in the canvas that a pass over the active block runs, in order, and which of them
 * are masked. Returns how many. */
uint32_t session_blocks_list(struct session_blocks *blocks, const struct request *request,
                             uint32_t slot, uint32_t member, int32_t *positions, uint8_t *masked);

/* What an eviction leaves of them, by their importance before and after: indices into the list.
 * Returns how many. */
uint32_t session_blocks_evict(struct session_blocks *blocks, const struct request *request,
                              uint32_t slot, uint32_t member, const float *before,
                              const float *after, int32_t *kept);

/* A position was committed; the step is over. */
void session_blocks_choose(struct session_blocks *blocks, const struct request *request,
                           uint32_t member, uint32_t position);
void session_blocks_pass(struct session_blocks *blocks, const struct request *request,
                         uint32_t slot, uint32_t member);

#endif
