/* Measurements of whole steps, saved one by one with the samples of operators (the file of
 * calibration_samples.h), so that an interrupted calibration measures no step twice.
 *
 * A line is "step NAME WHAT NUMBERS": of one round, of one operator, of the whole, of the step
 * issued operator by operator, of the step held; of a stage its memory; of the device its idle
 * power. A step's operators count once the line of its whole is there. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_KEPT_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_KEPT_H

#include "engine/calibrate/calibration_samples.h"
#include "engine/calibrate/calibration_steps.h"

enum { STEP_MOST_ROUNDS = 7 };

/* One step's, NAN where a round was not taken. */
struct step_times {
    double wall_ns[STEP_MOST_ROUNDS], device_ns[STEP_MOST_ROUNDS];
};

struct steps_kept {
    struct calibration_samples *samples;
    struct step_times *times;                         /* [n steps] */
    int64_t planned_bytes[CALIBRATION_STEP_VARIANTS]; /* by stage; 0: it has not ended */
    size_t n_found;                                   /* steps that were measured before */
};

/* Takes what the file holds of the steps of the list into them. Lines of other steps, which a
 * longer list had, count for nothing. The caller closes it. */
void steps_kept_open(struct steps_kept *kept, struct calibration_samples *samples,
                     struct calibration_steps *steps);
void steps_kept_close(struct steps_kept *kept);

/* "refresh:8x1024+reuse:8x512,fused". Returns `text`. */
enum { STEP_NAME_CHARS = 80 };
const char *step_name(const struct calibration_step *step, char text[STEP_NAME_CHARS]);

/* Each appends lines about step i, or about all steps. ERR_WORLD when they cannot be written. */
int steps_keep_round(struct steps_kept *kept, const struct calibration_steps *steps, size_t i,
                     size_t round, struct err *err);
int steps_keep_whole(struct steps_kept *kept, const struct calibration_steps *steps, size_t i,
                     struct err *err);
int steps_keep_issued(struct steps_kept *kept, const struct calibration_steps *steps, size_t i,
                      struct err *err);
int steps_keep_held(struct steps_kept *kept, const struct calibration_steps *steps, size_t i,
                    struct err *err);
int steps_keep_idle(struct steps_kept *kept, const struct calibration_steps *steps,
                    struct err *err);
/* The stage has ended: what its activations took, and were planned to take. */
int steps_keep_stage(struct steps_kept *kept, int variant, int64_t peak_bytes,
                     int64_t planned_bytes, struct err *err);

#endif
