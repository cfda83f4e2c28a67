/* What a calibration's steps are made of: their operators at the profile's prices, how often they
 * run, and what they took of the step. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_PRICE_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_PRICE_H

#include "engine/calibrate/calibration_steps.h"
#include "sim/cost/profile/profile.h"
#include "sim/system/system.h"

/* Of every step, at the rows of a profile that has no corrections: no host, no launches beyond the
 * operators. Fills in what calibration_steps.h says of whoever prices them. On an error as
 * cost_open has it. */
int calibration_price(struct calibration_steps *steps, const struct system *system,
                      const struct profile *profile, int64_t element_bytes, struct err *err);

/* measured_ns of a step's operators, from what was timed between events. */
void calibration_step_share(struct calibration_step *step);

#endif
