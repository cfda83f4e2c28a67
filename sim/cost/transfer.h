/* Profiles for GPUs nobody measured: another GPU's rows, rescaled. Always marked "transferred". */
#ifndef UNMASK_SIM_COST_TRANSFER_H
#define UNMASK_SIM_COST_TRANSFER_H

#include "sim/base/err.h"
#include "sim/cost/profile.h"

/* A profile for `gpu`, which has the data-sheet `peaks`, from the `donor` measured on `donor_gpu`
 * and left as it is; the caller closes `*out`.
 *
 * A row keeps the donor's utilisation: its time beyond the operator's floor (the shortest row:
 * launch and latency, kept unscaled) goes by the ratio of the two GPUs' roofline times, so that
 * compute-bound work follows the peak rate and memory-bound work the bandwidth. Steps follow waves:
 * products and batched causal attention are read off the donor at the size that puts as many tiles
 * on each multiprocessor. Collectives stay as they are: links are not among the peaks.
 *
 * Good between GPUs that reach like shares of their data sheets (H200 from H100, RTX 3090 from RTX
 * 4090), bad otherwise: from H100 to A100, which has a profile of its own to compare with, median
 * errors are 9 to 23 % an operator; from L40S, capped at 70 % of its sheet, to RTX 4090 60 %. */
int profile_transfer(const struct profile *donor, const char *donor_gpu,
                     const struct profile_peaks *peaks, const char *gpu, struct profile **out,
                     struct err *err);

#endif
