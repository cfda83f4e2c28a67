/* A borrowed GPU in the guise of another, for tests: UNMASK_GUISE=rtx4090|l40s|rtx3090|l4.
 *
 * `make guise` links the kernels and the GPU tests with this file before the CUDA runtime, so that
 * nothing of it is in the product. The device then says that it is the other card: its name,
 * compute capability, multiprocessors, memory less what a display takes, L2 cache, shared memory of
 * a block (what a launch asks for beyond it fails, its static part counted), no peers, and with
 * UNMASK_GUISE_ENERGY=off no energy counter, with UNMASK_GUISE_NCCL=off no NCCL. UNMASK_GUISE_SMS=N
 * lets streams run on N multiprocessors (a green context), which makes it as slow as such a card.
 * Clocks and settings of the device are not touched. What this cannot show: cuBLASLt's choices for
 * the other card, its clocks, and caches that are larger than this device's. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As their drivers print them; memory as nvidia-smi does. */
struct guise {
    const char *word, *name;
    int major, minor, sms, memory_mib, l2_mib;
};

static const struct guise guises[] = {
    {"rtx4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 24564, 72},
    {"l40s", "NVIDIA L40S", 8, 9, 142, 46068, 96},
    {"rtx3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 24576, 6},
    {"l4", "NVIDIA L4", 8, 9, 58, 23034, 48},
};

/* CUDA C++ programming guide, technical specifications for 8.6 and 8.9. */
enum { BLOCK_SHARED = 99 << 10, SM_SHARED = 100 << 10 };
/* What the driver keeps for itself, the context, and a display with a browser. */
enum { DRIVER_MIB = 484, CONTEXT_MIB = 500, DISPLAY_MIB = 600 };
static const int64_t MIB = 1 << 20;

static const struct guise *guise(void) {
    static const struct guise *found;
    static bool is_known;
    const char *word = getenv("UNMASK_GUISE");
    for (size_t i = 0; !is_known && word != NULL && i < sizeof guises / sizeof guises[0]; i++) {
        found = strcmp(guises[i].word, word) == 0 ? &guises[i] : found;
    }
    if (!is_known && word != NULL && found == NULL) {
        fprintf(stderr, "UNMASK_GUISE: no guise is called '%s'\n", word);
        exit(2);
    }
    is_known = true;
    return found;
}

/* ---- what it says of itself ---- */

#if CUDART_VERSION >= 13000
#define PROPERTIES(prefix) prefix##cudaGetDeviceProperties
#else
#define PROPERTIES(prefix) prefix##cudaGetDeviceProperties_v2
#endif

cudaError_t PROPERTIES(__real_)(struct cudaDeviceProp *out, int device);
cudaError_t PROPERTIES(__wrap_)(struct cudaDeviceProp *out, int device);
cudaError_t __real_cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr what, int device);
cudaError_t __wrap_cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr what, int device);

cudaError_t PROPERTIES(__wrap_)(struct cudaDeviceProp *out, int device) {
    const struct guise *g = guise();
    cudaError_t status = PROPERTIES(__real_)(out, device);
    if (status == cudaSuccess && g != NULL) {
        snprintf(out->name, sizeof out->name, "%s", g->name);
        out->major = g->major;
        out->minor = g->minor;
        out->multiProcessorCount = g->sms;
        out->totalGlobalMem = (size_t)((g->memory_mib - DRIVER_MIB) * MIB);
        out->l2CacheSize = (int)(g->l2_mib * MIB);
        out->sharedMemPerBlockOptin = BLOCK_SHARED;
        out->sharedMemPerMultiprocessor = SM_SHARED;
    }
    return status;
}

cudaError_t __wrap_cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr what, int device) {
    const struct guise *g = guise();
    cudaError_t status = __real_cudaDeviceGetAttribute(out, what, device);
    if (status != cudaSuccess || g == NULL) {
        return status;
    }
    switch (what) {
    case cudaDevAttrComputeCapabilityMajor:
        *out = g->major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *out = g->minor;
        break;
    case cudaDevAttrMultiProcessorCount:
        *out = g->sms;
        break;
    case cudaDevAttrL2CacheSize:
        *out = (int)(g->l2_mib * MIB);
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *out = BLOCK_SHARED;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *out = SM_SHARED;
        break;
    default:
        break;
    }
    return status;
}

/* ---- memory ---- */

cudaError_t __real_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t __wrap_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t __real_cudaMalloc(void **out, size_t size);
cudaError_t __wrap_cudaMalloc(void **out, size_t size);

enum { MOST_DEVICES = 16 };

/* Free memory of a device before this process took any, which the first question tells. */
static int64_t first_free(int64_t now) {
    static int64_t first[MOST_DEVICES];
    int device = 0;
    (void)cudaGetDevice(&device);
    if (first[device] == 0) {
        first[device] = now;
    }
    return first[device];
}

cudaError_t __wrap_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    const struct guise *g = guise();
    cudaError_t status = __real_cudaMemGetInfo(free_bytes, total_bytes);
    if (status == cudaSuccess && g != NULL) {
        const int64_t now = (int64_t)*free_bytes, taken = first_free(now) - now;
        const int64_t total = (g->memory_mib - DRIVER_MIB) * MIB;
        const int64_t left = total - (CONTEXT_MIB + DISPLAY_MIB) * MIB - taken;
        *total_bytes = (size_t)total;
        *free_bytes = left < 0 ? 0 : left < now ? (size_t)left : (size_t)now;
    }
    return status;
}

static bool has_room(size_t size) {
    size_t free_bytes = 0, total_bytes = 0;
    return guise() == NULL ||
           (__wrap_cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess && size <= free_bytes);
}

cudaError_t __wrap_cudaMalloc(void **out, size_t size) {
    return has_room(size) ? __real_cudaMalloc(out, size) : cudaErrorMemoryAllocation;
}

/* Memory without addresses is the driver's. */
typedef CUresult create_function(CUmemGenericAllocationHandle *, size_t,
                                 const CUmemAllocationProp *, unsigned long long);
static create_function *real_create;

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
                       const CUmemAllocationProp *prop, unsigned long long flags) {
    return has_room(size) ? real_create(handle, size, prop, flags) : CUDA_ERROR_OUT_OF_MEMORY;
}

cudaError_t __real_cudaGetDriverEntryPointByVersion(const char *symbol, void **out,
                                                    unsigned version, unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result);
cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char *symbol, void **out,
                                                    unsigned version, unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result);

cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char *symbol, void **out,
                                                    unsigned version, unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result) {
    cudaError_t status =
        __real_cudaGetDriverEntryPointByVersion(symbol, out, version, flags, result);
    if (status == cudaSuccess && *out != NULL && strcmp(symbol, "cuMemCreate") == 0) {
        memcpy(&real_create, out, sizeof real_create);
        create_function *ours = create;
        memcpy(out, &ours, sizeof ours);
    }
    return status;
}

/* ---- launches ---- */

cudaError_t __real_cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what, int value);
cudaError_t __wrap_cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what, int value);
cudaError_t __real_cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream);
cudaError_t __wrap_cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream);
cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream);
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                       void **arguments);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                       void **arguments);

/* Static shared memory of a kernel, which is asked for once. */
static size_t static_shared(const void *kernel) {
    enum { SLOTS = 1024 };
    static const void *known[SLOTS];
    static size_t bytes[SLOTS];
    const size_t slot = (size_t)(uintptr_t)kernel / 8 % SLOTS;
    struct cudaFuncAttributes attributes;
    if (known[slot] != kernel) {
        bytes[slot] = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess
                          ? attributes.sharedSizeBytes
                          : 0;
        known[slot] = kernel;
    }
    return bytes[slot];
}

static bool fits(const void *kernel, size_t dynamic) {
    if (guise() == NULL || static_shared(kernel) + dynamic <= BLOCK_SHARED) {
        return true;
    }
    fprintf(stderr, "guise: a launch asks for %zu + %zu bytes of shared memory\n",
            static_shared(kernel), dynamic);
    return false;
}

cudaError_t __wrap_cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what,
                                        int value) {
    const bool is_size = what == cudaFuncAttributeMaxDynamicSharedMemorySize;
    return !is_size || fits(kernel, (size_t)value)
               ? __real_cudaFuncSetAttribute(kernel, what, value)
               : cudaErrorInvalidValue;
}

cudaError_t __wrap_cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream) {
    return fits(kernel, shared)
               ? __real_cudaLaunchKernel(kernel, grid, block, arguments, shared, stream)
               : cudaErrorInvalidValue;
}

cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream) {
    return fits((const void *)kernel, shared)
               ? __real___cudaLaunchKernel(kernel, grid, block, arguments, shared, stream)
               : cudaErrorInvalidValue;
}

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                       void **arguments) {
    return fits(kernel, config->dynamicSmemBytes)
               ? __real_cudaLaunchKernelExC(config, kernel, arguments)
               : cudaErrorInvalidValue;
}

/* ---- peers, energy ---- */

cudaError_t __real_cudaDeviceCanAccessPeer(int *out, int device, int peer);
cudaError_t __wrap_cudaDeviceCanAccessPeer(int *out, int device, int peer);
cudaError_t __real_cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t __wrap_cudaDeviceEnablePeerAccess(int peer, unsigned flags);
void *__real_dlsym(void *library, const char *symbol);
void *__wrap_dlsym(void *library, const char *symbol);
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

cudaError_t __wrap_cudaDeviceCanAccessPeer(int *out, int device, int peer) {
    cudaError_t status = __real_cudaDeviceCanAccessPeer(out, device, peer);
    *out = guise() != NULL ? 0 : *out;
    return status;
}

cudaError_t __wrap_cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    return guise() != NULL ? cudaErrorPeerAccessUnsupported
                           : __real_cudaDeviceEnablePeerAccess(peer, flags);
}

void *__wrap_dlsym(void *library, const char *symbol) {
    const char *energy = getenv("UNMASK_GUISE_ENERGY");
    const bool hides = guise() != NULL && energy != NULL && strcmp(energy, "off") == 0 &&
                       strcmp(symbol, "nvmlDeviceGetTotalEnergyConsumption") == 0;
    return hides ? NULL : __real_dlsym(library, symbol);
}

void *__wrap_dlopen(const char *name, int flags) {
    const char *nccl = getenv("UNMASK_GUISE_NCCL");
    const bool hides = guise() != NULL && nccl != NULL && strcmp(nccl, "off") == 0 &&
                       name != NULL && strstr(name, "libnccl") != NULL;
    return hides ? NULL : __real_dlopen(name, flags);
}

/* ---- as slow as it ---- */

cudaError_t __real_cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);

#define DRIVER(name)                                                                               \
    static CUresult (*name##_)();                                                                  \
    if (name##_ == NULL) {                                                                         \
        void *found = NULL;                                                                        \
        enum cudaDriverEntryPointQueryResult result;                                               \
        (void)__real_cudaGetDriverEntryPointByVersion(#name, &found, 12050, cudaEnableDefault,     \
                                                      &result);                                    \
        if (found == NULL) {                                                                       \
            fprintf(stderr, "guise: the driver has no " #name "\n");                               \
            return cudaErrorNotSupported;                                                          \
        }                                                                                          \
        memcpy(&name##_, &found, sizeof found);                                                    \
    }

static bool works(const char *what, CUresult status) {
    if (status != CUDA_SUCCESS) {
        fprintf(stderr, "guise: %s: CUDA driver status %d\n", what, (int)status);
    }
    return status == CUDA_SUCCESS;
}

/* A stream on the first `sms` multiprocessors of the current device, in its primary context. */
static cudaError_t narrow_stream(cudaStream_t *out, unsigned sms) {
    static CUgreenCtx contexts[MOST_DEVICES];
    int device = 0;
    DRIVER(cuDeviceGetDevResource)
    DRIVER(cuDevSmResourceSplitByCount)
    DRIVER(cuDevResourceGenerateDesc)
    DRIVER(cuGreenCtxCreate)
    DRIVER(cuGreenCtxStreamCreate)
    (void)cudaFree(NULL); /* the primary context is there from now on */
    if (cudaGetDevice(&device) != cudaSuccess) {
        return cudaErrorInvalidDevice;
    }
    if (contexts[device] == NULL) {
        CUdevResource whole, part, rest;
        CUdevResourceDesc description;
        unsigned n_groups = 1;
        if (!works("asking for multiprocessors",
                   cuDeviceGetDevResource_(device, &whole, CU_DEV_RESOURCE_TYPE_SM)) ||
            !works("splitting multiprocessors",
                   cuDevSmResourceSplitByCount_(&part, &n_groups, &whole, &rest, 0u, sms)) ||
            !works("describing them", cuDevResourceGenerateDesc_(&description, &part, 1u)) ||
            !works("a green context", cuGreenCtxCreate_(&contexts[device], description, device,
                                                        (unsigned)CU_GREEN_CTX_DEFAULT_STREAM))) {
            return cudaErrorNotSupported;
        }
        fprintf(stderr, "guise: streams run on %u multiprocessors\n", part.sm.smCount);
    }
    return works(
               "a stream of a green context",
               cuGreenCtxStreamCreate_(out, contexts[device], (unsigned)CU_STREAM_NON_BLOCKING, 0))
               ? cudaSuccess
               : cudaErrorNotSupported;
}

cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    const char *sms = getenv("UNMASK_GUISE_SMS");
    return guise() != NULL && sms != NULL ? narrow_stream(out, (unsigned)atoi(sms))
                                          : __real_cudaStreamCreateWithFlags(out, flags);
}
