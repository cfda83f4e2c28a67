#include "sim/model/gpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/input/datadir.h"
#include "sim/base/input/path.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/model/gpu_names.h"

#define KEY(name, kind, field, unit, min, max, doc)                                                \
    PARAM(name, kind, struct gpu, field, unit, NULL, min, max, doc)
#define PEAK(field, doc)        KEY(#field, PARAM_F64, field, "1", 1, 1e18, doc)
#define BYTES(name, field, doc) KEY(name, PARAM_I64, field, "bytes", 1, 1e15, doc)
#define OPTIONAL(field, doc)    PARAM(#field, PARAM_F64, struct gpu, field, "1", "0", 0, 1e18, doc)

const struct param gpu_params[] = {
    KEY("sms", PARAM_U32, sms, "1", 1, 4096, "streaming multiprocessors"),
    KEY("compute_capability", PARAM_U32, compute_capability, "1", 0, 999,
        "89 is sm_89, 942 is gfx942 (0: no GPU)"),
    BYTES("memory", memory_bytes, "its memory, as nvidia-smi reports it"),
    PARAM("l2", PARAM_I64, struct gpu, l2_bytes, "bytes", "0", 0, 1e15,
          "size of its L2 cache (0: 32 MiB, assumed)"),
    PEAK(peak_bf16_flops, "dense, fp32 accumulation, FLOP/s, data sheet"),
    OPTIONAL(peak_fp64_flops, "double precision outside tensor cores, FLOP/s, data sheet (0: a "
                              "hundredth of bf16, assumed)"),
    OPTIONAL(peak_fp8_flops,
             "dense products of fp8, fp32 accumulation, FLOP/s, data sheet (0: the card has none)"),
    PEAK(peak_bandwidth, "bytes/s, data sheet"),
    OPTIONAL(best_bf16_flops, "best published library product (0: 0.7 of its peak, assumed)"),
    OPTIONAL(best_bandwidth, "reached by copies or weight streams (0: 0.9 of its peak, assumed)"),
    OPTIONAL(l2_bandwidth,
             "bytes/s between the L2 cache and the multiprocessors, estimate (0: twice "
             "peak_bandwidth, assumed)"),
    OPTIONAL(link_bandwidth,
             "bytes/s out of one GPU, data sheet (0: that of PCIe 4.0 x16, assumed)"),
    OPTIONAL(host_bandwidth,
             "bytes/s between its memory and the host's, in one direction, data sheet (0: not "
             "known, and nothing is swapped)"),
    OPTIONAL(
        best_host_bandwidth,
        "reached by copies of pinned memory, measured (0: 0.873 of host_bandwidth, assumed, as "
        "an H200's) [host_bandwidth > 0]"),
    PARAM("link_peers", PARAM_BOOL, struct gpu, link_peers, "1", "on", 0, 1,
          "GPUs reach each other's memory over PCIe (off: through the host's, as GeForce cards) "
          "[link_kind = PCIe]"),
};
const size_t gpu_n_params = sizeof gpu_params / sizeof gpu_params[0];

static const struct catalogue_text texts[] = {
    {"title", offsetof(struct gpu, title), true},
    {"source", offsetof(struct gpu, source), false},
    {"device", offsetof(struct gpu, device), true},
    {"link", offsetof(struct gpu, link), true},
    {"host_link", offsetof(struct gpu, host_link), true},
    {"profile", offsetof(struct gpu, profile), true},
    {"donor", offsetof(struct gpu, donor), true},
    {"donor_of_passes", offsetof(struct gpu, donor_of_passes), true},
    {NULL, 0, false},
};

/* What a data sheet lacks, or no one measured yet: shares as cards that are known have them (0.62
 * to 0.81 of the peak of products, 0.87 to 0.94 of the bandwidth). */
static void assume(struct gpu *gpu) {
    struct {
        const char *name;
        double *value, assumed;
    } missing[] = {{"peak_fp64_flops", &gpu->peak_fp64_flops, 0.01 * gpu->peak_bf16_flops},
                   {"best_bf16_flops", &gpu->best_bf16_flops, 0.7 * gpu->peak_bf16_flops},
                   {"best_bandwidth", &gpu->best_bandwidth, 0.9 * gpu->peak_bandwidth},
                   {"l2_bandwidth", &gpu->l2_bandwidth, 2 * gpu->peak_bandwidth},
                   {"link_bandwidth", &gpu->link_bandwidth, 31.5e9}};
    char text[1024], *const end = text + sizeof text;
    char *at = text + snprintf(text, sizeof text, "%s; assumed:", gpu->source);
    bool is_assumed = gpu->l2_bytes == 0;
    if (is_assumed && at < end) {
        gpu->l2_bytes = INT64_C(32) << 20;
        at += snprintf(at, (size_t)(end - at), " l2");
    }
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        if (*missing[i].value == 0 && at < end) {
            *missing[i].value = missing[i].assumed;
            at += snprintf(at, (size_t)(end - at), "%s %s", is_assumed ? "," : "", missing[i].name);
            is_assumed = true;
        }
    }
    gpu->link = gpu->link != NULL ? gpu->link : "PCIe 4.0 x16";
    gpu->title = gpu->title != NULL ? gpu->title : gpu->name;
    gpu->source = is_assumed ? catalogue_keep_text(text) : gpu->source;
}

static int settle(void *thing, const char *place, struct err *err) {
    struct gpu *gpu = thing;
    assume(gpu);
    return gpu->best_bandwidth > gpu->peak_bandwidth
               ? err_usage(err, "%s: best_bandwidth is above peak_bandwidth", place)
           : gpu->best_host_bandwidth > gpu->host_bandwidth
               ? err_usage(err, "%s: best_host_bandwidth is above host_bandwidth", place)
               : 0;
}

static const char *fact(const void *thing, const char *name) {
    const struct gpu *gpu = thing;
    return strcmp(name, "link_kind") != 0       ? NULL
           : strncmp(gpu->link, "PCIe", 4) == 0 ? "PCIe"
                                                : "another";
}

static struct catalogue gpus = {
    .what = "GPU",
    .section = "gpu",
    .list = "gpus",
    .folder = "sim/model/gpus",
    .size = sizeof(struct gpu),
    .texts = texts,
    .params = gpu_params,
    .n_params = sizeof gpu_params / sizeof gpu_params[0],
    .settle = settle,
    .fact = fact,
    .hint = gpu_hint,
};

/* The file's name of a card that is called otherwise; `name` itself where none is. */
static const char *file_name(const char *name) {
    struct err unknown = {0}, ignored = {0};
    bool is_path = strchr(name, '/') != NULL || name_ends(name, ".ini");
    if (is_path || catalogue_check_name(&gpus, name, &unknown) == 0) {
        return name;
    }
    const struct gpu *const *all = gpu_all(&ignored);
    for (; all != NULL && *all != NULL; all++) {
        if (gpu_names_equal(name, strlen(name), (*all)->name, strlen((*all)->name)) ||
            gpu_is_called(*all, name)) {
            return (*all)->name;
        }
    }
    return name;
}

const struct gpu *gpu_find(const char *name, struct err *err) {
    return catalogue_find(&gpus, file_name(name), err);
}

bool gpu_is_host(const struct gpu *gpu) {
    return gpu->compute_capability == 0 && gpu->path == NULL;
}

/* A limit of the control group, of either version; INT64_MAX: none. */
static int64_t limit_of(const char *path) {
    char text[32] = "";
    uint64_t bytes = 0;
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL) {
            text[strcspn(text, "\n")] = '\0';
        }
        fclose(file);
    }
    return num_u64(text, INT64_MAX, &bytes) ? (int64_t)bytes : INT64_MAX;
}

int64_t gpu_machine_bytes(void) {
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const int64_t limit = limit_of(limits[i]);
        bytes = limit < bytes ? limit : bytes;
    }
    return bytes;
}

int gpu_check_name(const char *name, struct err *err) {
    return catalogue_check_name(&gpus, file_name(name), err);
}

const struct gpu *const *gpu_all(struct err *err) {
    return (const struct gpu *const *)catalogue_all(&gpus, err);
}

/* The path that a profile file of this name belongs at: in the folder of the GPU's own file where
 * it has one, else among the shipped ones. */
static const char *profile_place(const struct gpu *gpu, const char *file, char *path, size_t size) {
    char relative[640];
    if (gpu->path == NULL && file[0] != '/') {
        snprintf(relative, sizeof relative, "kernels/profiles/%s", file);
        data_path(path, size, relative);
    } else {
        (void)path_named_in(gpu->path != NULL ? gpu->path : "", file, path, size);
    }
    return path;
}

/* The path that it is read from: in the folder of the GPU's own file, else the shipped one. */
static const char *profile_beside(const struct gpu *gpu, const char *file, char *path,
                                  size_t size) {
    static const struct gpu shipped = {.path = NULL};
    profile_place(gpu, file, path, size);
    return gpu->path == NULL || access(path, F_OK) == 0 ? path
                                                        : profile_place(&shipped, file, path, size);
}

const char *gpu_profile_path(const struct gpu *gpu, char *path, size_t size) {
    return profile_beside(gpu, gpu->profile, path, size);
}

const char *gpu_model_profile(const struct gpu *gpu, const char *model, char *text, size_t size) {
    static const char suffix[] = ".csv";
    const char *file = gpu->profile != NULL ? gpu->profile : gpu->name;
    const size_t n = strlen(file), n_suffix = strlen(suffix);
    const bool has_suffix = n >= n_suffix && strcmp(file + n - n_suffix, suffix) == 0;
    snprintf(text, size, "%.*s/%s%s", (int)(has_suffix ? n - n_suffix : n), file, model, suffix);
    return text;
}

const char *gpu_model_profile_place(const struct gpu *gpu, const char *model, char *path,
                                    size_t size) {
    char file[512];
    return profile_place(gpu, gpu_model_profile(gpu, model, file, sizeof file), path, size);
}

const char *gpu_model_profile_path(const struct gpu *gpu, const char *model, char *path,
                                   size_t size) {
    char file[512];
    if (strchr(model, '/') != NULL) {
        return NULL;
    }
    profile_beside(gpu, gpu_model_profile(gpu, model, file, sizeof file), path, size);
    return access(path, R_OK) == 0 ? path : NULL;
}
