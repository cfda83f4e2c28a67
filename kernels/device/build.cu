/* Which kernels these are. The Makefile includes kernels_id.h before this file. */
#include <cuda_runtime.h>

#include "kernels/device.h"
#include "kernels/device/device_cuda.cuh"

extern "C" const char unmask_cuda_build[] = KERNELS_BUILD;
const char kernels_code[] = KERNELS_CODE;

namespace {
__global__ void probe() {
}
} // namespace

cudaError_t kernels_have_code() {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(probe));
}
