/* An NVML whose answers a test writes, for machines without a card
 * (tests/engine/test_neighbours.c).
 */
#include "tests/support/nvml_shim.h"

struct nvml_script nvml_script;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *list);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out);
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz);

enum { NOT_FOUND = 6, TOO_SHORT = 7 };

int nvmlInit_v2(void) {
    nvml_script.n_open++;
    return 0;
}

int nvmlShutdown(void) {
    nvml_script.n_open--;
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) {
    *out = &nvml_script;
    return bus[0] == '0' ? 0 : NOT_FOUND;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *list) {
    (void)list;
    *n = nvml_script.n_programs;
    return device == &nvml_script && *n > 0 ? TOO_SHORT : 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent) {
    (void)device;
    percent[0] = nvml_script.busy_percent;
    percent[1] = 0;
    return nvml_script.tells_busy ? 0 : NOT_FOUND;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) {
    (void)device;
    *out = nvml_script.reasons;
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) {
    (void)device;
    *mhz = kind == 1 ? nvml_script.clock_mhz : 0;
    return 0;
}

int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz) {
    (void)device;
    *mhz = kind == 1 ? nvml_script.most_clock_mhz : 0;
    return 0;
}
