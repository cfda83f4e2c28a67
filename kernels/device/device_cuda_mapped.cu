/* Mapped memory, by the driver's virtual memory management. */
#include "kernels/device/device_cuda.cuh"
#include "kernels/driver_function.cuh"

#include <cuda.h>
#include <stdio.h>

static struct {
    decltype(&cuDeviceGetAttribute) attribute;
    decltype(&cuMemGetAllocationGranularity) granularity;
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemAddressFree) unreserve;
    decltype(&cuMemCreate) create;
    decltype(&cuMemRelease) release;
    decltype(&cuMemMap) map;
    decltype(&cuMemSetAccess) allow;
    decltype(&cuMemUnmap) unmap;
} driver;

static bool find_all() {
    return driver_function("cuDeviceGetAttribute", &driver.attribute) &&
           driver_function("cuMemGetAllocationGranularity", &driver.granularity) &&
           driver_function("cuMemAddressReserve", &driver.reserve) &&
           driver_function("cuMemAddressFree", &driver.unreserve) &&
           driver_function("cuMemCreate", &driver.create) &&
           driver_function("cuMemRelease", &driver.release) &&
           driver_function("cuMemMap", &driver.map) &&
           driver_function("cuMemSetAccess", &driver.allow) &&
           driver_function("cuMemUnmap", &driver.unmap);
}

/* The driver's errors have the runtime's numbers. A shortage breaks nothing. */
static int driver_status(struct device *device, CUresult result, const char *what) {
    const cudaError_t status = static_cast<cudaError_t>(result);
    if (status == cudaErrorMemoryAllocation) {
        snprintf(device->trouble, sizeof device->trouble, "%s: %s", what,
                 cudaGetErrorString(status));
        return DEVICE_NO_MEMORY;
    }
    return device_status(device, status, what);
}

static int no_host_memory(struct device *device) {
    snprintf(device->trouble, sizeof device->trouble, "no host memory");
    return DEVICE_NO_MEMORY;
}

static CUmemLocation own_memory(const struct device *device) {
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device->index;
    return location;
}

static CUmemAllocationProp properties(const struct device *device) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = own_memory(device);
    return properties;
}

/* Whether the device can do all this at all, asked once, and may just now. */
static int check_driver(struct device *device) {
    int is_supported = 0;
    size_t granule = 0;
    if (device->capturing) {
        return device_refuse(device, "memory is mapped while a graph is captured");
    }
    if (device->mapped.granule_bytes > 0) {
        return DEVICE_OK;
    }
    if (!find_all() ||
        driver.attribute(&is_supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                         device->index) != CUDA_SUCCESS ||
        !is_supported) {
        cudaGetLastError(); /* else the next launch would report it */
        return device_refuse(device, "the driver has no virtual memory management");
    }
    const CUmemAllocationProp wanted = properties(device);
    const int status = driver_status(
        device, driver.granularity(&granule, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity");
    device->mapped.granule_bytes = status == DEVICE_OK ? (int64_t)granule : 0;
    return status;
}

static int check_size(struct device *device, int64_t bytes) {
    const int status = check_driver(device);
    const char *refused =
        status == DEVICE_OK ? mapped_refuses_size(&device->mapped, bytes) : nullptr;
    return refused ? device_refuse(device, refused) : status;
}

static CUdeviceptr address(const void *at) {
    return reinterpret_cast<CUdeviceptr>(at);
}

int device_granule(struct device *device, int64_t *bytes) {
    const int status = check_driver(device);
    *bytes = device->mapped.granule_bytes;
    return status;
}

int device_range_open(struct device *device, int64_t bytes, void **out) {
    CUdeviceptr at = 0;
    *out = nullptr;
    int status = check_size(device, bytes);
    if (status != DEVICE_OK) {
        return status;
    }
    struct mapped_range *range = mapped_add_range(&device->mapped, bytes);
    if (!range) {
        return no_host_memory(device);
    }
    status =
        driver_status(device, driver.reserve(&at, (size_t)bytes, 0, 0, 0), "cuMemAddressReserve");
    if (status != DEVICE_OK) {
        mapped_forget_range(&device->mapped, range);
        return status;
    }
    range->at = reinterpret_cast<unsigned char *>(at);
    *out = range->at;
    return DEVICE_OK;
}

int device_unmap(struct device *device, struct device_handle *handle) {
    int status = check_driver(device);
    if (status == DEVICE_OK && handle->at) {
        status = driver_status(device, driver.unmap(address(handle->at), (size_t)handle->bytes),
                               "cuMemUnmap");
    }
    handle->at = status == DEVICE_OK ? nullptr : handle->at;
    return status;
}

void device_range_close(struct device *device, void *at) {
    struct mapped_range *range = at ? mapped_find_range(&device->mapped, at) : nullptr;
    if (!range || device->capturing) {
        return;
    }
    for (struct device_handle *h = device->mapped.handles; h; h = h->next) {
        if (h->at >= range->at && h->at < range->at + range->bytes) {
            device_unmap(device, h);
        }
    }
    driver_status(device, driver.unreserve(address(range->at), (size_t)range->bytes),
                  "cuMemAddressFree");
    mapped_forget_range(&device->mapped, range);
}

int device_handle_open(struct device *device, int64_t bytes, struct device_handle **out) {
    CUmemGenericAllocationHandle memory = 0;
    *out = nullptr;
    int status = check_size(device, bytes);
    if (status != DEVICE_OK) {
        return status;
    }
    struct device_handle *handle = mapped_add_handle(&device->mapped, bytes);
    if (!handle) {
        return no_host_memory(device);
    }
    const CUmemAllocationProp wanted = properties(device);
    status =
        driver_status(device, driver.create(&memory, (size_t)bytes, &wanted, 0), "cuMemCreate");
    if (status != DEVICE_OK) {
        mapped_forget_handle(&device->mapped, handle);
        return status;
    }
    handle->memory = memory;
    device->allocated_bytes += bytes;
    *out = handle;
    return DEVICE_OK;
}

void device_handle_close(struct device *device, struct device_handle *handle) {
    if (!handle || device->capturing) {
        return;
    }
    device_status(device, cudaStreamSynchronize(device->stream), "cudaStreamSynchronize");
    device_unmap(device, handle);
    driver_status(device, driver.release(handle->memory), "cuMemRelease");
    device->allocated_bytes -= handle->bytes;
    mapped_forget_handle(&device->mapped, handle);
}

int device_map(struct device *device, void *at, struct device_handle *handle) {
    int status = check_driver(device);
    const char *refused =
        status == DEVICE_OK ? mapped_refuses_map(&device->mapped, handle, at) : nullptr;
    if (refused) {
        return device_refuse(device, refused);
    }
    if (status == DEVICE_OK) {
        status = driver_status(device,
                               driver.map(address(at), (size_t)handle->bytes, 0, handle->memory, 0),
                               "cuMemMap");
    }
    handle->at = status == DEVICE_OK ? static_cast<unsigned char *>(at) : handle->at;
    return status;
}

int device_allow(struct device *device, void *at, int64_t bytes) {
    const int status = check_driver(device);
    const char *refused =
        status == DEVICE_OK ? mapped_refuses_allow(&device->mapped, at, bytes) : nullptr;
    if (refused) {
        return device_refuse(device, refused);
    }
    CUmemAccessDesc access = {};
    access.location = own_memory(device);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return status == DEVICE_OK
               ? driver_status(device, driver.allow(address(at), (size_t)bytes, &access, 1),
                               "cuMemSetAccess")
               : status;
}

void device_mapped_close(struct device *device) {
    while (device->mapped.handles) {
        device_handle_close(device, device->mapped.handles);
    }
    while (device->mapped.ranges) {
        device_range_close(device, device->mapped.ranges->at);
    }
}
