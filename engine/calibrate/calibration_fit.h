/* What whole steps say beyond their operators: the load and the host's times fitted to the steps of
 * a calibration that are not held out, and how far off that is for all of them. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_FIT_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_FIT_H

#include "engine/calibrate/calibration_price.h"
#include "engine/calibrate/calibration_report.h"

/* The report's steps are measured and their operators priced by `prices`; fills in load, host,
 * errors and additivity. ERR_WORLD as host_fit and cost_open have it. */
int calibration_fit(struct calibration_report *report, const struct calibration_prices *prices,
                    struct err *err);

/* Its parts, to fit several calibrations together, after calibration_price_corrected. What
 * of the steps power is fitted to, those that were held, at most CALIBRATION_MAX_STEPS: the time of
 * a long one at the highest clock is unknown, so it is what its operators take, corrected as all
 * are; and what each report's correction, host and power predict of its steps: errors and
 * additivity of all steps together, in *out, which may be one of them. */
size_t calibration_power_samples(const struct calibration_report *report, struct power_sample *out);
void calibration_judge(struct calibration_report *const *reports, size_t n,
                       struct calibration_report *out);

#endif
