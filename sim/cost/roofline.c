#include "sim/cost/roofline.h"

#include <math.h>

#include "sim/base/num.h"

/* Kernel start and drain on a busy stream, 2 us: launch gaps of 1 to 3 us are published for all of
 * the table's GPUs (NVIDIA "Getting started with CUDA graphs"). */
static const double launch_ns = 2000;

double roofline_ns(const struct gpu *gpu, double flops, double bytes) {
    double compute_ns = flops / gpu->best_bf16_flops * 1e9;
    double memory_ns = bytes / gpu->best_bandwidth * 1e9;
    return launch_ns + (compute_ns > memory_ns ? compute_ns : memory_ns);
}

double roofline_gemm_ns(const struct gpu *gpu, int64_t m, int64_t n, int64_t k) {
    enum { TILE = 128 };
    double padded_m = (double)(ceil_div(m, TILE) * TILE),
           padded_n = (double)(ceil_div(n, TILE) * TILE);
    /* A product thinner than a tile is bound by its bytes, not by the padding. */
    double rows = m < TILE ? (double)m : padded_m;
    double bytes = 2.0 * ((double)m * (double)k + (double)k * (double)n + (double)m * (double)n);
    return roofline_ns(gpu, 2 * rows * padded_n * (double)k, bytes);
}

double stretched_ns(double ns, double moving_ns) {
    return ns > moving_ns ? ns * (1 - pow(moving_ns / ns, OVERLAP)) : 0;
}

double floor_ns(const struct gpu *gpu, double flops, double bytes) {
    if (gpu->compute_capability == 0) {
        return 0;
    }
    double compute_ns = flops / gpu_roof_flops(gpu) * 1e9;
    double memory_ns = bytes / gpu->peak_bandwidth * 1e9;
    return compute_ns > memory_ns ? compute_ns : memory_ns;
}
