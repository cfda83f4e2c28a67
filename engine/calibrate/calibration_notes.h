/* What to beware of in a calibration: sentences that are told when they are known and kept in its
 * report and its profile. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_NOTES_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_NOTES_H

#include "engine/calibrate/calibrate.h"
#include "sim/price/profile/profile.h"

/* What is around the device and spoils measurements, before the first of them; and that its memory
 * is less free by less than the weights that it holds. */
void calibration_note_surroundings(const struct calibration_request *request,
                                   struct calibration_report *report);

/* That sizes are smaller than was asked for. */
void calibration_note_bounds(const struct calibration_request *request,
                             const struct calibration_bounds *bounds,
                             struct calibration_report *report);

/* How long it will take, before anything is measured, and would take if all steps were run as often
 * as they should be: told and not kept. */
void calibration_note_time(const struct calibration_request *request, double estimated_ns,
                           double all_ns, size_t n_points, double n_rounds, size_t n_steps);

/* Once operators are measured: the best rates of their rows, which are written to the report, next
 * to those that the GPU's file states; how many rounds; the reference's drift. */
void calibration_note_operators(const struct calibration_request *request,
                                const struct profile *profile, struct calibration_report *report);

/* Once steps are fitted: those that were not, or not even run, and why there is no power. */
void calibration_note_steps(const struct calibration_request *request,
                            struct calibration_report *report);

#endif
