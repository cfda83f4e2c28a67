/* Functions of the driver, found through the runtime so that the library does not link the driver.
 */
#ifndef UNMASK_KERNELS_DRIVER_FUNCTION_CUH
#define UNMASK_KERNELS_DRIVER_FUNCTION_CUH

#include <cuda_runtime_api.h>

/* The function of this name in version 12.0 of the driver's interface; NULL where it has none. The
 * runtimes before 12.5 ask in their own version, in which these functions are the same. */
template <typename Function> static bool driver_function(const char *name, Function *out) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result);
#endif
    const bool found = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
    *out = found ? reinterpret_cast<Function>(function) : nullptr;
    return found;
}

#endif
