/* Products with weights in fp8: the calls, the choice of a path, and weights expanded. */
#include "kernels/linear/fp8.cuh"

#include "kernels/device.cuh"
#include "kernels/hopper.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

/* Shapes of both calls: scales are of squares' columns or of whole rows. */
static bool product_of(struct fp8_product *out, const struct call_fp8 *fp8) {
    const int64_t rows = (int64_t)out->n_outputs * (out->outcome == FP8_GATED ? 2 : 1);
    out->w_scale = fp8->w_scale;
    out->w_rows = fp8->w_rows;
    /* Of FP8_STEP inputs or fewer a row may have its own scale, too. */
    out->squares = fp8->w_columns == FP8_STEP && (fp8->w_rows > 1 || out->n_inputs > FP8_STEP);
    out->x_too = fp8->x_too;
    return fp8->w_scale && fp8->w_rows > 0 &&
           (fp8->w_columns == FP8_STEP || fp8->w_columns >= out->n_inputs) && out->n_tokens >= 0 &&
           out->n_outputs > 0 && rows <= INT32_MAX && out->n_inputs > 0 && out->n_inputs % 8 == 0 &&
           out->before >= 0 && out->x_stride % (fp8->x_too ? FP8_ROW_ALIGN : 8) == 0;
}

bool fp8_product_of(const struct call_linear *call, struct fp8_product *out) {
    *out = {};
    out->x = call->x;
    out->w = call->w;
    out->add = call->add;
    out->y = call->y;
    out->x_stride = call->x_stride;
    out->y_stride = call->y_stride;
    out->n_tokens = call->n_tokens;
    out->n_outputs = call->n_outputs;
    out->n_inputs = call->n_inputs;
    out->before = call->outputs_before;
    return product_of(out, &call->fp8) && call->dtype == KERNEL_BF16 && !call->by_inputs &&
           call->y_stride % 8 == 0;
}

bool fp8_product_of(const struct call_gate_up *call, struct fp8_product *out) {
    *out = {};
    out->x = call->x;
    out->w = call->w;
    out->y = call->y;
    out->x_stride = call->x_stride;
    out->y_stride = call->y_stride;
    out->n_tokens = call->n_tokens;
    out->n_outputs = call->n_hidden;
    out->n_inputs = call->n_channels;
    out->outcome = FP8_GATED;
    out->codes = static_cast<uint8_t *>(call->codes);
    return product_of(out, &call->fp8) && call->dtype == KERNEL_BF16 && call->n_hidden % 8 == 0 &&
           call->y_stride % 8 == 0 && (!call->codes || call->fp8.x_too);
}

cudaError_t fp8_codes(const struct fp8_product *product, cudaStream_t stream) {
    struct call_quantise call = {};
    call.x = product->y;
    call.y = product->codes;
    call.x_stride = product->y_stride;
    call.n_rows = product->n_tokens;
    call.n_channels = product->n_outputs;
    call.group = FP8_STEP;
    call.dtype = KERNEL_BF16;
    return product->codes ? kernel_quantise(&call, stream) : cudaSuccess;
}

cudaError_t fp8_run(const struct fp8_product *product, bool invariant, cudaStream_t stream) {
    cudaError_t status = invariant ? cudaErrorNotSupported : fp8_run_few(product, stream);
    if (status == cudaErrorNotSupported) {
        status = fp8_run_tiles(product, stream);
    }
    return status == cudaErrorNotSupported ? fp8_run_mma(product, stream) : status;
}

/* ---- weights in bf16 ---- */

/* A thread for every eight codes. */
static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    fp8_expand_kernel(const uint8_t *w, const struct fp8_product p, int64_t n_vectors, void *to) {
    dependencies_wait();
    dependents_launch();
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n_vectors) {
        return;
    }
    const int across = p.n_inputs / 8;
    const int64_t row = i / across;
    const int column = (int)(i % across) * 8;
    const float scale = fp8_scales_of(p, row)[p.squares ? column / FP8_STEP : 0];
    const uint2 raw = *reinterpret_cast<const uint2 *>(w + i * 8);
    float x[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint32_t code = (j < 4 ? raw.x : raw.y) >> j % 4 * 8;
        const uint32_t bits = (code & 0x80) << 24 | (code & 0x7f) << 20;
        const float value = __uint_as_float(bits) * 0x1p120f;
        x[j] = ((code & 0x7f) == E4M3_NAN ? __uint_as_float(0x7fffffff) : value) * scale;
    }
    bf16x8_store(to, i * 8, bf16x8_from_float(x));
}

cudaError_t fp8_expand(const void *w, const struct call_fp8 *fp8, int32_t before, int32_t n_rows,
                       int32_t n_inputs, void *to, cudaStream_t stream) {
    struct fp8_product p = {};
    p.n_outputs = n_rows;
    p.n_inputs = n_inputs;
    p.before = before;
    if (!product_of(&p, fp8)) {
        return cudaErrorInvalidValue;
    }
    const int64_t n = (int64_t)n_rows * n_inputs / 8;
    launch(fp8_expand_kernel, (unsigned)((n - 1) / ELEMENTWISE_THREADS + 1), ELEMENTWISE_THREADS, 0,
           stream, static_cast<const uint8_t *>(w), p, n, to);
    return cudaGetLastError();
}

/* ---- the calls ---- */

typedef cudaError_t path(const struct fp8_product *product, cudaStream_t stream);

template <class CALL> static cudaError_t take(const CALL *call, path *path, cudaStream_t stream) {
    struct fp8_product product;
    return fp8_product_of(call, &product) ? path(&product, stream) : cudaErrorInvalidValue;
}

template <class CALL>
static cudaError_t take_fastest(const CALL *call, bool invariant, cudaStream_t stream) {
    struct fp8_product product;
    return fp8_product_of(call, &product) ? fp8_run(&product, invariant, stream)
                                          : cudaErrorInvalidValue;
}

extern "C" cudaError_t kernel_linear_fp8(const struct call_linear *call, bool invariant,
                                         cudaStream_t stream) {
    return take_fastest(call, invariant, stream);
}

extern "C" cudaError_t kernel_linear_fp8_few(const struct call_linear *call, cudaStream_t stream) {
    return take(call, fp8_run_few, stream);
}

extern "C" cudaError_t kernel_linear_fp8_tiles(const struct call_linear *call,
                                               cudaStream_t stream) {
    return take(call, fp8_run_tiles, stream);
}

extern "C" cudaError_t kernel_linear_fp8_mma(const struct call_linear *call, cudaStream_t stream) {
    return take(call, fp8_run_mma, stream);
}

extern "C" cudaError_t kernel_gate_up_fp8(const struct call_gate_up *call, bool invariant,
                                          cudaStream_t stream) {
    return take_fastest(call, invariant, stream);
}

extern "C" cudaError_t kernel_gate_up_fp8_few(const struct call_gate_up *call,
                                              cudaStream_t stream) {
    return take(call, fp8_run_few, stream);
}

extern "C" cudaError_t kernel_gate_up_fp8_tiles(const struct call_gate_up *call,
                                                cudaStream_t stream) {
    return take(call, fp8_run_tiles, stream);
}

extern "C" cudaError_t kernel_gate_up_fp8_mma(const struct call_gate_up *call,
                                              cudaStream_t stream) {
    return take(call, fp8_run_mma, stream);
}
