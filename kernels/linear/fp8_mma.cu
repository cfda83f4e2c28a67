/* Products with weights in fp8 by the tensor cores that sm_89 and later all have, of every shape;
 * with inputs in bf16, where weights are expanded on their way into registers, sm_80 does. Four
 * warps multiply 16 rows of weights each by up to 64 tokens, from stages that asynchronous copies
 * fill ahead; the sums of a step's channels are taken in single precision. For SwiGLU a tile's rows
 * are gates and ups in turns of eight, so that a thread has both factors of its outputs. */
#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/fp8.cuh"

enum {
    THREADS = FP8_MMA_THREADS,
    TILE_ROWS = 64,
    TILE_TOKENS = 64,
    STAGES = FP8_MMA_STAGES,
    STAGE_BYTES = FP8_MMA_STAGE_BYTES,
    WEIGHT_BYTES = TILE_ROWS * FP8_STEP,
    SCALES_AT = WEIGHT_BYTES + TILE_TOKENS * FP8_STEP * 2,
    CHUNKS = FP8_STEP / 16, /* of a row of codes */
    FP8_CAPABILITY = 89,
};

static_assert(STAGE_BYTES == SCALES_AT + TILE_TOKENS * 4, "a stage");

/* 16 bytes, chunk of a row of 128; two such rows side by side are inputs in bf16. */
static __device__ __forceinline__ uint32_t chunk_address(uint32_t base, int row, int chunk) {
    return base + (uint32_t)(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/* 16 bytes of which `n` exist, 0, 8 or 16; rows begin at multiples of 8 bytes alone where `halves`.
 */
static __device__ __forceinline__ void copy_chunk(uint32_t to, const void *from, int n,
                                                  bool halves) {
    if (!halves) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(n)
                     : "memory");
        return;
    }
    const char *second = static_cast<const char *>(from) + (n > 8 ? 8 : 0);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(to), "l"(from),
                 "r"(min(n, 8))
                 : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(to + 8), "l"(second),
                 "r"(max(n - 8, 0))
                 : "memory");
}

/* The row of w that is a tile's row; all rows where there is none. */
static __device__ __forceinline__ int64_t weight_row(const struct fp8_product &p, int tile,
                                                     int row) {
    const int64_t n = p.n_outputs;
    if (p.outcome == FP8_GATED) {
        const int64_t output = tile * (int64_t)(TILE_ROWS / 2) + row / 16 * 8 + row % 8;
        return output < n ? row / 8 % 2 * n + output : 2 * n;
    }
    const int64_t at = tile * (int64_t)TILE_ROWS + row;
    return at < n ? at : n;
}

template <bool X_TOO>
static __device__ __forceinline__ void copy_stage(const struct fp8_product &p, uint32_t stage,
                                                  int tile, int first_token, int step) {
    const int64_t n_rows = (int64_t)p.n_outputs * (p.outcome == FP8_GATED ? 2 : 1);
    const int chunk = threadIdx.x % CHUNKS, channel = step * FP8_STEP + chunk * 16;
    const int left = p.n_inputs - channel, n = max(min(left, 16), 0);
    const bool halves = p.n_inputs % 16 != 0;
    const uint8_t *w = static_cast<const uint8_t *>(p.w);
    const uint8_t *x = static_cast<const uint8_t *>(p.x);
#pragma unroll 4
    for (int row = threadIdx.x / CHUNKS; row < TILE_ROWS; row += THREADS / CHUNKS) {
        const int64_t from = weight_row(p, tile, row);
        const bool exists = from < n_rows && n > 0;
        copy_chunk(chunk_address(stage, row, chunk), exists ? w + from * p.n_inputs + channel : w,
                   exists ? n : 0, halves);
    }
#pragma unroll 4
    for (int row = threadIdx.x / CHUNKS; row < TILE_TOKENS; row += THREADS / CHUNKS) {
        const int64_t token = first_token + row;
        if constexpr (X_TOO) {
            const bool exists = token < p.n_tokens && n > 0;
            copy_chunk(chunk_address(stage + WEIGHT_BYTES, row, chunk),
                       exists ? x + token * p.x_stride + channel : x, exists ? n : 0, false);
        } else { /* 16 channels are two chunks here: of the first 64, then of the rest */
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at = chunk * 2 + i, from = step * FP8_STEP + at * 8;
                const bool exists = token < p.n_tokens && from < p.n_inputs;
                const uint32_t plane = stage + WEIGHT_BYTES + at / 8 * TILE_TOKENS * 128;
                copy_async(chunk_address(plane, row, at % 8),
                           exists ? x + (token * p.x_stride + from) * 2 : x, exists);
            }
        }
    }
    if (X_TOO && p.squares && threadIdx.x < TILE_TOKENS) {
        const int64_t token = min(first_token + (int)threadIdx.x, p.n_tokens - 1);
        copy_async_4(stage + SCALES_AT + threadIdx.x * 4, fp8_scales_of_input(p, token) + step);
    }
}

static __device__ __forceinline__ void multiply_fp8(float *c, const uint32_t (&a)[4], uint32_t b0,
                                                    uint32_t b1) {
#if __CUDA_ARCH__ >= 890
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

static __device__ __forceinline__ uint32_t shared_word(uint32_t address) {
    uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(word) : "r"(address) : "memory");
    return word;
}

/* Two codes, in the upper bytes of the halves, as bf16: the exponent moves into place and is then
 * off by 120, which a product puts right for numbers of all sizes. */
static __device__ __forceinline__ uint32_t pair_expand(uint32_t pair) {
    const uint32_t size = pair & 0x7f007f00u, word = (pair & 0x80008000u) | size >> 4;
    const __nv_bfloat162 scaled =
        __hmul2(*reinterpret_cast<const __nv_bfloat162 *>(&word), __float2bfloat162_rn(0x1p120f));
    uint32_t out = *reinterpret_cast<const uint32_t *>(&scaled);
    out |= (size & 0x7f00u) == 0x7f00u ? 0x7fffu : 0;
    return out | (size >> 16 == 0x7f00u ? 0x7fff0000u : 0);
}

/* Four neighbouring codes. */
static __device__ __forceinline__ void codes_expand(uint32_t codes, uint32_t *low, uint32_t *high) {
    *low = pair_expand(__byte_perm(codes, 0, 0x1404));
    *high = pair_expand(__byte_perm(codes, 0, 0x3424));
}

/* A warp's sums of a step: 16 rows of weights by all tokens. */
template <bool X_TOO>
static __device__ __forceinline__ void multiply_stage(float (&part)[TILE_TOKENS / 2],
                                                      uint32_t stage, int n_tokens) {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
    const int quarter = lane / 8, row = lane % 8;
    const uint32_t inputs = stage + WEIGHT_BYTES;
    if (X_TOO) {
#pragma unroll
        for (int k = 0; k < FP8_STEP / 32; k++) {
            uint32_t a[4];
            matrix_load(a,
                        chunk_address(stage, first + quarter % 2 * 8 + row, k * 2 + quarter / 2));
#pragma unroll
            for (int i = 0; i < TILE_TOKENS / 16; i++) {
                if (i * 16 < n_tokens) {
                    uint32_t b[4];
                    matrix_load(b, chunk_address(inputs, i * 16 + quarter / 2 * 8 + row,
                                                 k * 2 + quarter % 2));
                    multiply_fp8(&part[i * 8], a, b[0], b[1]);
                    multiply_fp8(&part[i * 8 + 4], a, b[2], b[3]);
                }
            }
        }
        return;
    }
    /* A thread's four channels of 16 are neighbours here, of weights and inputs alike. */
    const int at = lane / 4, four = lane % 4;
#pragma unroll
    for (int k = 0; k < FP8_STEP / 16; k++) {
        uint32_t a[4];
        codes_expand(shared_word(chunk_address(stage, first + at, k) + four * 4), &a[0], &a[2]);
        codes_expand(shared_word(chunk_address(stage, first + at + 8, k) + four * 4), &a[1], &a[3]);
        const uint32_t plane = inputs + (uint32_t)(k / 4 * TILE_TOKENS * 128);
#pragma unroll
        for (int i = 0; i < TILE_TOKENS / 8; i++) {
            if (i * 8 < n_tokens) {
                const uint32_t from =
                    chunk_address(plane, i * 8 + at, k % 4 * 2 + four / 2) + four % 2 * 8;
                float(&c)[4] = *reinterpret_cast<float(*)[4]>(&part[i * 4]);
                matrix_multiply(c, a, shared_word(from), shared_word(from + 4));
            }
        }
    }
}

static __device__ __forceinline__ void store(const struct fp8_product &p, int64_t token,
                                             int64_t output, float value) {
    const int64_t at = token * p.y_stride + output;
    if (p.outcome == FP8_SINGLE) {
        static_cast<float *>(p.y)[at] = value;
        return;
    }
    if (p.add) {
        value += __bfloat162float(static_cast<const __nv_bfloat16 *>(p.add)[at]);
    }
    static_cast<__nv_bfloat16 *>(p.y)[at] = __float2bfloat16_rn(value);
}

/* Two tokens' sums of a tile's rows `row` and, eight on, what belongs to it. */
static __device__ __forceinline__ void store_pair(const struct fp8_product &p, int tile, int row,
                                                  int64_t token, float first, float second) {
    const int64_t own = weight_row(p, tile, row);
    if (token >= p.n_tokens || own >= p.n_outputs) {
        return;
    }
    if (p.outcome == FP8_GATED) {
        store(p, token, own, swiglu(first, second));
        return;
    }
    store(p, token, own, first);
    const int64_t other = weight_row(p, tile, row + 8);
    if (other < p.n_outputs) {
        store(p, token, other, second);
    }
}

/* A thread's sums, times the scales of whole rows where there are such. */
template <bool X_TOO>
static __device__ __forceinline__ void store_tile(const struct fp8_product &p, int tile, int row,
                                                  int first_token, const float *const (&scales)[2],
                                                  const float (&sum)[TILE_TOKENS / 2]) {
    const float end[2] = {p.squares ? 1 : __ldg(scales[0]), p.squares ? 1 : __ldg(scales[1])};
#pragma unroll
    for (int i = 0; i < TILE_TOKENS / 2; i += 4) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int64_t token = first_token + i / 4 * 8 + threadIdx.x % 4 * 2 + j;
            const float of_token =
                X_TOO && !p.squares && token < p.n_tokens ? *fp8_scales_of_input(p, token) : 1;
            store_pair(p, tile, row, token, sum[i + j] * end[0] * of_token,
                       sum[i + 2 + j] * end[1] * of_token);
        }
    }
}

template <bool X_TOO>
static __global__ void __launch_bounds__(THREADS)
    fp8_mma_kernel(const __grid_constant__ struct fp8_product p) {
    dependencies_wait();
    dependents_launch();
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t stages = shared_address(shared);
    const int tile = blockIdx.x, first_token = blockIdx.y * TILE_TOKENS;
    const int n_steps = (p.n_inputs + FP8_STEP - 1) / FP8_STEP;
    const int n_tokens = min(p.n_tokens - first_token, (int)TILE_TOKENS);
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    const int64_t last = (int64_t)p.n_outputs * (p.outcome == FP8_GATED ? 2 : 1) - 1;
    const float *w_scales[2];
    for (int half = 0; half < 2; half++) {
        w_scales[half] = fp8_scales_of(p, min(weight_row(p, tile, row + half * 8), last));
    }
    float sum[TILE_TOKENS / 2] = {};
    for (int step = 0; step < STAGES - 1; step++) {
        if (step < n_steps) {
            copy_stage<X_TOO>(p, stages + step * STAGE_BYTES, tile, first_token, step);
        }
        copy_async_commit();
    }
    for (int step = 0; step < n_steps; step++) {
        copy_async_wait<STAGES - 2>();
        __syncthreads(); /* also: all are done with the stage that is filled next */
        const int next = step + STAGES - 1;
        if (next < n_steps) {
            copy_stage<X_TOO>(p, stages + next % STAGES * STAGE_BYTES, tile, first_token, next);
        }
        copy_async_commit();
        const uint32_t stage = stages + step % STAGES * STAGE_BYTES;
        const int at = p.squares ? step : 0;
        const float scale[2] = {p.squares ? __ldg(w_scales[0] + at) : 1,
                                p.squares ? __ldg(w_scales[1] + at) : 1};
        float part[TILE_TOKENS / 2] = {};
        multiply_stage<X_TOO>(part, stage, n_tokens);
#pragma unroll
        for (int i = 0; i < TILE_TOKENS / 2; i += 4) {
            float2 of_token = make_float2(1, 1);
            if (X_TOO && p.squares) {
                of_token = shared_float2(stage + SCALES_AT + (i / 4 * 8 + lane % 4 * 2) * 4);
            }
            sum[i] = fmaf(part[i], scale[0] * of_token.x, sum[i]);
            sum[i + 1] = fmaf(part[i + 1], scale[0] * of_token.y, sum[i + 1]);
            sum[i + 2] = fmaf(part[i + 2], scale[1] * of_token.x, sum[i + 2]);
            sum[i + 3] = fmaf(part[i + 3], scale[1] * of_token.y, sum[i + 3]);
        }
    }
    store_tile<X_TOO>(p, tile, row, first_token, w_scales, sum);
}

cudaError_t fp8_run_mma(const struct fp8_product *product, cudaStream_t stream) {
    if (product->n_tokens == 0) {
        return cudaSuccess;
    }
    int major, minor;
    cudaError_t status = device_attribute(cudaDevAttrComputeCapabilityMajor, &major);
    if (status == cudaSuccess) {
        status = device_attribute(cudaDevAttrComputeCapabilityMinor, &minor);
    }
    if (status != cudaSuccess) {
        return status;
    }
    if (product->x_too && major * 10 + minor < FP8_CAPABILITY) {
        return cudaErrorNotSupported;
    }
    const int bytes = STAGES * STAGE_BYTES;
    const int rows = product->outcome == FP8_GATED ? TILE_ROWS / 2 : TILE_ROWS;
    const dim3 grid((unsigned)((product->n_outputs - 1) / rows + 1),
                    (unsigned)((product->n_tokens - 1) / TILE_TOKENS + 1));
    auto kernel = product->x_too ? fp8_mma_kernel<true> : fp8_mma_kernel<false>;
    status = shared_allow(kernel, bytes);
    if (status == cudaSuccess) {
        launch(kernel, grid, THREADS, (size_t)bytes, stream, *product);
        status = cudaGetLastError();
    }
    return status == cudaSuccess ? fp8_codes(product, stream) : status;
}
