/* The kernels of the CUDA device, launched on its stream. */
#include <cuda_bf16.h>
#include <stdio.h>

#include "kernels/device/device_cuda.cuh"
#include "kernels/kernels.h"

static int kernel_status(struct device *device, cudaError_t status, const char *what) {
    if (status == cudaErrorInvalidValue) {
        char text[DEVICE_TEXT_CHARS];
        snprintf(text, sizeof text, "%s: a call that calls.h does not promise", what);
        return device_refuse(device, text);
    }
    return device_status(device, status, what);
}

#define LAUNCH_OWN(name)
#define LAUNCH_PLAIN(name)                                                                         \
    int device_##name(struct device *device, const struct call_##name *call) {                     \
        return kernel_status(device, kernel_##name(call, device->stream), #name);                  \
    }
#define KERNEL(name, cuda, cpu) LAUNCH_##cuda(name)
#define RANK_KERNEL(...)        KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"

int device_norm(struct device *device, const struct call_norm *call) {
    struct call_norm own = *call;
    own.invariant = device->invariant;
    return kernel_status(device, kernel_norm(&own, device->stream), "norm");
}

int device_block_attention(struct device *device, const struct call_block_attention *call) {
    struct call_block_attention own = *call;
    own.scratch = device->block_scratch;
    own.invariant = device->invariant;
    return kernel_status(device, kernel_block_attention(&own, device->stream), "block_attention");
}

int device_paged_attention(struct device *device, const struct call_paged_attention *call) {
    struct call_paged_attention own = *call;
    own.scratch = device->block_scratch;
    own.invariant = device->invariant;
    return kernel_status(device, kernel_paged_attention(&own, device->stream), "paged_attention");
}

/* The product and the activation one after the other, as many tokens at a time as the spare memory
 * has room for: whole tiles, for a product of 1,056 tokens costs as much as one of 1,152. */
static int gate_up_apart(struct device *device, const struct call_gate_up *call) {
    int64_t spare_bytes;
    void *spare = device_spare(device, &spare_bytes);
    enum { TILE_TOKENS = 128 };
    const int64_t fit = spare_bytes / (2 * 2 * (int64_t)call->n_hidden);
    const int64_t most = fit > TILE_TOKENS ? fit / TILE_TOKENS * TILE_TOKENS : fit;
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
        activation.gelu = call->gelu;
        status = device_linear(device, &product);
        status = status == DEVICE_OK ? device_swiglu(device, &activation) : status;
    }
    return status;
}

int device_gate_up(struct device *device, const struct call_gate_up *call) {
    if (call->fp8.w_scale && call->gelu) {
        return device_refuse(device, "gate_up: gelu in fp8");
    }
    if (call->fp8.w_scale) {
        return kernel_status(device, device_gate_up_fp8(device, call), "gate_up in fp8");
    }
    cudaError_t status = cudaErrorNotSupported;
    if (!device->invariant && !call->gelu) {
        status = kernel_gate_up_few(call, device->stream);
        if (status == cudaErrorNotSupported) {
            status = kernel_gate_up_even(call, device->stream);
        }
    }
    if (status == cudaErrorNotSupported && !call->gelu) {
        status = kernel_gate_up(call, device->stream);
    }
    if (status == cudaErrorNotSupported) {
        cudaGetLastError();
        return gate_up_apart(device, call);
    }
    return kernel_status(device, status, "gate_up");
}

int device_head(struct device *device, const struct call_head *call) {
    struct call_head own = *call;
    own.invariant = device->invariant;
    return kernel_status(device, kernel_head(device->head, &own, device->stream), "head");
}
