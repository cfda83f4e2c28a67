/* The first half of a feed-forward layer in one kernel: the product with the gate and up weights
 * and SwiGLU on top, so that the [T, 2 F] activation never exists. */
#ifndef UNMASK_KERNELS_GATE_UP_H
#define UNMASK_KERNELS_GATE_UP_H

#include <cuda_runtime_api.h>

#include "kernels/calls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compiled for compute capability 9.0; cudaErrorNotSupported anywhere else, where the caller runs
 * a product and kernel_swiglu. No tokens is a success that does nothing.
 * Whatever width its tiles have, an output is one sum in the order of the channels: a row is the
 * same bits in any company (tests/gpu/test_company.c).
 * Measured at C 4096, F 12288 on one H200, 2026-11-21: 0.99 to 1.01 of torch.matmul's time alone
 * from 128 tokens on, 0.91 to 0.96 of it with kernel_swiglu; below, no slower than both by more
 * than 1 %. */
cudaError_t kernel_gate_up(const struct call_gate_up *call, cudaStream_t stream);

/* y = x w' + add on the same main loop; add is added before the one rounding. Here n_outputs, too,
 * is a multiple of 8. Measured as above: 0.95 to 1.02 of torch.matmul's time (0.98 to 1.07 with
 * add) from 1024 tokens on at (K, N) = (4096, 12288), (4096, 4096) and (12288, 4096). Where there
 * are fewer tiles of 128 by 128 than multiprocessors cuBLASLt is faster, up to twice. */
cudaError_t kernel_linear_wgmma(const struct call_linear *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
