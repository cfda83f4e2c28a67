/* What whole steps say beyond their operators: the load and the host's times fitted to the steps of
 * a calibration that are not held out, and how far off that is for all of them. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_FIT_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_FIT_H

#include "engine/calibrate/calibration_report.h"

/* The report's steps are measured and their operators priced; fills in load, host, errors and
 * additivity. ERR_WORLD as host_fit has it. */
int calibration_fit(struct calibration_report *report, struct err *err);

#endif
