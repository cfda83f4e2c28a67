/* What around a GPU makes it slower than the card is: said before anything is measured. */
#ifndef UNMASK_ENGINE_DEVICE_SURROUNDINGS_H
#define UNMASK_ENGINE_DEVICE_SURROUNDINGS_H

#include "engine/device/device.h"

enum { SURROUNDINGS_CHARS = 256 };

/* One sentence each, shorter than SURROUNDINGS_CHARS: Windows under the machine (WSL2), a display's
 * watchdog, a slice of a card or a virtual GPU, a laptop's card, a battery, a card that is slowed,
 * another power limit than it is delivered with, other programs. Nothing for a CPU. `root` stands
 * before /proc and /sys: "". */
void engine_say_surroundings(const struct engine_device *device, const char *root,
                             void (*say)(void *state, const char *sentence), void *state);

/* That of `bytes` which the device was given since it was opened a part lies elsewhere: its free
 * memory has shrunk by less. */
void engine_say_spilled(const struct engine_device *device, int64_t bytes,
                        void (*say)(void *state, const char *sentence), void *state);

#endif
