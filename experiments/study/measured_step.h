/* A step on a real back end: what it takes, measured.
 *
 * Its requests first do those of their own steps that store cached rows, so that the step finds the
 * state that it would find in a run; then it is repeated. */
#ifndef UNMASK_EXPERIMENTS_STUDY_MEASURED_STEP_H
#define UNMASK_EXPERIMENTS_STUDY_MEASURED_STEP_H

#include "engine/live.h"
#include "experiments/study/step.h"

/* How often it is repeated: before anything is timed, whole, and operator by operator. */
struct measuring {
    uint32_t warm_rounds, rounds, operator_rounds;
};

struct measured_step {
    char device[DEVICE_TEXT_CHARS];
    uint32_t n_ranks; /* devices that hold the model together; memory is one's */
    uint32_t rounds;
    double wall_ns, device_ns; /* medians over the rounds */
    double spread;             /* of the wall time: (largest - smallest) / median */
    /* Device time of each operator between events, medians: they add up to more than device_ns by
     * what events cost. Of several ranks as forward_instance_times has it. All 0 where operators
     * were not timed. */
    double op_ns[GRAPH_MAX_OPS];
    double experts_hit; /* different ones, the mean over mixture layers; 0: not asked, or none */
    int64_t workspace_bytes; /* that was used, as metered: of the steps before it, too */
    int64_t planned_bytes;   /* the peak of this step's plan */
    int64_t own_bytes;       /* device memory other than weights, workspace and cached rows */
};

/* On an engine that is open for the step's system. At least one round. */
int step_measure_on(struct engine *engine, const struct asked_step *step,
                    const struct measuring *measuring, struct measured_step *out, struct err *err);

/* The same, with an engine of its own. */
int step_measure(const struct engine_request *request, const struct asked_step *step,
                 const struct measuring *measuring, struct measured_step *out, struct err *err);

#endif
