/* The CUDA device: one stream, in which everything is done; memory, events and graphs that close
 * releases where the caller did not; and the table of all that it does. */
#include <new>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/attention/scratch.h"
#include "kernels/device/device_cuda.cuh"
#include "kernels/kernels.h"
#include "kernels/rules/code.h"

enum { ALIGN_BYTES = 512, LEAST_CAPABILITY = 80 };

/* What a caller was given; an event is a cudaEvent_t, a graph a cudaGraphExec_t. */
struct held {
    struct held *next;
    enum held_kind kind;
    void *what;
    int64_t bytes;
};

int device_status(struct device *device, cudaError_t status, const char *what) {
    if (status == cudaSuccess) {
        return DEVICE_OK;
    }
    cudaGetLastError(); /* else the next launch would report it again */
    if (!device->failed) {
        snprintf(device->trouble, sizeof device->trouble, "%s: %s", what,
                 cudaGetErrorString(status));
    }
    device->failed = true;
    return DEVICE_FAILED;
}

int device_refuse(struct device *device, const char *text) {
    if (device->failed) {
        return DEVICE_FAILED;
    }
    snprintf(device->trouble, sizeof device->trouble, "%s", text);
    return DEVICE_REFUSED;
}

bool capturing(struct device *device, const char *what) {
    if (device->capturing) {
        char text[DEVICE_TEXT_CHARS];
        snprintf(text, sizeof text, "%s while a graph is captured", what);
        device_refuse(device, text);
    }
    return device->capturing;
}

/* ---- what close releases ---- */

bool held_add(struct device *device, enum held_kind kind, void *what, int64_t bytes) {
    struct held *held = new (std::nothrow) struct held;
    if (held) {
        *held = {device->held, kind, what, bytes};
        device->held = held;
    }
    return held != nullptr;
}

static void held_free(struct device *device, const struct held *held) {
    switch (held->kind) {
    case HELD_MEMORY:
        device->allocated_bytes -= held->bytes;
        cudaFree(held->what);
        break;
    case HELD_HOST_MEMORY:
        cudaFreeHost(held->what);
        break;
    case HELD_EVENT:
        cudaEventDestroy(static_cast<cudaEvent_t>(held->what));
        break;
    case HELD_GRAPH:
        cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(held->what));
        break;
    }
}

/* Memory is released when the queue is done with it; CUDA does the same for the rest by itself.
 * While a graph is captured nothing can be: it stays until close. */
void held_release(struct device *device, enum held_kind kind, void *what) {
    if (!what || device->capturing) {
        return;
    }
    if (kind == HELD_MEMORY || kind == HELD_HOST_MEMORY) {
        device_status(device, cudaStreamSynchronize(device->stream), "cudaStreamSynchronize");
    }
    for (struct held **at = &device->held; *at; at = &(*at)->next) {
        struct held *held = *at;
        if (held->what == what && held->kind == kind) {
            *at = held->next;
            held_free(device, held);
            delete held;
            return;
        }
    }
}

/* ---- opening and closing ---- */

static int absent(char *text, const char *why) {
    snprintf(text, DEVICE_TEXT_CHARS, "%s", why);
    return DEVICE_ABSENT;
}

/* Said once, before it happens: the driver keeps what it compiled and starts fast afterwards. */
static void say_driver_compiles(int major, int minor) {
    static bool is_said;
    const int capability = 10 * major + minor;
    if (!is_said && !code_runs_on(kernels_code, capability)) {
        fprintf(stderr,
                "this build has no code for compute capability %d.%d: the driver compiles its "
                "kernels at the first start, which takes up to a minute; `make kernels "
                "CUDA_ARCH=%d%s` builds them where the CUDA toolkit knows this GPU\n",
                major, minor, capability, capability == 90 ? "a" : "");
        is_said = true;
    }
}

/* DEVICE_OK when there is a device of this index that can run the kernels; its monitor, either way.
 * These are loaded when
 * the first device is opened unless the environment has it otherwise: loading one later may wait
 * for the GPU, whose rank may wait for another. */
static int find_device(int32_t index, struct nvml **nvml, char *text) {
    int n_devices = 0, driver = 0, major = 0, minor = 0;
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    const cudaError_t status = cudaGetDeviceCount(&n_devices);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        return absent(text, "no NVIDIA driver");
    }
    if (status == cudaErrorInsufficientDriver) {
        snprintf(text, DEVICE_TEXT_CHARS,
                 "the driver is too old: it serves CUDA %d.%d, the kernels need %d.%d",
                 driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10);
        return DEVICE_ABSENT;
    }
    if (status == cudaErrorNoDevice || (status == cudaSuccess && n_devices == 0)) {
        return absent(text, "no CUDA device");
    }
    if (status != cudaSuccess) {
        return absent(text, cudaGetErrorString(status));
    }
    if (index < 0 || index >= n_devices) {
        snprintf(text, DEVICE_TEXT_CHARS, "there are %d, and number %d is asked for", n_devices,
                 (int)index + 1);
        return DEVICE_ABSENT;
    }
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) != cudaSuccess) {
        return absent(text, "the CUDA device does not answer");
    }
    if (10 * major + minor < LEAST_CAPABILITY) {
        snprintf(text, DEVICE_TEXT_CHARS, "the GPU's compute capability is %d.%d, less than %d.%d",
                 major, minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
        return DEVICE_ABSENT;
    }
    *nvml = nvml_open(index);
    say_driver_compiles(major, minor);
    if (cudaSetDevice(index) != cudaSuccess) {
        return absent(text, "the CUDA device does not answer");
    }
    const cudaError_t code = kernels_have_code();
    if (code != cudaSuccess) {
        cudaGetLastError();
        snprintf(text, DEVICE_TEXT_CHARS,
                 "the library's kernels do not run on compute capability %d.%d (%s): `make kernels "
                 "CUDA_ARCH=%d%s` builds them for it",
                 major, minor, cudaGetErrorString(code), 10 * major + minor,
                 10 * major + minor == 90 ? "a" : "");
        return DEVICE_ABSENT;
    }
    return DEVICE_OK;
}

static void cuda_close(struct device *device) {
    if (!device) {
        return;
    }
    if (device->capturing) {
        cudaGraph_t graph = nullptr;
        cudaStreamEndCapture(device->stream, &graph);
        if (graph) {
            cudaGraphDestroy(graph);
        }
        device->capturing = false;
    }
    if (device->stream) {
        cudaStreamSynchronize(device->stream);
    }
    device_swaps_close(device);
    while (device->held) {
        struct held *held = device->held;
        device->held = held->next;
        held_free(device, held);
        delete held;
    }
    device_ranks_close(device);
    device_mapped_close(device);
    linears_close(device->linears);
    head_close(device->head);
    cudaFree(device->block_scratch);
    if (device->stream) {
        cudaStreamDestroy(device->stream);
    }
    nvml_close(device->nvml);
    cudaGetLastError(); /* what could not be released was lost before */
    delete device;
}

/* The device's own stream and memory; what else the first of this process's devices took by then
 * (the context, libraries' code) is told by the monitor. */
static int open_parts(struct device *device) {
    int n_sms = 0;
    const int64_t used = nvml_used_bytes(device->nvml);
    const char *trouble = "";
    int status = device_status(device, cudaSetDevice(device->index), "cudaSetDevice");
    if (status == DEVICE_OK) {
        status =
            device_status(device, cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking),
                          "cudaStreamCreate");
    }
    if (status == DEVICE_OK) {
        status = device_status(
            device, cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device->index),
            "cudaDeviceGetAttribute");
    }
    if (status == DEVICE_OK) {
        status = device_status(device, head_open(&device->head), "cublasLtCreate");
    }
    if (status != DEVICE_OK) {
        return status;
    }
    device->block_scratch_bytes = block_attention_scratch_bytes(n_sms);
    status = device_status(device,
                           cudaMalloc(&device->block_scratch, (size_t)device->block_scratch_bytes),
                           "cudaMalloc of block attention's scratch");
    if (status != DEVICE_OK) {
        return status;
    }
    device->linears = linears_open(&trouble);
    if (!device->linears) {
        device_refuse(device, trouble);
        return DEVICE_FAILED;
    }
    status = device_status(device,
                           cudaMemsetAsync(device->block_scratch, 0,
                                           (size_t)device->block_scratch_bytes, device->stream),
                           "cudaMemsetAsync");
    if (status == DEVICE_OK) {
        status =
            device_status(device, cudaStreamSynchronize(device->stream), "cudaStreamSynchronize");
    }
    const int64_t own = device->block_scratch_bytes + linears_bytes(device->linears);
    const int64_t context = nvml_used_bytes(device->nvml) - used - own;
    device->context_bytes = used > 0 && context > 0 ? context : 0;
    return status;
}

static int cuda_open(int32_t index, enum kernel_dtype dtype, struct device **out, char *text) {
    *out = nullptr;
    if (dtype != KERNEL_BF16) {
        snprintf(text, DEVICE_TEXT_CHARS, "the GPU's kernels take bf16 only");
        return DEVICE_REFUSED;
    }
    struct nvml *nvml = nullptr;
    int status = find_device(index, &nvml, text);
    if (status != DEVICE_OK) {
        nvml_close(nvml);
        return status;
    }
    struct device *device = new (std::nothrow) struct device();
    if (!device) {
        nvml_close(nvml);
        snprintf(text, DEVICE_TEXT_CHARS, "no host memory");
        return DEVICE_NO_MEMORY;
    }
    device->index = index;
    device->nvml = nvml;
    status = open_parts(device);
    if (status != DEVICE_OK) {
        snprintf(text, DEVICE_TEXT_CHARS, "%s", device->trouble);
        cuda_close(device);
        return status;
    }
    *out = device;
    return DEVICE_OK;
}

static int cuda_enter(struct device *device) {
    return device_status(device, cudaSetDevice(device->index), "cudaSetDevice");
}

static const char *cuda_trouble(const struct device *device) {
    return device->trouble;
}

static int cuda_facts(struct device *device, struct device_facts *out) {
    cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    *out = {};
    int status = device_status(device, cudaGetDeviceProperties(&properties, device->index),
                               "cudaGetDeviceProperties");
    if (status == DEVICE_OK) {
        status = device_status(device, cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    }
    if (status == DEVICE_OK) {
        snprintf(out->name, sizeof out->name, "%s", properties.name);
        out->memory_bytes = (int64_t)total_bytes;
        out->free_bytes = (int64_t)free_bytes;
        out->l2_bytes = properties.l2CacheSize;
        out->n_sms = properties.multiProcessorCount;
        out->capability = 10 * properties.major + properties.minor;
        if (cudaDeviceGetPCIBusId(out->bus, sizeof out->bus, device->index) != cudaSuccess) {
            cudaGetLastError();
            out->bus[0] = '\0';
        }
    }
    return status;
}

static void cuda_vitals(struct device *device, struct device_vitals *out) {
    nvml_vitals(device->nvml, out);
}

static void cuda_surroundings(struct device *device, struct device_surroundings *out) {
    int has_limit = 0;
    nvml_surroundings(device->nvml, out);
    if (cudaDeviceGetAttribute(&has_limit, cudaDevAttrKernelExecTimeout, device->index) !=
        cudaSuccess) {
        cudaGetLastError();
    }
    out->has_time_limit = has_limit != 0;
}

/* ---- memory ---- */

static int cuda_allocate(struct device *device, int64_t bytes, void **out) {
    *out = nullptr;
    if (capturing(device, "allocate") || bytes < 0) {
        return bytes < 0 ? device_refuse(device, "allocate: a negative size") : DEVICE_REFUSED;
    }
    if (bytes == 0) {
        return DEVICE_OK;
    }
    const cudaError_t status = cudaMalloc(out, (size_t)bytes);
    if (status == cudaErrorMemoryAllocation) { /* nothing is broken by it */
        cudaGetLastError();
        snprintf(device->trouble, sizeof device->trouble, "cudaMalloc: %s",
                 cudaGetErrorString(status));
        return DEVICE_NO_MEMORY;
    }
    if (status != cudaSuccess) {
        return device_status(device, status, "cudaMalloc");
    }
    if (reinterpret_cast<uintptr_t>(*out) % ALIGN_BYTES != 0 ||
        !held_add(device, HELD_MEMORY, *out, bytes)) {
        cudaFree(*out);
        *out = nullptr;
        snprintf(device->trouble, sizeof device->trouble, "no aligned or no host memory");
        return DEVICE_NO_MEMORY;
    }
    device->allocated_bytes += bytes;
    return DEVICE_OK;
}

static void cuda_release(struct device *device, void *memory) {
    held_release(device, HELD_MEMORY, memory);
}

static int64_t cuda_allocated_bytes(const struct device *device) {
    return device->allocated_bytes;
}

static int64_t cuda_own_bytes(const struct device *device) {
    return device->context_bytes + device->block_scratch_bytes + linears_bytes(device->linears) +
           device_ranks_bytes(device);
}

static int cuda_allocate_host(struct device *device, int64_t bytes, void **out) {
    *out = nullptr;
    if (capturing(device, "allocate_host") || bytes < 0) {
        return bytes < 0 ? device_refuse(device, "allocate_host: a negative size") : DEVICE_REFUSED;
    }
    if (bytes == 0) {
        return DEVICE_OK;
    }
    const cudaError_t status = cudaMallocHost(out, (size_t)bytes);
    if (status != cudaSuccess && status != cudaErrorMemoryAllocation) {
        return device_status(device, status, "cudaMallocHost");
    }
    if (status != cudaSuccess || !held_add(device, HELD_HOST_MEMORY, *out, bytes)) {
        cudaGetLastError();
        cudaFreeHost(*out);
        *out = nullptr;
        snprintf(device->trouble, sizeof device->trouble, "cudaMallocHost: out of memory");
        return DEVICE_NO_MEMORY;
    }
    return DEVICE_OK;
}

static void cuda_release_host(struct device *device, void *memory) {
    held_release(device, HELD_HOST_MEMORY, memory);
}

void *device_spare(const struct device *device, int64_t *bytes) {
    *bytes = (device->block_scratch_bytes - ATTENTION_COUNTER_BYTES) / ALIGN_BYTES * ALIGN_BYTES;
    return static_cast<char *>(device->block_scratch) + ATTENTION_COUNTER_BYTES;
}

static void cuda_batch_invariant(struct device *device, bool on) {
    device->invariant = on;
    linears_set_invariant(device->linears, on);
}

/* In the order of the struct, as device_cpu's. */
extern "C" const struct device_table unmask_device_cuda = {
    .abi = DEVICE_ABI,
    .size = sizeof(struct device_table),
    .name = "cuda",
    .adds_in_products = true,
    .open = cuda_open,
    .enter = cuda_enter,
    .close = cuda_close,
    .trouble = cuda_trouble,
    .facts = cuda_facts,
    .vitals = cuda_vitals,
    .surroundings = cuda_surroundings,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .allocated_bytes = cuda_allocated_bytes,
    .own_bytes = cuda_own_bytes,
    .allocate_host = cuda_allocate_host,
    .release_host = cuda_release_host,
    .granule = device_granule,
    .range_open = device_range_open,
    .range_close = device_range_close,
    .handle_open = device_handle_open,
    .handle_close = device_handle_close,
    .map = device_map,
    .allow = device_allow,
    .unmap = device_unmap,
    .upload = device_upload,
    .download = device_download,
    .copy = device_copy,
    .clear = device_clear,
    .finish = device_finish,
    .swap_out = device_swap_out,
    .swap_in = device_swap_in,
    .swap_wait = device_swap_wait,
    .event_open = device_event_open,
    .event_close = device_event_close,
    .event_record = device_event_record,
    .event_reached = device_event_reached,
    .event_wait = device_event_wait,
    .event_elapsed = device_event_elapsed,
    .capture_begin = device_capture_begin,
    .capture_end = device_capture_end,
    .graph_launch = device_graph_launch,
    .graph_close = device_graph_close,
    .batch_invariant = cuda_batch_invariant,
    .linear_chosen = device_linear_chosen,
    .ranks_open = device_ranks_open,
    .ranks_break = device_ranks_break,
#define KERNEL(name, cuda, cpu) .name = device_##name,
#define RANK_KERNEL(...)        KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"
};
