/* Profiles that runs share. Reading one with its tens of thousands of rows takes as long as many a
 * run, and the runs of a sweep ask for the same few over and over: who asks for a file of the same
 * path and bytes, or for a transfer of the same profile between the same GPUs, gets the one that is
 * there. A few unused ones are kept. Any thread may call. */
#ifndef UNMASK_SIM_PRICE_PROFILE_SHARE_H
#define UNMASK_SIM_PRICE_PROFILE_SHARE_H

#include "sim/base/err.h"
#include "sim/price/profile/profile.h"
#include "sim/price/transfer.h"

/* As profile_open and profile_transfer; the caller gives `*out`, or what is returned, back. */
int profile_share(const char *path, const struct profile_peaks *peaks, const struct profile **out,
                  struct err *err);
const struct profile *profile_share_transfer(const struct profile *donor,
                                             const struct transfer_side *from,
                                             const struct transfer_side *to);
/* NULL is nothing to give back. */
void profile_give_back(const struct profile *profile);

#endif
