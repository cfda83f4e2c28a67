/* GPUs: data-sheet peaks and what libraries are known to reach, each a file of sim/model/gpus. The
 * host's CPU stands among them, for the backend that runs there. */
#ifndef UNMASK_SIM_MODEL_GPU_H
#define UNMASK_SIM_MODEL_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/input/catalogue.h"

struct gpu {
    const char *name, *path, *unread; /* as struct catalogued has them */
    const char *title;
    const char *device; /* as its driver prints it; ways of printing it between commas, or NULL */
    uint32_t sms, compute_capability; /* streaming multiprocessors; 89 = sm_89, 0 = no GPU */
    int64_t memory_bytes;             /* as nvidia-smi reports it; see gpu_is_host */
    int64_t l2_bytes;
    double peak_bf16_flops;     /* dense, fp32 accumulation, FLOP/s, data sheet */
    double peak_fp64_flops;     /* double precision outside tensor cores, FLOP/s, data sheet */
    double peak_bandwidth;      /* bytes/s, data sheet */
    double best_bf16_flops;     /* best published library product */
    double peak_fp8_flops;      /* dense, fp32 accumulation, data sheet; 0: no products of fp8 */
    double best_bandwidth;      /* reached by copies or weight streams */
    double l2_bandwidth;        /* bytes/s between the L2 cache and the multiprocessors, estimate */
    const char *link;           /* between the GPUs of one host */
    double link_bandwidth;      /* bytes/s out of one GPU, data sheet */
    const char *host_link;      /* to the host's memory, or NULL */
    double host_bandwidth;      /* bytes/s over it, in one direction, data sheet; 0: not known */
    double best_host_bandwidth; /* reached by copies of pinned memory, measured; 0: not known */
    bool link_peers;            /* GPUs reach each other's memory; else through the host's */
    const char *profile; /* file name in its own file's folder or under kernels/profiles, or NULL */
    const char *donor;   /* the GPU whose profile is transferred here when it has none */
    const char *donor_of_passes; /* and the one whose rows of memory-bound passes are */
    const char *source;
};

/* The keys of a GPU's file that are numbers. */
extern const struct param gpu_params[];
extern const size_t gpu_n_params;

/* A card is called faster or slower than its file from here on: from run to run cards of one kind
 * differ by less. */
#define GPU_IS_FASTER 1.03
#define GPU_IS_SLOWER 0.97

/* The most FLOP/s that the card is known to do: its data sheet's peak, or the best product where
 * that is faster, as on GeForce cards, whose clocks rise above the boost clock of the sheet. */
static inline double gpu_roof_flops(const struct gpu *gpu) {
    return gpu->best_bf16_flops > gpu->peak_bf16_flops ? gpu->best_bf16_flops
                                                       : gpu->peak_bf16_flops;
}

/* The same of products of fp8 with fp8; 0 where the card has none. The best one, of which no card
 * has a published number, has the share of its peak that bf16's has. */
static inline double gpu_best_fp8_flops(const struct gpu *gpu) {
    return gpu->peak_fp8_flops * (gpu->best_bf16_flops / gpu->peak_bf16_flops);
}

static inline double gpu_roof_fp8_flops(const struct gpu *gpu) {
    const double best = gpu_best_fp8_flops(gpu);
    return best > gpu->peak_fp8_flops ? best : gpu->peak_fp8_flops;
}

/* Bytes/s of a copy between its memory and the host's, in either direction: measured or, assumed,
 * as large a share of the link as an H200's copies reach (55.0 of 63.0 GB/s: docs/schedulers.md).
 */
static inline double gpu_host_bandwidth(const struct gpu *gpu) {
    return gpu->best_host_bandwidth > 0 ? gpu->best_host_bandwidth : 0.873 * gpu->host_bandwidth;
}

/* What such a copy takes. */
static inline double gpu_copy_ns(const struct gpu *gpu, int64_t bytes) {
    return bytes > 0 ? (double)bytes / gpu_host_bandwidth(gpu) * 1e9 : 0;
}

/* The GPU of that name, whether its file's, as `list gpus` has it, or its driver's ("NVIDIA L40S"),
 * in small letters or capitals; or of the file at that path. NULL, and a sentence: a name is hinted
 * at only where no other card can be meant, for a card's neighbours by name are other cards. */
const struct gpu *gpu_find(const char *name, struct err *err);

/* Whether it is the processor that the program runs on: where the memory that its file says does
 * not suffice, it has the machine's. */
bool gpu_is_host(const struct gpu *gpu);

/* What the machine has, or what this process may use of it. */
int64_t gpu_machine_bytes(void);

/* 0 if the data folder has a GPU of that name; else the sentence about the nearest. */
int gpu_check_name(const char *name, struct err *err);

/* Whether a driver that prints `device` speaks of this card. Letters and digits count, and "NVIDIA"
 * before them does not. A card whose file has no `device` is called nothing. */
bool gpu_is_called(const struct gpu *gpu, const char *device);

/* All of the data folder, by name; NULL after the last. NULL and a sentence on an error. */
const struct gpu *const *gpu_all(struct err *err);

/* The profile's path, of a GPU that has one: in the folder of the GPU's own file where it is there,
 * else among the shipped ones. Returns `path`. */
const char *gpu_profile_path(const struct gpu *gpu, char *path, size_t size);

/* What the profile of one model on a GPU is called: NAME/MODEL.csv where the GPU's is NAME.csv, or
 * where it has none and its own name is NAME. Returns `text`. */
const char *gpu_model_profile(const struct gpu *gpu, const char *model, char *text, size_t size);

/* The path that it belongs at: in the folder of the GPU's own file where it has one, else among the
 * shipped ones. Returns `path`. */
const char *gpu_model_profile_place(const struct gpu *gpu, const char *model, char *path,
                                    size_t size);

/* The path that it is read from: in the folder of the GPU's own file, else among the shipped ones.
 * Returns `path`, NULL where there is no such file. */
const char *gpu_model_profile_path(const struct gpu *gpu, const char *model, char *path,
                                   size_t size);

#endif
