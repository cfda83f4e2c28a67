/* How large a calibration's steps and operators are: as large as was asked for, or as memory
 * allows. Found from the plan, before anything is measured. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_ROOM_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_ROOM_H

#include "engine/calibrate/calibrate.h"

enum { CALIBRATION_BOUNDS_CHARS = 128 };

/* free_bytes: the device's free memory after the weights. ERR_USAGE where max_tokens or the
 * system's pages make no sense; ERR_WORLD where the memory does not suffice for the least. */
int calibration_bounds_find(const struct calibration_request *request, int64_t free_bytes,
                            struct calibration_bounds *out, struct err *err);

/* Whether the device's memory suffices for these, which another run has found: ERR_WORLD, and how
 * much is missing, where it does not. */
int calibration_bounds_check(const struct calibration_request *request, int64_t free_bytes,
                             const struct calibration_bounds *bounds, struct err *err);

/* The sizes as text, and read again into *out, whose other members stay; false where that text is
 * none. Returns `text`. */
const char *calibration_bounds_text(const struct calibration_bounds *bounds,
                                    char text[CALIBRATION_BOUNDS_CHARS]);
bool calibration_bounds_read(const char *text, struct calibration_bounds *out);

#endif
