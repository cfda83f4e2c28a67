/* Clocks, power, temperature and who else is there, from NVML, which comes with the driver; found
 * at run time so that nothing is missed where it is absent. Declarations follow NVIDIA's NVML API
 * reference. */
#include <dlfcn.h>
#include <new>

#include "kernels/device/device_cuda.cuh"

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_TEMPERATURE_GPU = 0, BUS_ID_CHARS = 32 };

typedef struct nvml_handle *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

/* The second version of the same, in which what the driver keeps for itself is not `used`. */
struct nvml_memory_2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

/* Reasons for a lower clock: by hardware (half, or less), heat (told by software, by hardware), an
 * external brake. */
static const unsigned long long slowed = 0x8 | 0x20 | 0x40 | 0x80;

struct nvml {
    void *library;
    nvml_device device;
    int (*shutdown)(void);
    int (*clock_info)(nvml_device, int, unsigned *);
    int (*power_usage)(nvml_device, unsigned *); /* milliwatts */
    int (*temperature)(nvml_device, int, unsigned *);
    int (*memory_info)(nvml_device, struct nvml_memory *);
    int (*energy)(nvml_device, unsigned long long *); /* millijoules; may be absent */
    int n_others;
    int64_t others_bytes;
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

/* What may be absent in an old library is asked for each time. */
static void look_around(struct nvml *nvml) {
    static const int too_short = 7; /* NVML_ERROR_INSUFFICIENT_SIZE: there is one or more */
    int (*programs)(nvml_device, unsigned *, void *), (*memory_of)(nvml_device, nvml_memory_2 *);
    unsigned n = 0;
    if (find(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", &programs) &&
        programs(nvml->device, &n, nullptr) == too_short) {
        nvml->n_others = (int)n;
    }
    nvml_memory_2 memory = {};
    memory.version = (unsigned)sizeof memory | 2U << 24;
    if (find(nvml, "nvmlDeviceGetMemoryInfo_v2", &memory_of) &&
        memory_of(nvml->device, &memory) == 0) {
        nvml->others_bytes = (int64_t)memory.used;
    }
}

struct nvml *nvml_open(int index) {
    struct nvml *nvml = new (std::nothrow) struct nvml();
    if (nvml && !nvml_start(nvml, index)) {
        nvml_close(nvml);
        nvml = nullptr;
    }
    if (nvml) {
        look_around(nvml);
    }
    return nvml;
}

void nvml_surroundings(struct nvml *nvml, struct device_surroundings *out) {
    int (*reasons)(nvml_device, unsigned long long *), (*watts)(nvml_device, unsigned *);
    unsigned long long why = 0;
    unsigned mw = 0;
    *out = {};
    if (!nvml) {
        return;
    }
    out->n_others = nvml->n_others;
    out->others_bytes = nvml->others_bytes;
    if ((find(nvml, "nvmlDeviceGetCurrentClocksEventReasons", &reasons) || /* the newer name */
         find(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", &reasons)) &&
        reasons(nvml->device, &why) == 0) {
        out->is_slowed = (why & slowed) != 0;
    }
    if (find(nvml, "nvmlDeviceGetEnforcedPowerLimit", &watts) && watts(nvml->device, &mw) == 0) {
        out->limit_w = mw / 1000.0;
    }
    if (find(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", &watts) &&
        watts(nvml->device, &mw) == 0) {
        out->usual_w = mw / 1000.0;
    }
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
