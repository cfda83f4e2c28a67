/* GPUs as a table of facts: data-sheet peaks and what libraries are known to reach. The host's CPU
 * stands among them, for the backend that runs there. */
#ifndef UNMASK_SIM_MODEL_GPU_H
#define UNMASK_SIM_MODEL_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

struct gpu {
    const char *name, *title;
    uint32_t sms, compute_capability; /* streaming multiprocessors; 89 = sm_89, 0 = no GPU */
    int64_t memory_bytes;             /* as nvidia-smi reports it */
    int64_t l2_bytes;
    double peak_bf16_flops; /* dense, fp32 accumulation, FLOP/s, data sheet */
    double peak_fp64_flops; /* double precision outside tensor cores, FLOP/s, data sheet */
    double peak_bandwidth;  /* bytes/s, data sheet */
    double best_bf16_flops; /* best published library product */
    double best_bandwidth;  /* reached by copies or weight streams */
    double l2_bandwidth;    /* bytes/s between the L2 cache and the multiprocessors, estimate */
    const char *link;       /* between the GPUs of one host */
    double link_bandwidth;  /* bytes/s out of one GPU, data sheet */
    const char *profile;    /* file name under kernels/profiles, or NULL: roofline only */
    const char *donor;      /* the GPU whose profile is transferred here when it has none */
    const char *source;
};

/* The most FLOP/s that the card is known to do: its data sheet's peak, or the best product where
 * that is faster, as on GeForce cards, whose clocks rise above the boost clock of the sheet. */
static inline double gpu_roof_flops(const struct gpu *gpu) {
    return gpu->best_bf16_flops > gpu->peak_bf16_flops ? gpu->best_bf16_flops
                                                       : gpu->peak_bf16_flops;
}

extern const struct gpu gpu_table[];
extern const size_t gpu_table_size;

/* NULL and a sentence naming the nearest known GPU when there is none of that name. */
const struct gpu *gpu_find(const char *name, struct err *err);

#endif
