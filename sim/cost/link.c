#include "sim/cost/link.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Who is not in the table, the host's processor among them, is taken for the last, slowest one. */
struct link_kind {
    const char *begins; /* the link's name; "": any */
    int peers;          /* 1 with peer access, 0 without, -1: either */
    double start_us, hop_us;
    double slow_share, slow_bytes; /* of the data sheet's rate, for the first bytes a GPU sends */
    double share;                  /* for the others */
    double host_links; /* what all GPUs send together at most, in links; INFINITY: no such limit */
};

/* NVLink: NCCL's all-reduces of 512 bytes to 512 MiB over 2, 4 and 8 GPUs of an H100 and an A100
 * host (the imported tables kernels/profiles/h100.csv and a100-80g.csv). PCIe with peer access:
 * start and hops by an L40S host (l40s.csv); rates are 0.40, 0.62, 0.78 and 0.82 of the data
 * sheet's on four hosts (tinygrad/open-gpu-kernel-modules#22, two L40S, #17 with 4 and with 5 GPUs,
 * #36): the share between the first and the last, which no number of GPUs moves. Without: hops by 8
 * RTX 4090s (NVIDIA/nccl#1530), twice those with it; long messages by one host with 4 and with 8
 * RTX 5090s (NVIDIA/nccl#1639, 35 and 28 GB/s of a link's 63): all of them pass the host's memory,
 * and what that passes is a limit on all of them together, as a maintainer of NCCL says there.
 * Short messages go at half the rate of those with peers, since they wait for twice the hops. Hosts
 * differ: the L40S's passes long messages of 4 and 8 GPUs at a quarter and a twelfth of this. */
static const struct link_kind kinds[] = {
    {"NVLink 3", -1, 7.9, 1.05, 0.21, 2 << 20, 0.75, INFINITY},
    {"NVLink", -1, 4.6, 0.8, 0.21, 2 << 20, 0.75, INFINITY},
    {"PCIe", 1, 4.6, 1.33, 0.21, 256 << 10, 0.6, INFINITY},
    {"", -1, 4.6, 2.7, 0.105, 256 << 10, 35.0 / 63, 8 * 28.0 / 63},
};

static const struct link_kind *kind_of(const struct gpu *gpu) {
    const struct link_kind *kind = kinds;
    while (strncmp(gpu->link, kind->begins, strlen(kind->begins)) != 0 ||
           (kind->peers >= 0 && kind->peers != (gpu->link_peers != 0))) {
        kind++;
    }
    return kind;
}

struct link_time link_time(const struct gpu *gpu, uint32_t ranks, double bytes, bool reduces) {
    const struct link_kind *kind = kind_of(gpu);
    const double others = (double)ranks - 1, ns_a_us = 1e3;
    const double hops = reduces ? 2 * others : others;
    const double sent = reduces ? 2 * bytes * others / ranks : bytes * others;
    const double slow = fmin(sent, kind->slow_bytes);
    const double share = fmin(kind->share, kind->host_links / ranks);
    return (struct link_time){.latency_ns = ns_a_us * (kind->start_us + hops * kind->hop_us),
                              .transfer_ns = (slow / kind->slow_share + (sent - slow) / share) /
                                             gpu->link_bandwidth * 1e9};
}

const char *link_words(const struct gpu *gpu, char *text, size_t size) {
    const bool tells = strncmp(gpu->link, "PCIe", 4) == 0;
    snprintf(text, size, "%s%s", gpu->link,
             !tells            ? ""
             : gpu->link_peers ? " with peer access"
                               : " without peer access");
    return text;
}
