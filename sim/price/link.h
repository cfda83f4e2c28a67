/* Time of data exchange between GPUs of one host over an unmeasured link: assumed, by the kind of
 * link and the number of GPUs.
 *
 * As NCCL does it: a start, a hop from GPU to GPU for each of the 2 (n - 1) turns of a ring (n - 1
 * where nothing is summed), and the bytes that each GPU sends, the first of them slowly, since
 * short messages go through few channels. Without peer access every hop goes through the host's
 * memory. The constants are in ladder.c; `unmask list collectives` holds them against public
 * measurements (experiments/study/reference/collectives.csv). */
#ifndef UNMASK_SIM_PRICE_LINK_H
#define UNMASK_SIM_PRICE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/model/gpu.h"

struct link_time {
    double latency_ns;  /* the start and the hops, whatever the message */
    double transfer_ns; /* the bytes */
};

/* `ranks` GPUs, each of which holds `bytes`: all summed on all of them, or each one's gathered. */
struct link_time link_time(const struct gpu *gpu, uint32_t ranks, double bytes, bool reduces);

static inline double link_ns(const struct gpu *gpu, uint32_t ranks, double bytes, bool reduces) {
    const struct link_time time = link_time(gpu, ranks, bytes, reduces);
    return time.latency_ns + time.transfer_ns;
}

/* "PCIe 4.0 x16 without peer access". Returns `text`. */
const char *link_words(const struct gpu *gpu, char *text, size_t size);

#endif
