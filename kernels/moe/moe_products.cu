/* The experts' products by the tensor cores that sm_80 and later all have (moe.cuh), and the choice
 * of a path. Four warps multiply 32 rows of weights each by up to 64 pairs, from stages that
 * asynchronous copies fill ahead. */
#include "kernels/fp8.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/moe/moe.cuh"

enum {
    THREADS = MOE_MMA_THREADS,
    PAIRS = 64, /* a tile */
    STAGES = MOE_MMA_STAGES,
    WEIGHT_BYTES = MOE_TILE_ROWS * MOE_TILE_CHANNELS * 2,
    STAGE_BYTES = MOE_MMA_STAGE_BYTES,
    WARP_SLOTS = MOE_SLOTS / (THREADS / 32), /* of 16 rows */
    ROWS_APART = THREADS / 8,                /* rows that a thread copies 16 bytes each of */
};

static_assert(STAGE_BYTES == WEIGHT_BYTES + PAIRS * MOE_TILE_CHANNELS * 2, "a stage");

/* Rows of 64 elements are 8 chunks of 16 bytes, exclusive-ored with the row. */
static __device__ __forceinline__ uint32_t chunk_address(uint32_t base, int row, int chunk) {
    return base + (uint32_t)(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/* The row of the weights that is a tile's row, or the number of rows where there is none. */
template <bool GATED>
static __device__ __forceinline__ int64_t weight_row(const struct moe_product &product,
                                                     const struct moe_tile &tile, int row) {
    const int64_t n = product.n_outputs;
    if (GATED) {
        const int output = tile.output_tile * (MOE_TILE_ROWS / 2) + row / 16 * 8 + row % 8;
        return output < n ? tile.expert * 2 * n + row / 8 % 2 * n + output
                          : product.n_experts * 2 * n;
    }
    const int output = tile.output_tile * MOE_TILE_ROWS + row;
    return output < n ? tile.expert * n + output : product.n_experts * n;
}

/* The scale of a weight in fp8, of a row of its expert. */
template <bool GATED>
static __device__ __forceinline__ const float *
scale_of(const struct moe_product &product, const struct moe_tile &tile, int64_t row, int channel) {
    const int64_t n_rows = (int64_t)product.n_outputs * (GATED ? 2 : 1);
    const int64_t high = fp8_groups(n_rows, product.fp8.w_rows);
    const int64_t wide = fp8_groups(product.n_inputs, product.fp8.w_columns);
    const int64_t in_expert = row - tile.expert * n_rows;
    return product.fp8.w_scale + (tile.expert * high + in_expert / product.fp8.w_rows) * wide +
           channel / product.fp8.w_columns;
}

/* Copies a stage in fp8; what this thread copied stage_expand makes bf16 of. */
template <bool GATED>
static __device__ __forceinline__ void copy_fp8_stage(const struct moe_product &product,
                                                      const struct moe_tile &tile, uint32_t stage,
                                                      int step) {
    const int chunk = threadIdx.x % 8, first = threadIdx.x / 8;
    const int channel = step * MOE_TILE_CHANNELS + chunk * 8;
    const bool exists = channel < product.n_inputs;
    const int64_t n_rows = (int64_t)product.n_experts * product.n_outputs * (GATED ? 2 : 1);
    const uint8_t *w = static_cast<const uint8_t *>(product.w);
#pragma unroll
    for (int i = 0; i < MOE_TILE_ROWS / ROWS_APART; i++) {
        const int row = first + i * ROWS_APART;
        const int64_t from = weight_row<GATED>(product, tile, row);
        const bool copied = exists && from < n_rows;
        fp8_copy_async(
            chunk_address(stage, row, chunk), copied ? w + from * product.n_inputs + channel : w,
            copied ? scale_of<GATED>(product, tile, from, channel) : product.fp8.w_scale, copied);
    }
#pragma unroll
    for (int i = 0; i < PAIRS / ROWS_APART; i++) {
        const int row = first + i * ROWS_APART;
        if (row >= tile.n_pairs) {
            continue;
        }
        const int64_t from = moe_input_row(product, tile.first + row) * product.x_stride;
        const uint32_t to = chunk_address(stage + WEIGHT_BYTES, row, chunk);
        const int at = exists ? channel : 0;
        if (product.fp8.x_too) {
            const uint8_t *x = static_cast<const uint8_t *>(product.x) + from;
            const float *scales = reinterpret_cast<const float *>(x + product.n_inputs);
            fp8_copy_async(to, x + at, scales + at / product.fp8.w_columns, exists);
        } else {
            copy_async(to, static_cast<const __nv_bfloat16 *>(product.x) + from + at, exists);
        }
    }
}

static __device__ __forceinline__ void stage_expand(const struct moe_product &product,
                                                    const struct moe_tile &tile, uint32_t stage) {
    const int chunk = threadIdx.x % 8, first = threadIdx.x / 8;
#pragma unroll
    for (int i = 0; i < MOE_TILE_ROWS / ROWS_APART; i++) {
        fp8_expand(chunk_address(stage, first + i * ROWS_APART, chunk));
    }
#pragma unroll
    for (int i = 0; i < PAIRS / ROWS_APART; i++) {
        const int row = first + i * ROWS_APART;
        if (product.fp8.x_too && row < tile.n_pairs) {
            fp8_expand(chunk_address(stage + WEIGHT_BYTES, row, chunk));
        }
    }
}

template <bool GATED>
static __device__ __forceinline__ void copy_stage(const struct moe_product &product,
                                                  const struct moe_tile &tile, uint32_t stage,
                                                  int step) {
    const int chunk = threadIdx.x % 8, first = threadIdx.x / 8;
    const int channel = step * MOE_TILE_CHANNELS + chunk * 8;
    const bool exists = channel < product.n_inputs;
    const int64_t n_rows = (int64_t)product.n_experts * product.n_outputs * (GATED ? 2 : 1);
    const __nv_bfloat16 *w = static_cast<const __nv_bfloat16 *>(product.w);
    const __nv_bfloat16 *x = static_cast<const __nv_bfloat16 *>(product.x);
#pragma unroll
    for (int i = 0; i < MOE_TILE_ROWS / ROWS_APART; i++) {
        const int row = first + i * ROWS_APART;
        const int64_t from = weight_row<GATED>(product, tile, row);
        const bool copied = exists && from < n_rows;
        copy_async(chunk_address(stage, row, chunk),
                   copied ? w + from * product.n_inputs + channel : w, copied);
    }
#pragma unroll
    for (int i = 0; i < PAIRS / ROWS_APART; i++) {
        const int row = first + i * ROWS_APART;
        if (row < tile.n_pairs) {
            const int64_t from = moe_input_row(product, tile.first + row) * product.x_stride;
            copy_async(chunk_address(stage + WEIGHT_BYTES, row, chunk),
                       exists ? x + from + channel : x, exists);
        }
    }
}

static __device__ __forceinline__ void multiply_stage(float (&sum)[WARP_SLOTS][PAIRS / 2],
                                                      uint32_t stage, int n_pairs) {
    const int lane = threadIdx.x % 32, slot = threadIdx.x / 32 * WARP_SLOTS;
    const int part = lane / 8, row = lane % 8;
#pragma unroll
    for (int k = 0; k < MOE_TILE_CHANNELS / 16; k++) {
        uint32_t a[WARP_SLOTS][4];
#pragma unroll
        for (int s = 0; s < WARP_SLOTS; s++) {
            matrix_load(
                a[s], chunk_address(stage, (slot + s) * 16 + part % 2 * 8 + row, k * 2 + part / 2));
        }
#pragma unroll
        for (int i = 0; i < PAIRS / 16; i++) {
            if (i * 16 < n_pairs) {
                uint32_t b[4];
                matrix_load(b, chunk_address(stage + WEIGHT_BYTES, i * 16 + part / 2 * 8 + row,
                                             k * 2 + part % 2));
#pragma unroll
                for (int s = 0; s < WARP_SLOTS; s++) {
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        float(&c)[4] = *reinterpret_cast<float(*)[4]>(&sum[s][i * 8 + j * 4]);
                        matrix_multiply(c, a[s], b[j * 2], b[j * 2 + 1]);
                    }
                }
            }
        }
    }
}

template <bool GATED, bool FP8>
static __global__ void __launch_bounds__(THREADS)
    moe_mma_kernel(const __grid_constant__ struct moe_product product) {
    dependencies_wait();
    dependents_launch();
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ struct moe_table table;
    const uint32_t stages = shared_address(shared);
    if (threadIdx.x < 32) {
        moe_table_build(&table, product);
    }
    __syncthreads();
    const int n_tiles = table.tiles[product.n_experts] * product.n_output_tiles;
    struct moe_tile tile = {};
    auto copy = [&](uint32_t stage, int step) {
        if constexpr (FP8) {
            copy_fp8_stage<GATED>(product, tile, stage, step);
        } else {
            copy_stage<GATED>(product, tile, stage, step);
        }
    };
    for (int number = blockIdx.x; number < n_tiles; number += gridDim.x) {
        moe_tile_find(&tile, &table, product, number);
        float sum[WARP_SLOTS][PAIRS / 2] = {};
        for (int step = 0; step < STAGES - 1; step++) {
            if (step < product.n_steps) {
                copy(stages + step * STAGE_BYTES, step);
            }
            copy_async_commit();
        }
        for (int step = 0; step < product.n_steps; step++) {
            copy_async_wait<STAGES - 2>();
            if (FP8) {
                stage_expand(product, tile, stages + step % STAGES * STAGE_BYTES);
            }
            __syncthreads(); /* also: all are done with the stage that is filled next */
            const int next = step + STAGES - 1;
            if (next < product.n_steps) {
                copy(stages + next % STAGES * STAGE_BYTES, next);
            }
            copy_async_commit();
            multiply_stage(sum, stages + step % STAGES * STAGE_BYTES, tile.n_pairs);
        }
#pragma unroll
        for (int s = 0; s < WARP_SLOTS; s++) {
            moe_store<GATED, PAIRS>(product, tile, threadIdx.x / 32 * WARP_SLOTS + s, sum[s]);
        }
        __syncthreads();
    }
}

template <bool GATED, bool FP8>
static cudaError_t start_kind(struct moe_product *product, int n_tokens, cudaStream_t stream) {
    auto kernel = moe_mma_kernel<GATED, FP8>;
    int n_sms, n_blocks;
    const int bytes = STAGES * STAGE_BYTES;
    cudaError_t status = multiprocessors(&n_sms);
    if (status == cudaSuccess) {
        status = shared_allow(kernel, bytes);
    }
    if (status == cudaSuccess) {
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n_blocks, kernel, THREADS,
                                                               (size_t)bytes);
    }
    if (status != cudaSuccess) {
        return status;
    }
    product->max_pairs = PAIRS;
    const int64_t most = moe_most_tiles(product, (int64_t)n_tokens * product->n_active);
    const int64_t fit = (int64_t)n_sms * n_blocks;
    launch(kernel, (unsigned)(most < fit ? most : fit), THREADS, (size_t)bytes, stream, *product);
    return cudaGetLastError();
}

template <bool GATED>
static cudaError_t start(struct moe_product *product, int n_tokens, cudaStream_t stream) {
    return product->fp8.w_scale ? start_kind<GATED, true>(product, n_tokens, stream)
                                : start_kind<GATED, false>(product, n_tokens, stream);
}

/* ---- the calls ---- */

static bool product_of(struct moe_product *product, int n_tokens, int rows_per_output) {
    const int64_t rows = (int64_t)product->n_outputs * rows_per_output;
    if (n_tokens < 0 || product->n_active < 1 || product->n_active > MOE_MAX_ACTIVE ||
        product->n_experts < 1 || product->n_experts > MOE_MAX_EXPERTS || product->n_inputs < 8 ||
        product->n_inputs % 8 != 0 || product->n_outputs < 8 || product->n_outputs % 8 != 0 ||
        rows > INT32_MAX / 2 || product->x_stride < product->n_inputs ||
        product->x_stride % 8 != 0 || (int64_t)n_tokens * product->n_active > INT32_MAX / 2) {
        return false;
    }
    product->n_output_tiles = (int)((rows + MOE_TILE_ROWS - 1) / MOE_TILE_ROWS);
    product->n_steps = (product->n_inputs + MOE_TILE_CHANNELS - 1) / MOE_TILE_CHANNELS;
    return true;
}

bool moe_product_of(const struct call_moe_gate_up *call, struct moe_product *out) {
    *out = {call->x,
            call->w,
            call->y,
            call->start,
            call->order,
            call->x_stride,
            call->n_active,
            call->n_experts,
            call->n_channels,
            call->n_hidden,
            0,
            0,
            0,
            call->fp8,
            call->gelu};
    return call->dtype == KERNEL_BF16 && !(call->gelu && call->fp8.w_scale) &&
           product_of(out, call->n_tokens, 2);
}

bool moe_product_of(const struct call_moe_down *call, struct moe_product *out) {
    *out = {call->x,
            call->w,
            call->y,
            call->start,
            nullptr,
            call->fp8.x_too ? fp8_row_bytes(call->n_hidden, call->fp8.w_columns) : call->n_hidden,
            call->n_active,
            call->n_experts,
            call->n_hidden,
            call->n_channels,
            0,
            0,
            0,
            call->fp8};
    return call->dtype == KERNEL_BF16 && product_of(out, call->n_tokens, 1);
}

int64_t moe_most_tiles(const struct moe_product *product, int64_t n_pairs) {
    const int64_t n_experts = n_pairs < product->n_experts ? n_pairs : product->n_experts;
    return (n_experts + n_pairs / product->max_pairs) * product->n_output_tiles;
}

int moe_tile_pairs(const struct moe_product *product, int n_tokens, int few, int most) {
    const int64_t n_pairs = (int64_t)n_tokens * product->n_active;
    const int64_t average = (n_pairs + product->n_experts - 1) / product->n_experts;
    const int64_t if_few = average + average / 2 + 8, if_many = average + average / 4 + 32;
    const int64_t wanted = if_few <= few ? if_few : if_many;
    const int64_t pairs = wanted < n_tokens ? wanted : n_tokens;
    if (pairs <= few) {
        return pairs <= 16 ? 16 : pairs <= 32 ? 32 : few;
    }
    return pairs >= most ? most : (int)((pairs + 31) / 32 * 32);
}

extern "C" cudaError_t kernel_moe_gate_up_mma(const struct call_moe_gate_up *call,
                                              cudaStream_t stream) {
    struct moe_product product;
    if (!moe_product_of(call, &product)) {
        return cudaErrorInvalidValue;
    }
    return call->n_tokens == 0 ? cudaSuccess : start<true>(&product, call->n_tokens, stream);
}

extern "C" cudaError_t kernel_moe_down_mma(const struct call_moe_down *call, cudaStream_t stream) {
    struct moe_product product;
    if (!moe_product_of(call, &product)) {
        return cudaErrorInvalidValue;
    }
    return call->n_tokens == 0 ? cudaSuccess : start<false>(&product, call->n_tokens, stream);
}

extern "C" cudaError_t kernel_moe_gate_up(const struct call_moe_gate_up *call,
                                          cudaStream_t stream) {
    const cudaError_t status = kernel_moe_gate_up_wgmma(call, stream);
    return status == cudaErrorNotSupported ? kernel_moe_gate_up_mma(call, stream) : status;
}

extern "C" cudaError_t kernel_moe_down(const struct call_moe_down *call, cudaStream_t stream) {
    const cudaError_t status = kernel_moe_down_wgmma(call, stream);
    return status == cudaErrorNotSupported ? kernel_moe_down_mma(call, stream) : status;
}
