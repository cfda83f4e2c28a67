/* Steps of active blocks in which the device makes every choice: which tokens run, which of them go
 * on behind the eviction, which are committed. The host issues such a step and waits for nothing in
 * it; how much goes on only the device knows, so that what depends on it is recorded in a few sizes
 * (sim/graph/bucket.h), one of which the device takes. Several steps of the same blocks may be
 * issued at once, which are one recording, played once. A device that records nothing is issued the
 * same calls, and asked for the sizes in between. */
#ifndef UNMASK_ENGINE_STEP_BLOCK_STEPS_H
#define UNMASK_ENGINE_STEP_BLOCK_STEPS_H

#include "engine/step/block_lists.h"
#include "engine/step/forward.h"

struct block_step {
    const struct placement *placement; /* of the graph at the shape of bucket_widen */
    const struct block_member *members;
    uint32_t n;          /* at most the engine's max_requests */
    uint32_t max_tokens; /* bucket_most of them: that the placement has room for */
    uint32_t most_steps; /* 1 to BLOCK_STEPS: no more of them than until a block is over */
    bool takes;          /* members say how many positions to commit; else by their thresholds */
    uint32_t rank;       /* enum decode_rank but RANK_DRAW */
    float slack;         /* of the rule by threshold */
    float alpha;         /* of call_focus_select, and the next */
    bool above_deviation;
    float weight; /* of call_decode_mean */
};

/* Issues the steps, of which nothing is read after the return. ERR_USAGE, with nothing issued, when
 * a member does not fit the engine. forward_done and forward_wait speak of all of them together. */
int block_step_submit(struct forward *forward, const struct block_step *step, struct err *err);

/* Have the device record such steps of n requests now, so that no step of a run pays for it;
 * members are not read. Nothing on a device that records nothing. */
int block_step_warm(struct forward *forward, const struct block_step *step, struct err *err);

/* How many steps there were, and what became of each member's positions in each of them: enum
 * kernel_block_log, [n_steps, n_rows, block_tokens], the first of n_rows the members'; room for
 * [BLOCK_STEPS, max_requests, block_tokens] of the engine's limits. Waits for the steps. */
int block_step_log(struct forward *forward, uint32_t *n_steps, uint32_t *n_rows, uint8_t *log,
                   struct err *err);

#endif
