/* Parts of a recording that a number decides on: conditional nodes, added in the midst of the
 * stream's capture. What belongs to a part is captured by a stream of its own, which is the
 * device's until the part ends (kernels/lab/conditional_nodes.cu tried it all). */
#include "kernels/device/device_cuda.cuh"

/* A number below 0 is the place of no part. */
static __global__ void decide(cudaGraphConditionalHandle handle, const int32_t *number,
                              bool loops) {
    cudaGraphSetConditional(handle, loops ? *number != 0 : (unsigned)*number);
}

static cudaError_t decide_on(const struct recorded_part *part, cudaStream_t stream) {
    decide<<<1, 1, 0, stream>>>(part->handle, part->number, part->loops);
    return cudaGetLastError();
}

/* Adds the node behind what the stream has captured; the capture goes on behind it. */
static cudaError_t add_node(struct recorded_part *part) {
    cudaStreamCaptureStatus state;
    cudaGraph_t graph;
    const cudaGraphNode_t *before;
    const cudaGraphEdgeData *edges;
    size_t n_before;
    cudaGraphNode_t node;
    cudaGraphNodeParams params = {};
    cudaError_t status = cudaStreamGetCaptureInfo(part->outer, &state, nullptr, &graph, nullptr,
                                                  nullptr, nullptr);
    if (status == cudaSuccess) {
        cudaGraphConditionalHandle handle;
        status = cudaGraphConditionalHandleCreate(&handle, graph, 0, cudaGraphCondAssignDefault);
        part->handle = handle;
    }
    if (status == cudaSuccess) {
        status = decide_on(part, part->outer);
    }
    if (status == cudaSuccess) {
        status = cudaStreamGetCaptureInfo(part->outer, &state, nullptr, &graph, &before, &edges,
                                          &n_before);
    }
    if (status == cudaSuccess) {
        params.type = cudaGraphNodeTypeConditional;
        params.conditional.handle = part->handle;
        params.conditional.type = part->loops ? cudaGraphCondTypeWhile : cudaGraphCondTypeSwitch;
        params.conditional.size = (unsigned)part->n_bodies;
        status = cudaGraphAddNode(&node, graph, before, edges, n_before, &params);
    }
    if (status == cudaSuccess) {
        part->bodies = params.conditional.phGraph_out;
        status = cudaStreamUpdateCaptureDependencies(part->outer, &node, nullptr, 1,
                                                     cudaStreamSetCaptureDependencies);
    }
    return status;
}

static cudaError_t begin_body(struct recorded_part *part) {
    return cudaStreamBeginCaptureToGraph(part->inner, part->bodies[part->at], nullptr, nullptr, 0,
                                         cudaStreamCaptureModeThreadLocal);
}

static int begin_part(struct device *device, const int32_t *number, int32_t n_bodies, bool loops) {
    if (!device->recording || device->n_parts == RECORD_DEPTH || n_bodies < 1) {
        return device_refuse(device, "a part that begins outside of a recording, too deep, or "
                                     "that chooses among none");
    }
    struct recorded_part *part = &device->parts[device->n_parts];
    cudaError_t status = cudaSuccess;
    if (!part->inner) {
        status = cudaStreamCreateWithFlags(&part->inner, cudaStreamNonBlocking);
    }
    part->outer = device->stream;
    part->number = number;
    part->n_bodies = n_bodies;
    part->at = 0;
    part->loops = loops;
    if (status == cudaSuccess) {
        status = add_node(part);
    }
    if (status == cudaSuccess) {
        status = begin_body(part);
    }
    if (status == cudaSuccess) {
        device->stream = part->inner;
        device->n_parts++;
    }
    return device_status(device, status, "a conditional node");
}

int device_record_while(struct device *device, const int32_t *number) {
    return begin_part(device, number, 1, true);
}

int device_record_choose(struct device *device, const int32_t *number, int32_t n_parts) {
    return begin_part(device, number, n_parts, false);
}

int device_record_next(struct device *device) {
    struct recorded_part *part = device->n_parts > 0 ? &device->parts[device->n_parts - 1] : nullptr;
    if (!part || part->at + 1 >= part->n_bodies) {
        return device_refuse(device, "record_next without a next part");
    }
    cudaGraph_t body;
    cudaError_t status = cudaStreamEndCapture(part->inner, &body);
    if (status == cudaSuccess) {
        part->at++;
        status = begin_body(part);
    }
    return device_status(device, status, "a conditional node's body");
}

int device_record_done(struct device *device) {
    struct recorded_part *part = device->n_parts > 0 ? &device->parts[device->n_parts - 1] : nullptr;
    if (!part || part->at + 1 != part->n_bodies) {
        return device_refuse(device, "record_done before the last part");
    }
    cudaGraph_t body;
    cudaError_t status = part->loops ? decide_on(part, part->inner) : cudaSuccess;
    const cudaError_t ended = cudaStreamEndCapture(part->inner, &body);
    device->stream = part->outer;
    device->n_parts--;
    return device_status(device, status == cudaSuccess ? ended : status,
                         "a conditional node's body");
}

bool device_parts_leave(struct device *device) {
    const bool any = device->n_parts > 0;
    while (device->n_parts > 0) {
        struct recorded_part *part = &device->parts[--device->n_parts];
        cudaGraph_t body;
        cudaStreamEndCapture(part->inner, &body);
        device->stream = part->outer;
    }
    return any;
}

void device_parts_close(struct device *device) {
    for (int i = 0; i < RECORD_DEPTH; i++) {
        if (device->parts[i].inner) {
            cudaStreamDestroy(device->parts[i].inner);
        }
    }
}
