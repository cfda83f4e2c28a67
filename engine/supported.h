/* Which systems the engine runs: ERR_USAGE says what of a system it does not, and what to set. */
#ifndef UNMASK_ENGINE_SUPPORTED_H
#define UNMASK_ENGINE_SUPPORTED_H

#include "engine/device/device.h"
#include "sim/system/system.h"

/* Before there is a device: what other runtimes hold and copy has no place in our step graph. */
int supports_runtime(const struct system *system, struct err *err);

/* On this device; its policies are among what is asked. */
int supports_system(const struct system *system, const struct engine_device *device,
                    struct err *err);

/* Whether the device's attention takes the heads of the system's model. */
int supports_heads(const struct system *system, const struct device_facts *facts, struct err *err);

/* The cache policy with its rows, and the decoder with its rule. */
int supports_policies(const struct system *system, struct err *err);

#endif
