/* A meter: an executor around another one that keeps what a run's summary wants to know of its
 * batches and the loop does not say.
 *
 * It keeps the memory of the steps that need the most. Around an executor that measures, or plays
 * what was measured, it also asks the cost model for the price of every step, so that a live run
 * and its replay count the same look-ups and prediction and measurement can be laid side by side.
 * Around a replay it can carry out every submission once more on a device, as recorded. Each step
 * is told what to commit, so that what a run issued at once is carried out step by step, and is
 * compared with the price of single steps. */
#ifndef UNMASK_EXPERIMENTS_RUN_METER_H
#define UNMASK_EXPERIMENTS_RUN_METER_H

#include "engine/fleet.h"
#include "experiments/run/accuracy.h"
#include "sim/serve/executor_replay.h"
#include "sim/serve/executor_sim.h"
#include "sim/system/system.h"

/* What to put around what. Everything is borrowed; pointers may be NULL but for the system. */
struct meter_request {
    struct executor inner;
    const struct system *system;
    struct executor_sim *pricer;
    bool places_all; /* every step's memory, not only that of the likeliest: what a device meters */
    /* Around a replay: it, and where its steps are carried out once more. */
    const struct executor_replay *replay;
    struct fleet *rerun;
    struct accuracy *accuracy;
};

/* The sums of a step, and the workspace it might take. */
struct metered_step {
    int64_t sym[SYM_COUNT], workspace_bytes;
};

/* A submission while it is under way, and what it is compared by. */
struct metered_flight {
    struct submission submission;
    struct compared_step compared;
    struct step_shape shape; /* once it is over: what a device's eviction left of it */
    double idle_ns;          /* of its card before it */
    int64_t end_ns;          /* of the replica's batch before it */
    int64_t carried_ns;      /* when its card had carried one out, of monotonic_ns; 0: none yet */
};

struct meter {
    struct meter_request request;
    struct metered_flight *flights; /* [replicas] */
    /* Kept: the sums, padded where the runtime pads, of the step with the most query tokens and of
     * the one with the most logit rows; the largest workspace of all steps, where all are placed.
     */
    struct metered_step most_tokens, most_logits;
    int64_t largest_bytes;
    /* Over all steps: device time as priced, as the executor says, and from start to end. */
    double priced_ns, device_ns, wall_ns;
    /* Where steps are carried out: prices them as single ones; owned. */
    struct executor_sim *rerun_pricer;
};

void meter_init(struct meter *meter, const struct meter_request *request);
void meter_fini(struct meter *meter);

struct executor meter_interface(struct meter *meter);

/* Workspace of the steps kept, as the system's planner places it; the logits of the latter. */
void meter_memory(const struct meter *meter, int64_t *activation_bytes, int64_t *logit_bytes);

#endif
