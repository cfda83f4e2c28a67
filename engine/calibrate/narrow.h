/* What memory holds of fp8 when nothing has been written to it: bytes that are sound both as codes
 * and as parts of scales. Random bits would be scales that are no numbers. */
#ifndef UNMASK_ENGINE_CALIBRATE_NARROW_H
#define UNMASK_ENGINE_CALIBRATE_NARROW_H

#include <stdint.h>

#include "engine/device/device.h"

/* Every byte is a code between 0.5 and 1.75 of either sign; four of them in any place are a scale
 * of a size between 1e-7 and 3e-3. Waits for the device. */
int narrow_fill(const struct engine_device *device, void *at, int64_t bytes, struct err *err);

#endif
