/* Describes a device as the file of a GPU that the program does not know: the attributes it
 * reports, and the rates it reaches in a product and in a copy. */
#ifndef UNMASK_ENGINE_CALIBRATE_DESCRIBE_H
#define UNMASK_ENGINE_CALIBRATE_DESCRIBE_H

#include <stdio.h>

#include "engine/device/device.h"

/* The first words of such a file. */
#define DESCRIPTION_HEAD "; Written by `unmask calibrate --describe`"

struct device_rates {
    double flops;     /* of its best square product, FLOP/s */
    double bandwidth; /* bytes/s read and written by its best copy */
    double clock_hz;  /* of its multiprocessors under that load; 0: it does not say */
};

/* Half a second of each at most. ERR_WORLD when the device fails, or has no room for it. */
int describe_measure(const struct engine_device *device, struct device_rates *out, struct err *err);

/* The file; date: "2026-11-28". Peaks that no device says are what was measured, or an estimate,
 * and marked so. */
void describe_write(const struct device_facts *facts, const struct device_rates *rates,
                    const char *date, FILE *file);

#endif
