/* What the CUDA device's stream does besides kernels: copies, events, graphs. */
#include <stdio.h>

#include "kernels/device/device_cuda.cuh"

int device_upload(struct device *device, void *to, const void *from, int64_t bytes) {
    return device_status(
        device, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyHostToDevice, device->stream),
        "cudaMemcpyAsync to the device");
}

int device_finish(struct device *device) {
    if (capturing(device, "finish")) {
        return DEVICE_REFUSED;
    }
    return device_status(device, cudaStreamSynchronize(device->stream), "cudaStreamSynchronize");
}

int device_download(struct device *device, void *to, const void *from, int64_t bytes) {
    if (capturing(device, "download")) {
        return DEVICE_REFUSED;
    }
    const int status = device_status(
        device, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToHost, device->stream),
        "cudaMemcpyAsync from the device");
    return status == DEVICE_OK ? device_finish(device) : status;
}

static int copy_apart(struct device *device, char *to, const char *from, int64_t bytes) {
    return device_status(
        device, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, device->stream),
        "cudaMemcpyAsync on the device");
}

/* Ranges that overlap go piece by piece from the end that is written over first: in pieces as long
 * as the ranges are apart, or through the spare memory where those would be many. */
int device_copy(struct device *device, void *to, const void *from, int64_t bytes) {
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

int device_clear(struct device *device, void *to, int64_t bytes) {
    return device_status(device, cudaMemsetAsync(to, 0, (size_t)bytes, device->stream),
                         "cudaMemsetAsync");
}

/* ---- swaps ---- */

static int swaps_open(struct device *device) {
    if (device->swap_ends) {
        return DEVICE_OK;
    }
    int status = DEVICE_OK;
    if (!device->swaps) {
        status = device_status(device,
                               cudaStreamCreateWithFlags(&device->swaps, cudaStreamNonBlocking),
                               "cudaStreamCreate for swaps");
    }
    cudaEvent_t *const events[] = {&device->swap_begins, &device->swap_ends};
    for (int i = 0; status == DEVICE_OK && i < 2; i++) {
        status = *events[i] ? DEVICE_OK
                            : device_status(device,
                                            cudaEventCreateWithFlags(events[i],
                                                                     cudaEventDisableTiming),
                                            "cudaEventCreate for swaps");
    }
    return status;
}

void device_swaps_close(struct device *device) {
    if (device->swaps) {
        cudaStreamSynchronize(device->swaps);
        cudaStreamDestroy(device->swaps);
    }
    if (device->swap_begins) {
        cudaEventDestroy(device->swap_begins);
    }
    if (device->swap_ends) {
        cudaEventDestroy(device->swap_ends);
    }
}

/* Pieces further apart than CUDA's pitches reach go one by one. */
static cudaError_t copy_pieces(struct device *device, char *to, int64_t to_pitch, const char *from,
                               int64_t from_pitch, int64_t bytes, int64_t n,
                               enum cudaMemcpyKind kind) {
    if (n > 1 && to_pitch <= INT32_MAX && from_pitch <= INT32_MAX) {
        return cudaMemcpy2DAsync(to, (size_t)to_pitch, from, (size_t)from_pitch, (size_t)bytes,
                                 (size_t)n, kind, device->swaps);
    }
    cudaError_t status = cudaSuccess;
    for (int64_t i = 0; status == cudaSuccess && i < n; i++) {
        status = cudaMemcpyAsync(to + i * to_pitch, from + i * from_pitch, (size_t)bytes, kind,
                                 device->swaps);
    }
    return status;
}

/* The stream of swaps waits for the other, and the other for it. */
static int swap(struct device *device, void *to, int64_t to_pitch, const void *from,
                int64_t from_pitch, int64_t bytes, int64_t n, enum cudaMemcpyKind kind) {
    if (capturing(device, "swap")) {
        return DEVICE_REFUSED;
    }
    int status = swaps_open(device);
    if (status != DEVICE_OK || bytes <= 0 || n <= 0) {
        return status;
    }
    status = device_status(device, cudaEventRecord(device->swap_begins, device->stream),
                           "cudaEventRecord before a swap");
    if (status == DEVICE_OK) {
        status = device_status(device, cudaStreamWaitEvent(device->swaps, device->swap_begins, 0),
                               "cudaStreamWaitEvent before a swap");
    }
    if (status == DEVICE_OK) {
        status = device_status(
            device,
            copy_pieces(device, static_cast<char *>(to), to_pitch, static_cast<const char *>(from),
                        from_pitch, bytes, n, kind),
            kind == cudaMemcpyHostToDevice ? "swapping in" : "swapping out");
    }
    if (status == DEVICE_OK) {
        status = device_status(device, cudaEventRecord(device->swap_ends, device->swaps),
                               "cudaEventRecord after a swap");
    }
    if (status == DEVICE_OK) {
        status = device_status(device, cudaStreamWaitEvent(device->stream, device->swap_ends, 0),
                               "cudaStreamWaitEvent after a swap");
    }
    return status;
}

int device_swap_out(struct device *device, void *host, const void *memory, int64_t bytes,
                    int64_t pitch, int64_t n) {
    return swap(device, host, bytes, memory, pitch, bytes, n, cudaMemcpyDeviceToHost);
}

int device_swap_in(struct device *device, void *memory, const void *host, int64_t bytes,
                   int64_t pitch, int64_t n) {
    return swap(device, memory, pitch, host, bytes, bytes, n, cudaMemcpyHostToDevice);
}

int device_swap_wait(struct device *device) {
    if (capturing(device, "swap_wait")) {
        return DEVICE_REFUSED;
    }
    return !device->swap_ends ? DEVICE_OK
                              : device_status(device, cudaEventSynchronize(device->swap_ends),
                                              "cudaEventSynchronize after a swap");
}

/* ---- events ---- */

static cudaEvent_t event_of(struct device_event *event) {
    return reinterpret_cast<cudaEvent_t>(event);
}

int device_event_open(struct device *device, struct device_event **out) {
    cudaEvent_t event = nullptr;
    *out = nullptr;
    if (capturing(device, "event_open")) {
        return DEVICE_REFUSED;
    }
    const int status = device_status(device, cudaEventCreate(&event), "cudaEventCreate");
    if (status != DEVICE_OK) {
        return status;
    }
    if (!held_add(device, HELD_EVENT, event, 0)) {
        cudaEventDestroy(event);
        snprintf(device->trouble, sizeof device->trouble, "no host memory");
        return DEVICE_NO_MEMORY;
    }
    *out = reinterpret_cast<struct device_event *>(event);
    return DEVICE_OK;
}

void device_event_close(struct device *device, struct device_event *event) {
    held_release(device, HELD_EVENT, event);
}

int device_event_record(struct device *device, struct device_event *event) {
    if (capturing(device, "event_record")) {
        return DEVICE_REFUSED;
    }
    return device_status(device, cudaEventRecord(event_of(event), device->stream),
                         "cudaEventRecord");
}

int device_event_reached(struct device *device, struct device_event *event, bool *out) {
    *out = false;
    if (capturing(device, "event_reached")) {
        return DEVICE_REFUSED;
    }
    const cudaError_t status = cudaEventQuery(event_of(event));
    if (status == cudaErrorNotReady) {
        cudaGetLastError();
        return DEVICE_OK;
    }
    *out = status == cudaSuccess;
    return device_status(device, status, "cudaEventQuery");
}

int device_event_wait(struct device *device, struct device_event *event) {
    if (capturing(device, "event_wait")) {
        return DEVICE_REFUSED;
    }
    return device_status(device, cudaEventSynchronize(event_of(event)), "cudaEventSynchronize");
}

int device_event_elapsed(struct device *device, struct device_event *from, struct device_event *to,
                         double *ns) {
    float ms = 0;
    if (capturing(device, "event_elapsed")) {
        return DEVICE_REFUSED;
    }
    const int status = device_status(
        device, cudaEventElapsedTime(&ms, event_of(from), event_of(to)), "cudaEventElapsedTime");
    *ns = (double)ms * 1e6;
    return status;
}

/* ---- graphs ---- */

int device_capture_begin(struct device *device) {
    if (capturing(device, "capture_begin")) {
        return DEVICE_REFUSED;
    }
    const int status = device_status(
        device, cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
    device->capturing = status == DEVICE_OK;
    return status;
}

int device_capture_end(struct device *device, struct device_graph **out) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    *out = nullptr;
    if (!device->capturing) {
        return device_refuse(device, "capture_end without capture_begin");
    }
    device->capturing = false;
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
    if (!held_add(device, HELD_GRAPH, executable, 0)) {
        cudaGraphExecDestroy(executable);
        snprintf(device->trouble, sizeof device->trouble, "no host memory");
        return DEVICE_NO_MEMORY;
    }
    *out = reinterpret_cast<struct device_graph *>(executable);
    return device_status(device, cudaGraphUpload(executable, device->stream), "cudaGraphUpload");
}

int device_graph_launch(struct device *device, struct device_graph *graph) {
    if (capturing(device, "graph_launch")) {
        return DEVICE_REFUSED;
    }
    return device_status(device,
                         cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(graph), device->stream),
                         "cudaGraphLaunch");
}

void device_graph_close(struct device *device, struct device_graph *graph) {
    held_release(device, HELD_GRAPH, graph);
}
