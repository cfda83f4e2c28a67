/* The CUDA device: one stream, in which everything is done; memory, marks (events) and recordings
 * (graphs) that close releases where the caller did not; and the kernels. */
#include <new>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/attention/scratch.h"
#include <cuda_bf16.h>

#include "kernels/device/device_cuda.cuh"
#include "kernels/kernels.h"

enum { ALIGN_BYTES = 512, LEAST_CAPABILITY = 80 };

enum held_kind { HELD_MEMORY, HELD_HOST_MEMORY, HELD_MARK, HELD_RECORDING };

/* What a caller was given; a mark is a cudaEvent_t, a recording a cudaGraphExec_t. */
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

static int kernel_status(struct device *device, cudaError_t status, const char *what) {
    if (status == cudaErrorInvalidValue) {
        char text[DEVICE_TEXT_CHARS];
        snprintf(text, sizeof text, "%s: a call that calls.h does not promise", what);
        return device_refuse(device, text);
    }
    return device_status(device, status, what);
}

/* Whether something that cannot be recorded was asked for while a recording is made. */
static bool recording(struct device *device, const char *what) {
    if (device->recording) {
        char text[DEVICE_TEXT_CHARS];
        snprintf(text, sizeof text, "%s in the midst of a recording", what);
        device_refuse(device, text);
    }
    return device->recording;
}

/* ---- what close releases ---- */

static bool held_add(struct device *device, enum held_kind kind, void *what, int64_t bytes) {
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
    case HELD_MARK:
        cudaEventDestroy(static_cast<cudaEvent_t>(held->what));
        break;
    case HELD_RECORDING:
        cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(held->what));
        break;
    }
}

/* Memory is released when the queue is done with it; CUDA does the same for the rest by itself.
 * In the midst of a recording nothing can be: it stays until close. */
static void held_release(struct device *device, enum held_kind kind, void *what) {
    if (!what || device->recording) {
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

/* DEVICE_OK when there is a device of this index that can run the kernels. These are loaded when
 * the first device is opened unless the environment has it otherwise: loading one later may wait
 * for the GPU, whose rank may wait for another. */
static int find_device(int32_t index, char *text) {
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
    return DEVICE_OK;
}

static void cuda_close(struct device *device) {
    if (!device) {
        return;
    }
    if (device->recording) {
        cudaGraph_t graph = nullptr;
        cudaStreamEndCapture(device->stream, &graph);
        if (graph) {
            cudaGraphDestroy(graph);
        }
        device->recording = false;
    }
    if (device->stream) {
        cudaStreamSynchronize(device->stream);
    }
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
    int status = find_device(index, text);
    if (status != DEVICE_OK) {
        return status;
    }
    struct device *device = new (std::nothrow) struct device();
    if (!device) {
        snprintf(text, DEVICE_TEXT_CHARS, "no host memory");
        return DEVICE_NO_MEMORY;
    }
    device->index = index;
    device->nvml = nvml_open(device->index);
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
    }
    return status;
}

static void cuda_vitals(struct device *device, struct device_vitals *out) {
    nvml_vitals(device->nvml, out);
}

/* ---- memory ---- */

static int cuda_allocate(struct device *device, int64_t bytes, void **out) {
    *out = nullptr;
    if (recording(device, "allocate") || bytes < 0) {
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
    if (recording(device, "allocate_host") || bytes < 0) {
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

static int cuda_upload(struct device *device, void *to, const void *from, int64_t bytes) {
    return device_status(
        device, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyHostToDevice, device->stream),
        "cudaMemcpyAsync to the device");
}

static int cuda_finish(struct device *device) {
    if (recording(device, "finish")) {
        return DEVICE_REFUSED;
    }
    return device_status(device, cudaStreamSynchronize(device->stream), "cudaStreamSynchronize");
}

static int cuda_download(struct device *device, void *to, const void *from, int64_t bytes) {
    if (recording(device, "download")) {
        return DEVICE_REFUSED;
    }
    const int status = device_status(
        device, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToHost, device->stream),
        "cudaMemcpyAsync from the device");
    return status == DEVICE_OK ? cuda_finish(device) : status;
}

static int copy_apart(struct device *device, char *to, const char *from, int64_t bytes) {
    return device_status(
        device, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, device->stream),
        "cudaMemcpyAsync on the device");
}

/* Ranges that overlap go piece by piece from the end that is written over first: in pieces as long
 * as the ranges are apart, or through the spare memory where those would be many. */
static int cuda_copy(struct device *device, void *to, const void *from, int64_t bytes) {
    char *target = static_cast<char *>(to);
    const char *source = static_cast<const char *>(from);
    const bool down = target < source;
    const int64_t distance = down ? source - target : target - source;
    int64_t spare_bytes;
    char *spare = static_cast<char *>(device_spare(device, &spare_bytes));
    if (distance == 0 || bytes <= 0) {
        return DEVICE_OK;
    }
    const bool direct = distance >= bytes || distance >= spare_bytes;
    const int64_t most = direct ? distance : spare_bytes;
    int status = DEVICE_OK;
    for (int64_t done = 0; status == DEVICE_OK && done < bytes;) {
        const int64_t piece = bytes - done < most ? bytes - done : most;
        const int64_t at = down ? done : bytes - done - piece;
        if (direct) {
            status = copy_apart(device, target + at, source + at, piece);
        } else {
            status = copy_apart(device, spare, source + at, piece);
            if (status == DEVICE_OK) {
                status = copy_apart(device, target + at, spare, piece);
            }
        }
        done += piece;
    }
    return status;
}

static int cuda_clear(struct device *device, void *to, int64_t bytes) {
    return device_status(device, cudaMemsetAsync(to, 0, (size_t)bytes, device->stream),
                         "cudaMemsetAsync");
}

/* ---- marks ---- */

static cudaEvent_t event_of(struct device_mark *mark) {
    return reinterpret_cast<cudaEvent_t>(mark);
}

static int cuda_mark_open(struct device *device, struct device_mark **out) {
    cudaEvent_t event = nullptr;
    *out = nullptr;
    if (recording(device, "mark_open")) {
        return DEVICE_REFUSED;
    }
    const int status = device_status(device, cudaEventCreate(&event), "cudaEventCreate");
    if (status != DEVICE_OK) {
        return status;
    }
    if (!held_add(device, HELD_MARK, event, 0)) {
        cudaEventDestroy(event);
        snprintf(device->trouble, sizeof device->trouble, "no host memory");
        return DEVICE_NO_MEMORY;
    }
    *out = reinterpret_cast<struct device_mark *>(event);
    return DEVICE_OK;
}

static void cuda_mark_close(struct device *device, struct device_mark *mark) {
    held_release(device, HELD_MARK, mark);
}

static int cuda_mark(struct device *device, struct device_mark *mark) {
    if (recording(device, "mark")) {
        return DEVICE_REFUSED;
    }
    return device_status(device, cudaEventRecord(event_of(mark), device->stream),
                         "cudaEventRecord");
}

static int cuda_mark_reached(struct device *device, struct device_mark *mark, bool *out) {
    *out = false;
    if (recording(device, "mark_reached")) {
        return DEVICE_REFUSED;
    }
    const cudaError_t status = cudaEventQuery(event_of(mark));
    if (status == cudaErrorNotReady) {
        cudaGetLastError();
        return DEVICE_OK;
    }
    *out = status == cudaSuccess;
    return device_status(device, status, "cudaEventQuery");
}

static int cuda_mark_wait(struct device *device, struct device_mark *mark) {
    if (recording(device, "mark_wait")) {
        return DEVICE_REFUSED;
    }
    return device_status(device, cudaEventSynchronize(event_of(mark)), "cudaEventSynchronize");
}

static int cuda_mark_elapsed(struct device *device, struct device_mark *from,
                             struct device_mark *to, double *ns) {
    float ms = 0;
    if (recording(device, "mark_elapsed")) {
        return DEVICE_REFUSED;
    }
    const int status = device_status(
        device, cudaEventElapsedTime(&ms, event_of(from), event_of(to)), "cudaEventElapsedTime");
    *ns = (double)ms * 1e6;
    return status;
}

/* ---- recordings ---- */

static int cuda_record_begin(struct device *device) {
    if (recording(device, "record_begin")) {
        return DEVICE_REFUSED;
    }
    const int status = device_status(
        device, cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
    device->recording = status == DEVICE_OK;
    return status;
}

static int cuda_record_end(struct device *device, struct device_recording **out) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    *out = nullptr;
    if (!device->recording) {
        return device_refuse(device, "record_end without record_begin");
    }
    device->recording = false;
    int status =
        device_status(device, cudaStreamEndCapture(device->stream, &graph), "cudaStreamEndCapture");
    if (status == DEVICE_OK) {
        const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
        if (made == cudaErrorMemoryAllocation) { /* nothing is broken by it */
            cudaGetLastError();
            snprintf(device->trouble, sizeof device->trouble, "cudaGraphInstantiate: %s",
                     cudaGetErrorString(made));
            status = DEVICE_NO_MEMORY;
        } else {
            status = device_status(device, made, "cudaGraphInstantiate");
        }
    }
    if (graph) {
        cudaGraphDestroy(graph);
    }
    if (status != DEVICE_OK) {
        return status;
    }
    if (!held_add(device, HELD_RECORDING, executable, 0)) {
        cudaGraphExecDestroy(executable);
        snprintf(device->trouble, sizeof device->trouble, "no host memory");
        return DEVICE_NO_MEMORY;
    }
    *out = reinterpret_cast<struct device_recording *>(executable);
    return device_status(device, cudaGraphUpload(executable, device->stream), "cudaGraphUpload");
}

static int cuda_record_play(struct device *device, struct device_recording *played) {
    if (recording(device, "record_play")) {
        return DEVICE_REFUSED;
    }
    return device_status(device,
                         cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(played), device->stream),
                         "cudaGraphLaunch");
}

static void cuda_record_close(struct device *device, struct device_recording *closed) {
    held_release(device, HELD_RECORDING, closed);
}

/* ---- the kernels ---- */

/* A table function of one launcher. */
#define LAUNCH(name)                                                                               \
    static int cuda_##name(struct device *device, const struct call_##name *call) {                \
        return kernel_status(device, kernel_##name(call, device->stream), #name);                  \
    }

LAUNCH(embed)
LAUNCH(add)
LAUNCH(rope)
LAUNCH(keep)
LAUNCH(dense_attention)
LAUNCH(select)
LAUNCH(swiglu)
LAUNCH(sample)
LAUNCH(credit)
LAUNCH(softmax)
LAUNCH(keep_expected)
LAUNCH(add_expected)
LAUNCH(next_step)
LAUNCH(decode)
LAUNCH(random)
LAUNCH(importance)
LAUNCH(compact)
LAUNCH(combine)
LAUNCH(moe_route)
LAUNCH(moe_sort)
LAUNCH(moe_gate_up)
LAUNCH(moe_down)
LAUNCH(moe_combine)

static int cuda_norm(struct device *device, const struct call_norm *call) {
    struct call_norm own = *call;
    own.invariant = device->invariant;
    return kernel_status(device, kernel_norm(&own, device->stream), "norm");
}

static int cuda_block_attention(struct device *device, const struct call_block_attention *call) {
    struct call_block_attention own = *call;
    own.scratch = device->block_scratch;
    own.invariant = device->invariant;
    return kernel_status(device, kernel_block_attention(&own, device->stream), "block_attention");
}

static int cuda_paged_attention(struct device *device, const struct call_paged_attention *call) {
    struct call_paged_attention own = *call;
    own.scratch = device->block_scratch;
    own.invariant = device->invariant;
    return kernel_status(device, kernel_paged_attention(&own, device->stream), "paged_attention");
}

/* The product and the activation one after the other, as many tokens at a time as the spare memory
 * has room for. */
static int gate_up_apart(struct device *device, const struct call_gate_up *call) {
    int64_t spare_bytes;
    void *spare = device_spare(device, &spare_bytes);
    const int64_t most = spare_bytes / (2 * 2 * (int64_t)call->n_hidden);
    int status = most > 0 ? DEVICE_OK : device_refuse(device, "gate_up: rows beyond the scratch");
    for (int64_t first = 0; status == DEVICE_OK && first < call->n_tokens; first += most) {
        struct call_linear product = {};
        product.x = static_cast<const __nv_bfloat16 *>(call->x) + first * call->x_stride;
        product.w = call->w;
        product.y = spare;
        product.x_stride = call->x_stride;
        product.y_stride = 2 * (int64_t)call->n_hidden;
        product.n_tokens = (int32_t)(call->n_tokens - first < most ? call->n_tokens - first : most);
        product.n_outputs = 2 * call->n_hidden;
        product.n_inputs = call->n_channels;
        product.dtype = call->dtype;
        struct call_swiglu activation = {};
        activation.gate_up = spare;
        activation.y = static_cast<__nv_bfloat16 *>(call->y) + first * call->y_stride;
        activation.y_stride = call->y_stride;
        activation.n_tokens = product.n_tokens;
        activation.n_hidden = call->n_hidden;
        activation.dtype = call->dtype;
        status = device_linear(device, &product);
        status = status == DEVICE_OK ? cuda_swiglu(device, &activation) : status;
    }
    return status;
}

static int cuda_gate_up(struct device *device, const struct call_gate_up *call) {
    cudaError_t status = cudaErrorNotSupported;
    if (!device->invariant) {
        status = kernel_gate_up_few(call, device->stream);
    }
    if (status == cudaErrorNotSupported) {
        status = kernel_gate_up(call, device->stream);
    }
    if (status == cudaErrorNotSupported) {
        cudaGetLastError();
        return gate_up_apart(device, call);
    }
    return kernel_status(device, status, "gate_up");
}

static int cuda_head(struct device *device, const struct call_head *call) {
    struct call_head own = *call;
    own.invariant = device->invariant;
    return kernel_status(device, kernel_head(device->head, &own, device->stream), "head");
}

static void cuda_batch_invariant(struct device *device, bool on) {
    device->invariant = on;
    linears_set_invariant(device->linears, on);
}

extern "C" const struct device_table unmask_device_cuda = {
    DEVICE_ABI,
    sizeof(struct device_table),
    "cuda",
    cuda_open,
    cuda_enter,
    cuda_close,
    cuda_trouble,
    cuda_facts,
    cuda_vitals,
    cuda_allocate,
    cuda_release,
    cuda_allocated_bytes,
    cuda_own_bytes,
    cuda_allocate_host,
    cuda_release_host,
    device_granule,
    device_range_open,
    device_range_close,
    device_handle_open,
    device_handle_close,
    device_map,
    device_allow,
    device_unmap,
    cuda_upload,
    cuda_download,
    cuda_copy,
    cuda_clear,
    cuda_finish,
    cuda_mark_open,
    cuda_mark_close,
    cuda_mark,
    cuda_mark_reached,
    cuda_mark_wait,
    cuda_mark_elapsed,
    cuda_record_begin,
    cuda_record_end,
    cuda_record_play,
    cuda_record_close,
    cuda_embed,
    cuda_norm,
    device_linear,
    cuda_add,
    cuda_rope,
    cuda_keep,
    cuda_dense_attention,
    cuda_block_attention,
    cuda_select,
    cuda_swiglu,
    cuda_gate_up,
    cuda_head,
    cuda_sample,
    cuda_credit,
    cuda_softmax,
    cuda_keep_expected,
    cuda_add_expected,
    cuda_next_step,
    cuda_decode,
    cuda_random,
    cuda_paged_attention,
    cuda_importance,
    cuda_compact,
    cuda_moe_route,
    cuda_moe_sort,
    cuda_moe_gate_up,
    cuda_moe_down,
    cuda_moe_combine,
    cuda_batch_invariant,
    device_linear_chosen,
    device_ranks_open,
    device_ranks_break,
    device_all_reduce,
    device_all_gather,
    cuda_combine,
};
