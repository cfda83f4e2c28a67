/* A meter: an executor around another one that keeps what a run's summary wants to know of its
 * batches and the loop does not say.
 *
 * It keeps the steps that need the most memory. Around a replay it also asks the cost model for the
 * price of every step that was played, so that a replay counts its look-ups as the run did and can
 * say how far prediction and record lie apart. */
#ifndef UNMASK_EXPERIMENTS_METER_H
#define UNMASK_EXPERIMENTS_METER_H

#include "sim/serve/executor_replay.h"
#include "sim/serve/executor_sim.h"
#include "sim/serve/system.h"

struct meter {
    struct executor inner;
    const struct system *system;
    /* A replay, else NULL: what it plays, and the executor that prices it. */
    const struct replay_step *steps;
    size_t next;
    struct executor_sim *pricer;
    bool varlen;
    /* Kept: the sums, padded where the runtime pads, of the step with the most query tokens and of
     * the one with the most logit rows. */
    int64_t most_tokens[SYM_COUNT], most_logits[SYM_COUNT];
    /* A replay: device time over all steps, as priced and as recorded. */
    double priced_ns, recorded_ns;
};

/* `steps` and `pricer` are NULL unless `inner` is a replay. Everything is borrowed. */
void meter_init(struct meter *meter, struct executor inner, const struct system *system,
                const struct replay_step *steps, struct executor_sim *pricer);

struct executor meter_interface(struct meter *meter);

/* Workspace of the steps kept, as the system's planner places it; the logits of the latter. */
void meter_memory(const struct meter *meter, int64_t *activation_bytes, int64_t *logit_bytes);

#endif
