/* A pack: a calibration as one file to hand to others. It is the profile itself, with what it says
 * of card, clocks, kernels and held-out errors, less what could name a person, a machine or a
 * folder, and with a digest of all of it in its second line. */
#ifndef UNMASK_SIM_PRICE_PROFILE_PROFILE_PACK_H
#define UNMASK_SIM_PRICE_PROFILE_PROFILE_PACK_H

#include "sim/base/err.h"
#include "sim/model/gpu.h"

/* The pack of a calibration's text, which the caller frees; `path` goes into sentences. NULL, and
 * ERR_USAGE, for what `unmask calibrate` has not written, or not to its end. */
char *profile_pack(const char *path, const char *text, struct err *err);

/* Copies a pack's value of a key, such as "gpu" or "model", to `out`; false: it has none, or one
 * that does not fit. */
bool profile_pack_says(const char *text, const char *key, char *out, size_t size);

/* 0 where a pack is whole, of that card, and holds times that the card can have; ERR_WORLD where it
 * was changed or holds others, ERR_USAGE where it is no pack or another card's. */
int profile_pack_check(const char *path, const char *text, const struct gpu *gpu, struct err *err);

#endif
