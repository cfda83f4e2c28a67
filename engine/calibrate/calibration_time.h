/* How long a calibration takes, and what is left out of it where time is short.
 *
 * Operators are measured in rounds, of which one is made in any case. Of whole steps the rounds
 * come down first, then the longest steps are left out: those of which there are enough. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_TIME_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_TIME_H

#include "engine/calibrate/calibration_grid.h"
#include "engine/calibrate/calibration_steps.h"
#include "engine/calibrate/describe.h"

/* The device, as far as time depends on it. */
struct calibration_pace {
    struct device_rates rates; /* what it reaches */
    enum number_type number;   /* of its weights */
    bool is_gpu, rests, captures, has_experts;
};

/* One round of all points, `target_ns` of device time a light and a heavy one; ns. */
double calibration_round_ns(const struct calibration_grid *grid,
                            const struct calibration_pace *pace, double light_ns, double heavy_ns);

/* All steps that are not measured yet, by their operators_ns; ns. */
double calibration_steps_ns(const struct calibration_steps *steps,
                            const struct calibration_pace *pace, const struct step_effort *effort);

/* As often as they should be run where that takes no more than `budget_ns`, else less often. */
const struct step_effort *calibration_steps_effort(const struct calibration_steps *steps,
                                                   const struct calibration_pace *pace,
                                                   double budget_ns);

/* Leaves out the longest steps, mixed ones with their sides, until the others take no more than
 * `budget_ns`. Some of each kind stay, whatever they take. Returns how many were left out. */
size_t calibration_steps_leave_out(struct calibration_steps *steps,
                                   const struct calibration_pace *pace,
                                   const struct step_effort *effort, double budget_ns);

#endif
