/* What a calibration's steps are made of: their operators at the profile's prices, how often they
 * run, and what they took of the step. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_PRICE_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_PRICE_H

#include "engine/calibrate/calibration_steps.h"
#include "sim/price/profile/profile.h"
#include "sim/system/system.h"

/* What steps are priced by: no host, no launches beyond the operators. */
struct calibration_prices {
    const struct system *system;
    /* Rows of operators; a correction of its own is left out. NULL: by roofline. */
    struct profile *profile;
    const struct storage *storage; /* the graph's */
};

/* Prices every step, at the rows alone. Fills in the fields that calibration_steps.h leaves to
 * pricing. On an error as cost_open has it. */
int calibration_price(struct calibration_steps *steps, const struct calibration_prices *prices,
                      struct err *err);

/* The same before they were measured: operators_ns alone is worth something then. */
int calibration_price_ahead(struct calibration_steps *steps,
                            const struct calibration_prices *prices, struct err *err);

/* Of every step, as a run prices it whose profile has the correction: corrected_ns, compute_ns. */
int calibration_price_corrected(struct calibration_steps *steps,
                                const struct calibration_prices *prices,
                                const struct correction *correction, struct err *err);

/* measured_ns of a step's operators, from what was timed between events. */
void calibration_step_share(struct calibration_step *step);

#endif
