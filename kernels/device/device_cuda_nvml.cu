/* Clocks, power and temperature from NVML, which comes with the driver; found at run time so that
 * nothing is missed where it is absent. Declarations follow NVIDIA's NVML API reference. */
#include <dlfcn.h>
#include <new>

#include "kernels/device/device_cuda.cuh"

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_TEMPERATURE_GPU = 0, BUS_ID_CHARS = 32 };

typedef struct nvml_handle *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    void *library;
    nvml_device device;
    int (*shutdown)(void);
    int (*clock_info)(nvml_device, int, unsigned *);
    int (*power_usage)(nvml_device, unsigned *); /* milliwatts */
    int (*temperature)(nvml_device, int, unsigned *);
    int (*memory_info)(nvml_device, struct nvml_memory *);
    int (*energy)(nvml_device, unsigned long long *); /* millijoules; may be absent */
};

template <class FUNCTION>
static bool find(const struct nvml *nvml, const char *name, FUNCTION *out) {
    *out = reinterpret_cast<FUNCTION>(dlsym(nvml->library, name));
    return *out != nullptr;
}

static bool nvml_start(struct nvml *nvml, int index) {
    int (*init)(void), (*by_bus)(const char *, nvml_device *);
    char bus[BUS_ID_CHARS];
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library || !find(nvml, "nvmlInit_v2", &init) ||
        !find(nvml, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus) ||
        !find(nvml, "nvmlDeviceGetClockInfo", &nvml->clock_info) ||
        !find(nvml, "nvmlDeviceGetPowerUsage", &nvml->power_usage) ||
        !find(nvml, "nvmlDeviceGetTemperature", &nvml->temperature) ||
        !find(nvml, "nvmlDeviceGetMemoryInfo", &nvml->memory_info) || init() != 0) {
        return false;
    }
    find(nvml, "nvmlDeviceGetTotalEnergyConsumption", &nvml->energy);
    return find(nvml, "nvmlShutdown", &nvml->shutdown) &&
           cudaDeviceGetPCIBusId(bus, BUS_ID_CHARS, index) == cudaSuccess &&
           by_bus(bus, &nvml->device) == 0;
}

struct nvml *nvml_open(int index) {
    struct nvml *nvml = new (std::nothrow) struct nvml();
    if (nvml && !nvml_start(nvml, index)) {
        nvml_close(nvml);
        nvml = nullptr;
    }
    return nvml;
}

void nvml_close(struct nvml *nvml) {
    if (!nvml) {
        return;
    }
    if (nvml->shutdown) {
        nvml->shutdown();
    }
    if (nvml->library) {
        dlclose(nvml->library);
    }
    delete nvml;
}

void nvml_vitals(struct nvml *nvml, struct device_vitals *out) {
    unsigned value;
    *out = {};
    if (!nvml) {
        return;
    }
    if (nvml->clock_info(nvml->device, NVML_CLOCK_SM, &value) == 0) {
        out->sm_clock_mhz = value;
    }
    if (nvml->clock_info(nvml->device, NVML_CLOCK_MEMORY, &value) == 0) {
        out->memory_clock_mhz = value;
    }
    if (nvml->power_usage(nvml->device, &value) == 0) {
        out->power_w = value / 1000.0;
    }
    if (nvml->temperature(nvml->device, NVML_TEMPERATURE_GPU, &value) == 0) {
        out->temperature_c = value;
    }
    unsigned long long mj;
    if (nvml->energy && nvml->energy(nvml->device, &mj) == 0) {
        out->energy_j = (double)mj / 1000.0;
    }
}

int64_t nvml_used_bytes(struct nvml *nvml) {
    struct nvml_memory memory;
    return nvml && nvml->memory_info(nvml->device, &memory) == 0 ? (int64_t)memory.used : 0;
}
