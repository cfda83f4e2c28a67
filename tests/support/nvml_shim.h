/* What tests/plugins/nvml_shim.c answers; it starts with a card that is there alone and idle. */
#ifndef UNMASK_TESTS_SUPPORT_NVML_SHIM_H
#define UNMASK_TESTS_SUPPORT_NVML_SHIM_H

struct nvml_script {
    unsigned n_programs, busy_percent, clock_mhz, most_clock_mhz;
    int tells_busy, n_open;
    unsigned long long reasons;
};

extern struct nvml_script nvml_script;

#endif
