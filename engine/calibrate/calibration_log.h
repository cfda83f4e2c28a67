/* The log of a calibration: what the device was doing while each group of points was measured. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_LOG_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_LOG_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/device.h"
#include "sim/base/err.h"

struct calibration_log;

/* The first words of every such log. */
#define CALIBRATION_LOG_HEAD "seconds,round,group,reference_us,"

enum { CALIBRATION_LOG_PATH_CHARS = 1024 };

/* NAME.log.csv for a profile NAME.csv. Returns `path`. */
const char *calibration_log_path(const char *profile_path, char path[CALIBRATION_LOG_PATH_CHARS]);

/* The log of that name; appended to where a calibration continues, begun anew else.
 * Times count from `start_ns`. */
int calibration_log_open(struct calibration_log **out, const char *profile_path, bool continues,
                         int64_t start_ns, struct err *err);
void calibration_log_close(struct calibration_log *log); /* NULL is fine */

int calibration_log_line(struct calibration_log *log, int64_t now_ns, uint32_t round,
                         const char *group, double reference_us, const struct device_vitals *vitals,
                         struct err *err);

/* A profile's line on the clocks, power and temperature of the lines so far; none where the device
 * did not say. */
void calibration_log_summary(const struct calibration_log *log, FILE *profile);

#endif
