/* Whether a live run had its device for itself: what others did on it or with the machine
 * meanwhile, as far as that can be seen from here.
 *
 * On a GPU: programs on the card at the start and the end, its utilization while nothing of ours
 * ran, steps of one shape that took unlike times, and a clock that fell. On the CPU: the share of a
 * core that our own steps got, and the load by others. On both: whether this process was stopped.
 * It takes a look at the driver at the start, at the end and while the run waits; a step costs a
 * look-up. */
#ifndef UNMASK_ENGINE_DEVICE_NEIGHBOURS_H
#define UNMASK_ENGINE_DEVICE_NEIGHBOURS_H

#include "engine/device/device.h"
#include "engine/device/nvml.h"
#include "sim/base/warning.h"

enum { NEIGHBOURS_CARDS = 8, NEIGHBOURS_SHAPES = 256 };

struct neighbours_request {
    const struct device_facts *facts[NEIGHBOURS_CARDS]; /* of the devices that the run has */
    uint32_t n_devices;
    const char *nvml; /* the library: NVML_LIBRARY */
    const char *root; /* stands before /proc: "" */
};

/* Steps of one shape. */
struct neighbours_shape {
    uint64_t key; /* 0: free */
    uint32_t n, n_slow;
    double least_ns;
};

/* All fields are neighbours.c's. */
struct neighbours {
    struct nvml_card *cards[NEIGHBOURS_CARDS];
    uint32_t n_devices;
    bool is_gpu;
    const char *root;
    int32_t n_others_before, n_others_after;
    uint32_t n_idle, n_idle_busy; /* looks while nothing of ours ran, those that saw work */
    int32_t most_busy_percent;
    bool is_slowed;
    double clock_mhz, most_clock_mhz; /* after the last step; 0: not known */
    struct neighbours_shape shapes[NEIGHBOURS_SHAPES];
    uint32_t n_steps, n_slow;
    double busy_ns; /* steps, by the wall */
    int64_t last_step_ns, begin_ns, own_begin_ns, slept_ns;
    double own_share, others_share; /* of a core, of all cores; -1: not known */
    int64_t machine_busy, machine_all;
    uint32_t n_stopped;
    double stopped_ns; /* by a machine that slept */
};

/* Nothing of it fails: what cannot be known is not. Devices are entered and warm. */
void neighbours_begin(struct neighbours *neighbours, const struct neighbours_request *request);

/* A step of a shape, and what it took of the device. */
void neighbours_step(struct neighbours *neighbours, const int64_t *shape, uint32_t n,
                     double device_ns);

/* Nothing of ours has run for as long: there is something to see once that is more than drivers
 * average over. */
void neighbours_idle(struct neighbours *neighbours, int64_t idle_ns);

/* Takes the last looks, and lets go of the drivers. */
void neighbours_end(struct neighbours *neighbours);

/* A warning for each that makes the run's times others' too. */
void neighbours_warn(const struct neighbours *neighbours, struct warnings *out);

/* What was measured meanwhile and written to `path` is set aside to path.shared where there is
 * anything to warn of, so that nothing takes it for the device's own: ERR_WORLD says so. */
int neighbours_set_aside(const struct neighbours *neighbours, const char *path, struct err *err);

#endif
