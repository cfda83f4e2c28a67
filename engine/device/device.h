/* A device that is open, and how to speak to it: the CPU, or a CUDA GPU through a library that is
 * loaded when it is asked for. */
#ifndef UNMASK_ENGINE_DEVICE_DEVICE_H
#define UNMASK_ENGINE_DEVICE_DEVICE_H

#include "kernels/device.h"
#include "sim/base/err.h"
#include "sim/model/gpu.h"
#include "sim/model/storage.h"

/* What executes the steps of a run. */
enum backend { BACKEND_SIM, BACKEND_CPU, BACKEND_CUDA };

/* As options, databases and studies write them; NULL ends them. */
extern const char *const backend_names[];

struct engine_device {
    const struct device_table *table;
    struct device *device;
    struct device_facts facts;
    enum kernel_dtype dtype;
    bool counts_energy; /* it reports the energy it has drawn */
    const char *build; /* of a library's kernels (DEVICE_CUDA_BUILD_SYMBOL); NULL: it has no name */
};

/* Of two builds' names, of what a profile was measured with and of what is loaded. */
enum build_age { BUILD_SAME, BUILD_NEWER, BUILD_OTHER };
enum build_age engine_build_age(const char *measured, const char *loaded);

/* The CPU, in float32, or a CUDA GPU, in bf16. ERR_WORLD with the one reason when there is no such
 * device here. `library` is the path of libunmask_cuda.so; NULL: next to the program, or where the
 * loader finds it. On error nothing needs closing. */
int engine_device_open(enum backend backend, const char *library, struct engine_device *out,
                       struct err *err);
/* The same of number `index` of the machine's GPUs, counted from 0 as CUDA does. */
int engine_device_open_at(enum backend backend, const char *library, int32_t index,
                          struct engine_device *out, struct err *err);
void engine_device_close(struct engine_device *device);

/* The same of a table that is at hand. */
int engine_device_start(const struct device_table *table, enum kernel_dtype dtype,
                        struct engine_device *out, struct err *err);

/* One more of the same machine, for another thread: number `index`, where `device` is 0. */
int engine_device_another(const struct engine_device *device, int32_t index,
                          struct engine_device *out, struct err *err);

/* The sentence for a status that a device's function returned, 0 for DEVICE_OK; `what` completes
 * "while ...". */
int engine_device_err(const struct engine_device *device, int status, const char *what,
                      struct err *err);

/* Whether a device is that card: its driver calls it so (`device` of the GPU's file), and it has
 * the card's multiprocessors, capability, memory and L2 cache. Laptop, Ti and PCIe variants, slices
 * and virtual GPUs are not the card that their names begin with. A file that says no `device` is
 * told by the rest alone. A device without a compute capability is the "cpu", or what a file
 * without one describes, and nothing else. */
bool engine_device_is(const struct device_facts *facts, const struct gpu *gpu);

/* The same; ERR_USAGE and what differs, when it is another. */
int engine_check_device(const struct device_facts *facts, const struct gpu *gpu, struct err *err);

/* The name of the GPU of the data folder that a device is; ERR_USAGE where it is none of them. */
int engine_find_gpu(const struct device_facts *facts, const char **gpu, struct err *err);

/* The device's dtype as the graph has it, and the bytes of one element. */
static inline enum number_type engine_number(const struct engine_device *device) {
    return device->dtype == KERNEL_F32 ? NUMBER_F32 : NUMBER_BF16;
}

static inline int64_t engine_element_bytes(const struct engine_device *device) {
    return number_bytes(engine_number(device));
}

#endif
