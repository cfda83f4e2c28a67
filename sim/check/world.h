/* A closed world for schedulers: one replica with its limits, its requests and a clock, whose
 * progress follows a cache policy and a fixed decoder as in the serving loop. Included by
 * exercise_scheduler.c and world.c only. */
#ifndef UNMASK_SIM_CHECK_WORLD_H
#define UNMASK_SIM_CHECK_WORLD_H

#include "sim/cache/cache.h"
#include "sim/check/exercise_parts.h"
#include "sim/decoder/decoder.h"

/* What the requests of a world follow. */
struct rules {
    const struct cache_policy *cache;
    void *cache_state;
    const struct decoder *decoder;
    uint32_t causal, block_tokens; /* 0: a length of its own for each request */
    uint32_t page_rows;            /* rows of which memory is made */
    bool grows; /* they hold what their next step needs, not all from the start */
};

struct world {
    struct rules rules;
    const void *first_state; /* the scheduler's, with which every world begins */
    char *own;               /* its memory of requests; own_bytes each */
    size_t own_bytes;

    uint32_t n_requests, max_batched_tokens, max_requests, max_asks;
    int64_t kv_total_bytes;
    int64_t slowness; /* of its steps; objectives and patience of minutes pass in slow worlds */
    bool shows_next_arrival;
    bool ends; /* it is run until every request is done, which takes max_asks at most */

    struct request requests[EXERCISE_SLOTS]; /* the slot is the place in order of arrival */
    uint32_t running[EXERCISE_SLOTS], waiting[EXERCISE_SLOTS];
    uint32_t selected[EXERCISE_SLOTS], chunk_tokens[EXERCISE_SLOTS]; /* the batch's lists */
    uint32_t preempted[EXERCISE_SLOTS], idle[EXERCISE_SLOTS];
    uint32_t n_running, n_waiting, n_arrived;
    int64_t now_ns, kv_used_bytes;
};

/* The request as it arrives; the limits let it run alone. */
void world_enter(struct world *world, struct request *request);

/* Requests of up to `max_prompt` and `max_output` tokens, `mean_gap_ns` apart (0: all at once), and
 * limits that let each of them run alone. */
void world_fill(struct world *world, struct rng *rng, uint32_t n, uint32_t max_prompt,
                uint32_t max_output, uint32_t mean_gap_ns);

/* Decisions of one step or chunk each, four times over, since those that are preempted compute
 * again.
 */
uint32_t world_asks_to_end(const struct world *world);

/* Asks until nothing is left to do, or max_asks decisions were made. */
void world_run(struct guard *guard, struct world *world);

#endif
