/* How kernels follow one another. On sm_90a the next kernel's blocks begin while the one before
 * still runs (programmatic dependent launch; CUDA C++ Programming Guide), and wait there: in a
 * captured step a small kernel then costs 0.3 to 0.7 microseconds less, and a product of few
 * tokens, which fetches weights meanwhile, 1 to 2 less (one H200, 2026-11-22).
 *
 * Every kernel that `launch` launches begins with dependencies_wait and dependents_launch, in this
 * order, in all its threads but those that only fetch for the others (few_linear.cu), which need
 * but wait: one thread of a block is enough for dependents_launch. Before the wait it touches
 * nothing but its own shared memory and weights: what it reads there must not have been written by
 * the kernel right before it. Whatever was written earlier is there, because that kernel let this
 * one begin only after its own wait. Without dependents_launch the next kernel begins when all
 * blocks have ended.
 * Kernels launched otherwise, copies and products of cuBLASLt wait for all that was launched before
 * them, and are waited for. */
#ifndef UNMASK_KERNELS_LAUNCH_CUH
#define UNMASK_KERNELS_LAUNCH_CUH

#include <cuda_runtime.h>

#include "kernels/hopper.cuh"

/* All that the kernels before have written is there. */
static __device__ __forceinline__ void dependencies_wait() {
#if HOPPER_DEVICE
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/* The next kernel in the stream may begin once all blocks have said this or ended. */
static __device__ __forceinline__ void dependents_launch() {
#if HOPPER_DEVICE
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

/* An attribute of the current device. */
static inline cudaError_t device_attribute(enum cudaDeviceAttr what, int *out) {
    int device = 0;
    const cudaError_t status = cudaGetDevice(&device);
    return status == cudaSuccess ? cudaDeviceGetAttribute(out, what, device) : status;
}

static inline cudaError_t multiprocessors(int *n_sms) {
    return device_attribute(cudaDevAttrMultiProcessorCount, n_sms);
}

/* Lets a kernel be launched with this much shared memory. */
template <class KERNEL> static inline cudaError_t shared_allow(KERNEL kernel, int bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

/* In clusters of `cluster` blocks; 1: none. */
template <class... Parameters, class... Arguments>
static inline cudaError_t launch_clusters(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                          int cluster, size_t shared_bytes, cudaStream_t stream,
                                          const Arguments &...arguments) {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (hopper_device()) {
        attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[0].val.programmaticStreamSerializationAllowed = 1;
        config.numAttrs = 1;
    }
    if (cluster > 1) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeClusterDimension;
        attribute->val.clusterDim.x = (unsigned)cluster;
        attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    }
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class... Parameters, class... Arguments>
static inline cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                 size_t shared_bytes, cudaStream_t stream,
                                 const Arguments &...arguments) {
    return launch_clusters(kernel, grid, block, 1, shared_bytes, stream, arguments...);
}

#endif
