#include "engine/device/device.h"

#include <ctype.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/input/inputs.h"
#include "sim/base/system.h"
#include "sim/base/wait.h"

const char *const backend_names[] = {
    [BACKEND_SIM] = "sim", [BACKEND_CPU] = "cpu", [BACKEND_CUDA] = "cuda", NULL};

static const char cuda_library[] = "libunmask_cuda.so";

/* ---- the CUDA library ---- */

/* The error for a library whose own dependencies are missing: their names come first in the
 * loader's message (dlerror of glibc and musl). */
static int say_unloadable(const char *library, bool is_given, const char *why, struct err *err) {
    static const char absent[] = ": cannot open shared object file";
    const char *end = strstr(why, absent);
    const size_t n = end != NULL ? (size_t)(end - why) : 0;
    if (n > 0 && strncmp(why, library, n) != 0) {
        return err_world(err,
                         "no cuda device: %s needs %.*s, which is not found: put it next to that "
                         "library, name its folder in LD_LIBRARY_PATH, or build with a toolkit "
                         "that is here (`make kernels CUDA=FOLDER`)",
                         library, (int)n, why);
    }
    return err_world(err, "no cuda device: %s cannot be loaded%s (%s)", library,
                     is_given ? "" : "; `make kernels` builds it", why);
}

/* The library stays loaded until the program ends: what it registered with the driver does too. */
static int load_cuda(const char *library, const struct device_table **out, const char **build,
                     struct err *err) {
    char path[2 * PATH_MAX];
    bool is_given = library != NULL;
    if (library == NULL) {
        library = system_beside(cuda_library, path, sizeof path) ? path : cuda_library;
    }
    const int held = inputs_hold("device library", library);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (inputs_release(held, library, err) != 0) {
        return err_status(err);
    }
    if (handle == NULL) {
        return say_unloadable(library, is_given, dlerror(), err);
    }
    const struct device_table *table = dlsym(handle, DEVICE_CUDA_SYMBOL);
    if (table == NULL) {
        return err_world(err, "no cuda device: %s has no symbol %s", library, DEVICE_CUDA_SYMBOL);
    }
    if (table->abi != DEVICE_ABI || table->size != sizeof *table) {
        return err_world(err,
                         "no cuda device: %s speaks version %" PRIu32 " (%" PRIu32
                         " bytes), this program version %d (%zu bytes); build both from the same "
                         "sources",
                         library, table->abi, table->size, DEVICE_ABI, sizeof *table);
    }
    *out = table;
    *build = dlsym(handle, DEVICE_CUDA_BUILD_SYMBOL);
    return 0;
}

/* Days are written so that they sort. */
enum build_age engine_build_age(const char *measured, const char *loaded) {
    enum { DAY_CHARS = sizeof "2026-11-23" - 1 };
    if (strcmp(measured, loaded) == 0) {
        return BUILD_SAME;
    }
    bool have_days = isdigit((unsigned char)measured[0]) && isdigit((unsigned char)loaded[0]);
    return have_days && strncmp(measured, loaded, DAY_CHARS) < 0 ? BUILD_NEWER : BUILD_OTHER;
}

/* ---- opening ---- */

static int start(const struct device_table *table, int32_t index, enum kernel_dtype dtype,
                 struct engine_device *out, struct err *err) {
    char text[DEVICE_TEXT_CHARS] = "";
    *out = (struct engine_device){.table = table, .dtype = dtype};
    const int place = wait_begin(); /* a library's code is loaded between other programs' turns */
    int status = table->open(index, dtype, &out->device, text);
    wait_end(place);
    if (status != DEVICE_OK) {
        *out = (struct engine_device){0};
        return index > 0 ? err_world(err, "no %s device %" PRId32 ", counted from 0: %s",
                                     table->name, index, text)
                         : err_world(err, "no %s device: %s", table->name, text);
    }
    status = engine_device_err(out, table->facts(out->device, &out->facts),
                               "asking the device what it is", err);
    if (status != 0) {
        engine_device_close(out);
        return status;
    }
    struct device_vitals vitals = {0};
    if (table->vitals != NULL) {
        table->vitals(out->device, &vitals);
    }
    out->counts_energy = vitals.energy_j > 0;
    return 0;
}

int engine_device_start(const struct device_table *table, enum kernel_dtype dtype,
                        struct engine_device *out, struct err *err) {
    return start(table, 0, dtype, out, err);
}

int engine_device_another(const struct engine_device *device, int32_t index,
                          struct engine_device *out, struct err *err) {
    int status = start(device->table, index, device->dtype, out, err);
    out->build = device->build;
    return status;
}

int engine_device_open(enum backend backend, const char *library, struct engine_device *out,
                       struct err *err) {
    return engine_device_open_at(backend, library, 0, out, err);
}

int engine_device_open_at(enum backend backend, const char *library, int32_t index,
                          struct engine_device *out, struct err *err) {
    const struct device_table *table = NULL;
    ASSERT(backend != BACKEND_SIM);
    if (backend == BACKEND_CPU) {
        return engine_device_start(&device_cpu, KERNEL_F32, out, err);
    }
    const char *build = NULL;
    int status = load_cuda(library, &table, &build, err);
    status = status != 0 ? status : start(table, index, KERNEL_BF16, out, err);
    out->build = status == 0 ? build : NULL;
    return status;
}

void engine_device_close(struct engine_device *device) {
    if (device->device != NULL) {
        device->table->close(device->device);
    }
    *device = (struct engine_device){0};
}

int engine_device_err(const struct engine_device *device, int status, const char *what,
                      struct err *err) {
    if (status == DEVICE_OK) {
        return 0;
    }
    const char *why = status == DEVICE_NO_MEMORY ? "ran out of memory"
                      : status == DEVICE_REFUSED ? "refused a call"
                                                 : "failed";
    return err_world(err, "the %s device %s while %s: %s", device->table->name, why, what,
                     device->table->trouble(device->device));
}

/* ---- which card it is ---- */

/* What a driver keeps for itself is not in the memory that it reports: 3 % of it at most, 6 % with
 * ECC in GDDR. L2 caches are reported as multiples of what a slice has. */
static const double MEMORY_SHARE = 0.1, L2_SHARE = 0.25;

static bool is_near(int64_t is, int64_t stated, double share) {
    return fabs((double)(is - stated)) <= share * (double)stated;
}

int engine_check_device(const struct device_facts *facts, const struct gpu *gpu, struct err *err) {
    static const double MIB = 1024.0 * 1024.0;
    const bool is_cpu = gpu->compute_capability == 0;
    if (is_cpu || facts->capability == 0) {
        return is_cpu && facts->capability == 0
                   ? 0
                   : err_usage(err, "the device is '%s', not a %s", facts->name, gpu->name);
    }
    if (gpu->device != NULL && !gpu_is_called(gpu, facts->name)) {
        return err_usage(err, "the device is '%s', not a %s ('%s')", facts->name, gpu->name,
                         gpu->device);
    }
    if (facts->capability != (int32_t)gpu->compute_capability) {
        return err_usage(err, "the device '%s' has compute capability %d, a %s has %u", facts->name,
                         facts->capability, gpu->name, gpu->compute_capability);
    }
    if (facts->n_sms != (int32_t)gpu->sms) {
        return err_usage(err, "the device '%s' has %d multiprocessors, a %s has %u", facts->name,
                         facts->n_sms, gpu->name, gpu->sms);
    }
    if (!is_near(facts->memory_bytes, gpu->memory_bytes, MEMORY_SHARE)) {
        return err_usage(err, "the device '%s' has %.0f MiB of memory, a %s has %.0f", facts->name,
                         (double)facts->memory_bytes / MIB, gpu->name,
                         (double)gpu->memory_bytes / MIB);
    }
    return is_near(facts->l2_bytes, gpu->l2_bytes, L2_SHARE)
               ? 0
               : err_usage(err, "the device '%s' has %.0f MiB of L2 cache, a %s has %.0f",
                           facts->name, (double)facts->l2_bytes / MIB, gpu->name,
                           (double)gpu->l2_bytes / MIB);
}

bool engine_device_is(const struct device_facts *facts, const struct gpu *gpu) {
    struct err ignored = {0};
    return engine_check_device(facts, gpu, &ignored) == 0;
}

int engine_find_gpu(const struct device_facts *facts, const char **gpu, struct err *err) {
    const struct gpu *const *gpus = gpu_all(err);
    for (size_t i = 0; gpus != NULL && gpus[i] != NULL; i++) {
        if (engine_device_is(facts, gpus[i])) {
            *gpu = gpus[i]->name;
            return 0;
        }
    }
    return err_usage(err,
                     "no known GPU is this '%s' of %d multiprocessors and %.0f MiB (`unmask list "
                     "gpus` prints them all): describe it in a file, --gpu ./mine.ini",
                     facts->name, facts->n_sms, (double)facts->memory_bytes / (1024.0 * 1024.0));
}
