/* The planned step: what a batch's next step is, as one value. The loop makes it once, of the
 * policies' answers; price and planner read its shape, and the recorder, replays and the engine its
 * members. No other code derives any of it again.
 *
 * A member's row sets stand in its request (request->span, in numbers; the cache policy's ranges);
 * which positions of its active block are among them stands in its block, where positions are
 * followed. The loop owns those flags (positions.h): an executor reads `masked` and `run`, and
 * writes what it decides, `keep` and `outcome`, before it reports the step as done. In a recorded
 * step both are given, and the executor carries them out. */
#ifndef UNMASK_SIM_SERVE_STEP_H
#define UNMASK_SIM_SERVE_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/memory/page_cache.h"
#include "sim/policy/window.h"

/* Flags of a member's window, [window_length] each, 1 or 0 but for outcomes. */
struct planned_block {
    uint32_t n_fixed;      /* the first of them, which were known before the window was run */
    const uint8_t *masked; /* not committed before the step */
    const uint8_t *run;    /* the step runs the position */
    uint8_t *keep;         /* survives the eviction; equals `run` until the policy is called */
    uint8_t *outcome;      /* enum position_outcome; OUTCOME_NONE until it is known */
    float *entropy;    /* of what it commits, in nats; NULL: the cache policy does not read it */
    float *confidence; /* that decided positions were committed with; NULL: the decoder takes
                          nothing back */
    float *seen; /* of each masked position in its last pass; NULL: the scheduler looks at none */
    struct bandit *bandit; /* by which its drafts are checked; NULL: they are by something else */
};

struct planned_step {
    const struct step_shape *shape; /* symbols, and the ragged spans in batch order */
    int64_t workspace_bytes;        /* that it may take in addition to the cached state */
    const struct request *requests; /* by slot */
    const uint32_t *slots;          /* of the members, in order */
    const uint32_t *idle; /* of those that are computed and discarded: their spans follow in the
                             shape, and nothing of them changes */
    uint32_t n_slots, n_idle;
    /* Under prefix caching: the pages of all running requests, where the executor wants to know
     * which are shared (shares_pages); else NULL. */
    const struct page_lists *pages;
    const uint64_t *request_ids; /* of the members; NULL unless the executor wants them */
    /* Of the members; NULL: only counts matter, or the executor does not want them. */
    const struct planned_block *blocks;
    bool is_recorded; /* keep and outcome are given */
    /* Steps that evict and are not recorded: what a policy keeps of a member, which is written to
     * its `keep`. delta: of each position of the block, the growth of its importance, 0 where it is
     * not masked or does not run. */
    void (*evict)(void *state, uint32_t slot, const float *delta);
    void *evict_state;
};

/* All that a step runs, members and idle requests alike. */
static inline uint32_t planned_spans(const struct planned_step *step) {
    return step->n_slots + step->n_idle;
}

static inline uint32_t planned_slot(const struct planned_step *step, uint32_t i) {
    return i < step->n_slots ? step->slots[i] : step->idle[i - step->n_slots];
}

#endif
