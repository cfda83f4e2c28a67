#include "sim/model/gpu.h"

#include <string.h>

#include "sim/base/names.h"
#include "sim/base/num.h"

#define MIB (INT64_C(1) << 20)

/* Peaks: SMs x boost clock x FLOP per clock per SM with fp32 accumulation, as on the data sheets
 * (sm_80 2048, sm_86 and sm_89 GeForce 512, sm_89 professional 1024, sm_90 4096). The best products
 * are published measurements: mag-/gpu_benchmark (3090, 4090, L40S, A100), stas00 MAMF (H100), and
 * our own 8192^3 product on an H200 (2026-11). Bandwidths reached are weight streams
 * or copies; those of the RTX 3090, L40S and A100 are estimates from published shares of peak. L2
 * bandwidths are estimates: 10 bytes per clock and multiprocessor on GeForce-class dies, 20 to 30
 * on A100 and H100. Links: half of what the data sheets print for both directions; GeForce and
 * professional cards without NVLink meet over PCIe, which NVLink bridges of the RTX 3090 are not
 * counted against. */
const struct gpu gpu_table[] = {
    {.name = "rtx3090",
     .title = "NVIDIA GeForce RTX 3090 24 GB",
     .sms = 82,
     .compute_capability = 86,
     .memory_bytes = 24576 * MIB,
     .l2_bytes = 6 * MIB,
     .peak_bf16_flops = 71e12,
     .peak_bandwidth = 936e9,
     .best_bf16_flops = 78e12,
     .best_bandwidth = 870e9,
     .l2_bandwidth = 1.4e12,
     .link = "PCIe 4.0 x16",
     .link_bandwidth = 31.5e9,
     .donor = "rtx4090",
     .source = "NVIDIA GA102 white paper; mag-/gpu_benchmark"},
    {.name = "rtx4090",
     .title = "NVIDIA GeForce RTX 4090 24 GB",
     .sms = 128,
     .compute_capability = 89,
     .memory_bytes = 24564 * MIB,
     .l2_bytes = 72 * MIB,
     .peak_bf16_flops = 165.2e12,
     .peak_bandwidth = 1008e9,
     .best_bf16_flops = 166e12,
     .best_bandwidth = 958e9,
     .l2_bandwidth = 3.2e12,
     .link = "PCIe 4.0 x16",
     .link_bandwidth = 31.5e9,
     .profile = "rtx4090.csv",
     .source = "NVIDIA AD102 white paper; best of its imported profile"},
    {.name = "rtx-pro-6000",
     .title = "NVIDIA RTX PRO 6000 Blackwell 96 GB",
     .sms = 188,
     .compute_capability = 120,
     .memory_bytes = 97887 * MIB,
     .l2_bytes = 128 * MIB,
     .peak_bf16_flops = 503.8e12,
     .peak_bandwidth = 1792e9,
     .best_bf16_flops = 417e12,
     .best_bandwidth = 1472e9,
     .l2_bandwidth = 4.9e12,
     .link = "PCIe 5.0 x16",
     .link_bandwidth = 63e9,
     .profile = "rtx-pro-6000.csv",
     .source = "NVIDIA RTX PRO 6000 Blackwell data sheet; best of its imported profile"},
    {.name = "l40s",
     .title = "NVIDIA L40S 48 GB",
     .sms = 142,
     .compute_capability = 89,
     .memory_bytes = 46068 * MIB,
     .l2_bytes = 96 * MIB,
     .peak_bf16_flops = 362.05e12,
     .peak_bandwidth = 864e9,
     .best_bf16_flops = 252e12,
     .best_bandwidth = 750e9,
     .l2_bandwidth = 3.5e12,
     .link = "PCIe 4.0 x16",
     .link_bandwidth = 31.5e9,
     .profile = "l40s.csv",
     .source = "NVIDIA L40S data sheet (733 TFLOP/s there is sparse); mag-/gpu_benchmark"},
    {.name = "a100-40g",
     .title = "NVIDIA A100 SXM4 40 GB",
     .sms = 108,
     .compute_capability = 80,
     .memory_bytes = 40536 * MIB,
     .l2_bytes = 40 * MIB,
     .peak_bf16_flops = 312e12,
     .peak_bandwidth = 1555e9,
     .best_bf16_flops = 268e12,
     .best_bandwidth = 1380e9,
     .l2_bandwidth = 4.6e12,
     .link = "NVLink 3",
     .link_bandwidth = 300e9,
     .donor = "a100-80g",
     .source = "NVIDIA A100 data sheet; mag-/gpu_benchmark"},
    {.name = "a100-80g",
     .title = "NVIDIA A100 SXM4 80 GB",
     .sms = 108,
     .compute_capability = 80,
     .memory_bytes = 81251 * MIB,
     .l2_bytes = 40 * MIB,
     .peak_bf16_flops = 312e12,
     .peak_bandwidth = 2039e9,
     .best_bf16_flops = 268e12,
     .best_bandwidth = 1750e9,
     .l2_bandwidth = 4.6e12,
     .link = "NVLink 3",
     .link_bandwidth = 300e9,
     .profile = "a100-80g.csv",
     .source = "NVIDIA A100 data sheet; mag-/gpu_benchmark"},
    {.name = "h100",
     .title = "NVIDIA H100 SXM5 80 GB",
     .sms = 132,
     .compute_capability = 90,
     .memory_bytes = 81559 * MIB,
     .l2_bytes = 50 * MIB,
     .peak_bf16_flops = 989e12,
     .peak_bandwidth = 3350e9,
     .best_bf16_flops = 793e12,
     .best_bandwidth = 3000e9,
     .l2_bandwidth = 5.5e12,
     .link = "NVLink 4",
     .link_bandwidth = 450e9,
     .profile = "h100.csv",
     .source = "NVIDIA H100 data sheet; stas00 MAMF; QuACK (3.0 TB/s)"},
    {.name = "h200",
     .title = "NVIDIA H200 SXM 141 GB",
     .sms = 132,
     .compute_capability = 90,
     .memory_bytes = 143771 * MIB,
     .l2_bytes = 50 * MIB,
     .peak_bf16_flops = 989e12,
     .peak_bandwidth = 4800e9,
     .best_bf16_flops = 788e12,
     .best_bandwidth = 4266e9,
     .l2_bandwidth = 5.5e12,
     .link = "NVLink 4",
     .link_bandwidth = 450e9,
     .profile = "h200.csv",
     .donor = "h100",
     .source = "NVIDIA H200 data sheet; 8192^3 product and device copy measured 2026-11-21"},
    {.name = "cpu",
     .title = "the host's CPU (for --backend cpu)",
     .sms = 2,
     .memory_bytes = 8192 * MIB,
     .l2_bytes = 16 * MIB,
     .peak_bf16_flops = 192e9,
     .peak_bandwidth = 20e9,
     .best_bf16_flops = 100e9,
     .best_bandwidth = 15e9,
     .l2_bandwidth = 100e9,
     .link = "shared memory",
     .link_bandwidth = 10e9,
     .source = "assumed: 2 cores at 3 GHz with two 8-wide float FMAs a clock; one DDR4 channel"},
};
const size_t gpu_table_size = sizeof gpu_table / sizeof gpu_table[0];

const struct gpu *gpu_find(const char *name, struct err *err) {
    const char *names[sizeof gpu_table / sizeof gpu_table[0] + 1] = {NULL};
    for (size_t i = 0; i < gpu_table_size; i++) {
        if (strcmp(gpu_table[i].name, name) == 0) {
            return &gpu_table[i];
        }
        names[i] = gpu_table[i].name;
    }
    char hint[NAME_HINT_CHARS];
    name_hint(name, names, hint);
    err_usage(err, "unknown GPU '%s'%s (`unmask list gpus` prints them all)", name, hint);
    return NULL;
}
