/* What NVML says of a card: who computes on it, how busy it is, its clock. NVML comes with NVIDIA's
 * driver and is loaded when it is asked for; where it is absent nothing is known. Declarations
 * follow NVIDIA's NVML API reference. */
#ifndef UNMASK_ENGINE_DEVICE_NVML_H
#define UNMASK_ENGINE_DEVICE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

struct nvml_card;

/* The card at a PCI bus id ("0000:3B:00.0"), by a library of that name; NULL: there is none. */
struct nvml_card *nvml_card_open(const char *library, const char *bus);
void nvml_card_close(struct nvml_card *card); /* NULL is fine */

/* What is so just now; -1, 0 and false where the driver does not say, and of no card. */
struct nvml_look {
    int32_t n_programs;   /* that compute there, this one among them if it does */
    int32_t busy_percent; /* of the last sixth of a second to second, by anybody's kernels */
    bool is_slowed;       /* by heat, the power supply or an external brake */
    double clock_mhz, most_clock_mhz;
};
struct nvml_look nvml_card_look(const struct nvml_card *card);

#endif
