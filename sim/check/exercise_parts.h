/* What the exercises of the kinds share: random requests, and the worlds of schedulers. Included by
 * exercise*.c only. */
#ifndef UNMASK_SIM_CHECK_EXERCISE_PARTS_H
#define UNMASK_SIM_CHECK_EXERCISE_PARTS_H

#include "sim/base/rng.h"
#include "sim/check/exercise.h"

enum {
    EXERCISE_SLOTS = 1024,        /* the most requests of a world */
    EXERCISE_KV_ROW_BYTES = 1024, /* any size serves: only sums against the pool matter */
};

/* From `from` to `to`, both included, all alike. */
uint32_t exercise_draw(struct rng *rng, uint32_t from, uint32_t to);

/* As likely between 1 and 10 as between 10 and 100. */
uint32_t exercise_size(struct rng *rng, uint32_t max);

/* A request that sees its canvas, in its first block. */
struct request exercise_request(struct rng *rng, uint64_t id, uint32_t max_prompt,
                                uint32_t max_output);

/* The same for a mask of blocks or tokens. Every size of block comes with prompts that do and do
 * not fill their blocks. */
struct request exercise_exact_request(struct rng *rng, uint64_t id, uint32_t max_prompt,
                                      uint32_t max_output, uint32_t causal, uint32_t block_tokens);

/* Schedulers: closed worlds, in which their own decisions make the next view. */
void exercise_scheduler(struct guard *guard, struct rng *rng);

#endif
