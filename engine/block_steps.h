/* Steps of active blocks in which the device makes every choice: which tokens run, which of them go
 * on behind the eviction, which are committed. The host issues such a step and waits for nothing in
 * it; how much goes on only the device knows, so that what depends on it is recorded in a few sizes
 * (sim/graph/bucket.h), one of which the device takes. A device that records nothing is issued the
 * same calls, and asked for the size in between. */
#ifndef UNMASK_ENGINE_BLOCK_STEPS_H
#define UNMASK_ENGINE_BLOCK_STEPS_H

#include "engine/block_lists.h"
#include "engine/forward.h"

struct block_step {
    const struct placement *placement; /* of the graph at the shape of bucket_widen */
    const struct block_member *members;
    uint32_t n;          /* at most the engine's max_requests */
    uint32_t max_tokens; /* bucket_most of them: that the placement has room for */
    bool takes;          /* members say how many positions to commit; else by threshold */
    float threshold;
    float alpha; /* of call_focus_select, and the next */
    bool above_deviation;
};

/* Issues one step, of which nothing is read after the return. ERR_USAGE, with nothing issued, when
 * a member does not fit the engine. forward_done and forward_wait speak of it, too. */
int block_step_submit(struct forward *forward, const struct block_step *step, struct err *err);

/* What became of each member's positions: enum kernel_block_log, [n, block_tokens] and room for
 * [max_requests, block_tokens] of the engine's limits. Waits for the step. */
int block_step_log(struct forward *forward, uint8_t *log, struct err *err);

#endif
