/* The experts' products with weights in fp8 on sm_90a, after moe_wgmma.cu: a warpgroup fetches, one
 * thread the weights, all of them the pairs' inputs and what both are scaled by; two warpgroups
 * multiply 64 rows of weights each by as many pairs as a tile has. The sums of a step's 128
 * channels leave the tensor cores for single precision times the scales of that step; where each
 * row of weights has one scale, it comes onto the sums at a tile's end. Inputs in bf16 are
 * multiplied with codes that become bf16 on their way into registers, which is exact. All widths of
 * tiles add up in the same order. */
#include "kernels/fp8.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/fp8_wide.cuh"
#include "kernels/moe/ring.cuh"

enum {
    STEP = 128, /* channels, which share a scale by squares */
    WEIGHT_BYTES = MOE_TILE_ROWS * STEP,
    MAX_STAGES = 8,
    FEEDERS = MOE_FEEDERS,
    THREADS = MOE_WGMMA_THREADS,
    ROWS_APART = FEEDERS / 8,          /* rows of inputs that a feeder copies 16 bytes each of */
    WEIGHT_SCALES = MOE_TILE_ROWS / 8, /* of a step: eight neighbours' rows share one */
    WORKER_WARPS = (THREADS - FEEDERS) / 32,
};

/* Pairs a tile at most, bytes of a pair's step, a block's ring, and blocks a multiprocessor, for
 * few pairs and for many. */
template <bool FEW, bool X_TOO> struct shape {
    static constexpr int PAIRS = FEW ? (X_TOO ? 64 : 32) : X_TOO ? 256 : 128;
    static constexpr int PAIR_BYTES = STEP * (X_TOO ? 1 : 2);
    static constexpr int RING_BYTES = FEW ? MOE_FP8_FEW_RING_BYTES : MOE_RING_BYTES;
    static constexpr int BLOCKS = FEW ? 2 : 1;
    static constexpr int FEEDER_REGISTERS = FEW ? 48 : X_TOO ? 40 : 72;
    static constexpr int WORKER_REGISTERS = FEW ? 96 : X_TOO ? 232 : 216;
};

static bool by_squares(const struct moe_product *product) {
    return product->fp8.w_columns == STEP &&
           (product->fp8.w_rows > 1 || product->n_inputs > (int)STEP);
}

/* What a kernel needs beyond a product. */
struct fp8_cut {
    int stage_bytes, scale_bytes, n_stages; /* scales of all stages follow all stages */
    bool squares;
};

#if HOPPER_DEVICE
/* The row of an expert's weights that is a tile's row, a multiple of 8 of them, or the last such
 * eight where there is none. */
template <bool GATED>
static __device__ __forceinline__ int row_of_eight(const struct moe_product &product,
                                                   const struct moe_tile &tile, int eight) {
    const int n = product.n_outputs;
    if (GATED) {
        const int output = tile.output_tile * (MOE_TILE_ROWS / 2) + eight / 2 * 8;
        return min(output, n - 8) + eight % 2 * n;
    }
    return min(tile.output_tile * MOE_TILE_ROWS + eight * 8, n - 8);
}

/* The scales of a row of an expert's weights: by squares of each step in turn, else one. */
template <bool GATED>
static __device__ __forceinline__ const float *scales_of(const struct moe_product &product,
                                                         bool squares, int expert, int row) {
    const int64_t n_rows = (int64_t)product.n_outputs * (GATED ? 2 : 1);
    return product.fp8.w_scale +
           (squares ? (expert * ((n_rows + STEP - 1) / STEP) + row / STEP) * product.n_steps
                    : expert * n_rows + row);
}

/* By one thread: a stage's weights. */
template <bool GATED>
static __device__ __forceinline__ void
feed_weights(const struct stage_ring &ring, int at, const CUtensorMap *w_map,
             const struct moe_product &product, const struct moe_tile &tile, int step) {
    const uint32_t stage = ring.stages + at * ring.stage_bytes, full = ring.full + at * 8;
    barrier_expect(full, WEIGHT_BYTES);
    if (GATED) {
        tensor_copy_groups(stage, w_map, full, step * STEP, tile.output_tile * MOE_SLOTS,
                           tile.expert);
    } else {
        tensor_copy(stage, w_map, full, step * STEP, 0,
                    tile.expert * product.n_outputs + tile.output_tile * MOE_TILE_ROWS);
    }
}

/* What a feeder copies of a tile's pairs: 16 bytes of some rows of x, the scales of some, and, by
 * squares, that of eight rows of weights. Places in x are in 16 bytes. */
template <bool FEW, bool X_TOO> struct feeder {
    static constexpr int TURNS = shape<FEW, X_TOO>::PAIRS / ROWS_APART;
    static constexpr int SCALES = X_TOO ? (TURNS + 7) / 8 : 0;
    uint32_t from[TURNS], scaled[SCALES + 1];
    const float *w_scale; /* NULL: none */
};

template <bool GATED, bool FEW, bool X_TOO>
static __device__ __forceinline__ void feeder_begin(struct feeder<FEW, X_TOO> *own,
                                                    const struct moe_product &product, bool squares,
                                                    const struct moe_tile &tile) {
    const int chunk = threadIdx.x % 8, row = threadIdx.x / 8;
#pragma unroll
    for (int i = 0; i < own->TURNS; i++) {
        const int pair = min(row + i * ROWS_APART, tile.n_pairs - 1);
        own->from[i] = 0;
        if (i * ROWS_APART < tile.n_pairs) {
            own->from[i] = (uint32_t)(moe_input_row(product, tile.first + pair) * product.x_stride *
                                      (X_TOO ? 1 : 2) / 16);
        }
        if (X_TOO && chunk == i % 8) {
            own->scaled[i / 8] = own->from[i];
        }
    }
    own->w_scale = nullptr;
    if (squares && threadIdx.x < WEIGHT_SCALES) {
        own->w_scale = scales_of<GATED>(product, true, tile.expert,
                                        row_of_eight<GATED>(product, tile, threadIdx.x));
    }
}

/* Into a stage and its scales. */
template <bool FEW, bool X_TOO>
static __device__ __forceinline__ void
feeder_copy(const struct feeder<FEW, X_TOO> &own, const struct moe_product &product, bool squares,
            int n_pairs, uint32_t stage, uint32_t scales, int step) {
    constexpr int HALVES = shape<FEW, X_TOO>::PAIR_BYTES / 128;
    constexpr int CHANNELS = X_TOO ? 16 : 8; /* of 16 bytes */
    const int chunk = threadIdx.x % 8, row = threadIdx.x / 8;
    const uint32_t to_row = WEIGHT_BYTES + row * 128 + ((chunk ^ (row & 7)) << 4);
    const char *x = static_cast<const char *>(product.x);
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        const int channel = step * STEP + half * 64 + chunk * CHANNELS;
        const bool exists = channel < product.n_inputs;
        const uint32_t to = stage + half * product.max_pairs * 128 + to_row;
#pragma unroll
        for (int i = 0; i < own.TURNS; i++) {
            if (i * ROWS_APART < n_pairs && row + i * ROWS_APART < n_pairs) {
                copy_async(to + i * ROWS_APART * 128,
                           x + (uint64_t)own.from[i] * 16 +
                               (exists ? channel * (X_TOO ? 1 : 2) : 0),
                           exists);
            }
        }
    }
    if (own.w_scale) {
        copy_async_4(scales + threadIdx.x * 4, own.w_scale + step);
    }
#pragma unroll
    for (int i = 0; i < own.SCALES; i++) {
        const int pair = row + (chunk + i * 8) * ROWS_APART;
        if (pair < n_pairs) {
            copy_async_4(scales + (WEIGHT_SCALES + pair) * 4, x + (uint64_t)own.scaled[i] * 16 +
                                                                  product.n_inputs +
                                                                  (squares ? step * 4 : 0));
        }
    }
}

template <bool GATED, bool FEW, bool X_TOO>
static __device__ __forceinline__ void
feed(struct stage_ring ring, const CUtensorMap *w_map, const struct moe_product &product,
     const struct fp8_cut &cut, const struct moe_table *table, int n_tiles) {
    const uint32_t scales = ring.stages + ring.n_stages * ring.stage_bytes;
    struct moe_tile tile = {};
    int early = 0; /* stages of the first tile whose weights are under way */
    if (!GATED) {
        if ((int)blockIdx.x < n_tiles) {
            moe_tile_find(&tile, table, product, blockIdx.x);
            early = min(ring.n_stages, product.n_steps);
            for (int i = 0; threadIdx.x == 0 && i < early; i++) {
                feed_weights<GATED>(ring, i, w_map, product, tile, i);
            }
        }
        dependencies_wait();
        dependents_launch();
    }
    for (int number = blockIdx.x; number < n_tiles; number += gridDim.x) {
        moe_tile_find(&tile, table, product, number);
        struct feeder<FEW, X_TOO> own;
        feeder_begin<GATED>(&own, product, cut.squares, tile);
        for (int step = 0; step < product.n_steps; step++) {
            barrier_wait(ring.empty + ring.at * 8, ring.parity ^ 1);
            if (early > 0) {
                early--;
            } else if (threadIdx.x == 0) {
                feed_weights<GATED>(ring, ring.at, w_map, product, tile, step);
            }
            feeder_copy(own, product, cut.squares, tile.n_pairs,
                        ring.stages + ring.at * ring.stage_bytes,
                        scales + ring.at * cut.scale_bytes, step);
            barrier_arrive_copied(ring.full + ring.at * 8);
            ring_advance(&ring);
        }
    }
    copy_async_commit();
    copy_async_wait<0>();
}

/* The scales of a thread's two rows of weights, where each row has one; else 1. */
template <bool GATED>
static __device__ __forceinline__ void row_scales(float (&of_row)[2],
                                                  const struct moe_product &product, bool squares,
                                                  const struct moe_tile &tile, int slot) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row_of_eight<GATED>(product, tile, slot * 2 + half) + threadIdx.x % 32 / 4;
        of_row[half] = squares ? 1 : __ldg(scales_of<GATED>(product, false, tile.expert, row));
    }
}

/* Adds a step's sums of WIDTH pairs times the scales of the thread's two rows and of the pairs,
 * which begin at x_scales. */
template <bool X_TOO, int WIDTH>
static __device__ __forceinline__ void promote(float *sum, const float (&part)[WIDTH / 2], float2 w,
                                               uint32_t x_scales) {
#pragma unroll
    for (int i = 0; i < WIDTH / 8; i++) {
        float2 t = make_float2(1, 1);
        if (X_TOO) {
            t = shared_float2(x_scales + (i * 8 + threadIdx.x % 4 * 2) * 4);
        }
        sum[i * 4] = fmaf(part[i * 4], w.x * t.x, sum[i * 4]);
        sum[i * 4 + 1] = fmaf(part[i * 4 + 1], w.x * t.y, sum[i * 4 + 1]);
        sum[i * 4 + 2] = fmaf(part[i * 4 + 2], w.y * t.x, sum[i * 4 + 2]);
        sum[i * 4 + 3] = fmaf(part[i * 4 + 3], w.y * t.y, sum[i * 4 + 3]);
    }
}

template <bool GATED, bool X_TOO, int WIDTH>
static __device__ __forceinline__ void
multiply(struct stage_ring *ring, const struct moe_product &product, const struct fp8_cut &cut,
         const struct moe_tile &tile) {
    /* Of many pairs one half after the other, while the other warpgroup multiplies. */
    constexpr int PARTS = WIDTH > 128 ? 2 : 1, PART = WIDTH / PARTS;
    const int slot = threadIdx.x / 32 - FEEDERS / 32; /* of 16 rows */
    const uint32_t scales = ring->stages + ring->n_stages * ring->stage_bytes;
    float sum[WIDTH / 2], part[PART / 2], of_row[2];
    if (PARTS == 1) { /* else there is no room to keep them in */
        row_scales<GATED>(of_row, product, cut.squares, tile, slot);
    }
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        sum[i] = 0; /* else all widths' sums would live from tile to tile */
    }
    for (int step = 0; step < product.n_steps; step++) {
        const uint32_t stage = ring->stages + ring->at * ring->stage_bytes;
        const uint32_t scale = scales + ring->at * cut.scale_bytes;
        const uint32_t weights = stage + slot / 4 * (WEIGHT_BYTES / 2);
        barrier_wait(ring->full + ring->at * 8, ring->parity);
        fence_copied();
        const float2 w = cut.squares ? shared_float2(scale + slot * 8) : make_float2(1, 1);
#pragma unroll
        for (int at = 0; at < PARTS; at++) {
            const uint32_t inputs = stage + WEIGHT_BYTES + at * PART * 128;
            if constexpr (X_TOO) {
                wgmma_row_fp8<PART>(part, weights, inputs);
            } else {
                fp8_sum_wide<PART, true>(part, weights, inputs, product.max_pairs * 128);
            }
            wgmma_wait<0>();
            promote<X_TOO, PART>(sum + at * PART / 2, part, w,
                                 scale + (WEIGHT_SCALES + at * PART) * 4);
        }
        __syncwarp(); /* all lanes have read the scales */
        if (threadIdx.x % 32 == 0) {
            barrier_arrive(ring->empty + ring->at * 8);
        }
        ring_advance(ring);
    }
    if (PARTS > 1) {
        row_scales<GATED>(of_row, product, cut.squares, tile, slot);
    }
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        sum[i] *= of_row[i / 2 % 2];
    }
    moe_store<GATED, WIDTH>(product, tile, slot, sum);
}

/* By the narrowest of these widths that holds the tile's pairs. */
template <bool GATED, bool X_TOO, int WIDTH, int... WIDER>
static __device__ __forceinline__ void
multiply_any(struct stage_ring *ring, const struct moe_product &product, const struct fp8_cut &cut,
             const struct moe_tile &tile) {
    if constexpr (sizeof...(WIDER) == 0) {
        multiply<GATED, X_TOO, WIDTH>(ring, product, cut, tile);
    } else {
        if (tile.n_pairs <= WIDTH) {
            multiply<GATED, X_TOO, WIDTH>(ring, product, cut, tile);
        } else {
            multiply_any<GATED, X_TOO, WIDER...>(ring, product, cut, tile);
        }
    }
}
#endif

template <bool GATED, bool FEW, bool X_TOO>
static __global__ void __launch_bounds__(THREADS, shape<FEW, X_TOO>::BLOCKS)
    moe_fp8_kernel(const __grid_constant__ CUtensorMap w_map,
                   const __grid_constant__ struct moe_product product, const struct fp8_cut cut) {
#if HOPPER_DEVICE
    using S = shape<FEW, X_TOO>;
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 * MAX_STAGES];
    __shared__ struct moe_table table;
    struct stage_ring ring = {};
    ring.stages = (shared_address(shared) + 1023) / 1024 * 1024;
    ring.full = shared_address(barriers);
    ring.empty = ring.full + MAX_STAGES * 8;
    ring.stage_bytes = cut.stage_bytes;
    ring.n_stages = cut.n_stages;
    if (GATED) {
        dependencies_wait();
        dependents_launch();
    }
    if (threadIdx.x < 32) {
        moe_table_build(&table, product);
    } else if (threadIdx.x == 32) {
        for (int i = 0; i < cut.n_stages; i++) {
            barrier_init(ring.full + i * 8, FEEDERS + 1);
            barrier_init(ring.empty + i * 8, WORKER_WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    const int n_tiles = table.tiles[product.n_experts] * product.n_output_tiles;
    if (threadIdx.x < FEEDERS) {
        registers_give<S::FEEDER_REGISTERS>();
        feed<GATED, FEW, X_TOO>(ring, &w_map, product, cut, &table, n_tiles);
    } else {
        registers_take<S::WORKER_REGISTERS>();
        dependencies_wait();
        struct moe_tile tile = {};
        for (int number = blockIdx.x; number < n_tiles; number += gridDim.x) {
            moe_tile_find(&tile, &table, product, number);
            if constexpr (S::PAIRS == 32) {
                multiply_any<GATED, X_TOO, 8, 16, 32>(&ring, product, cut, tile);
            } else if constexpr (S::PAIRS == 64) {
                multiply_any<GATED, X_TOO, 8, 16, 32, 64>(&ring, product, cut, tile);
            } else if constexpr (S::PAIRS == 128) {
                multiply_any<GATED, X_TOO, 8, 16, 32, 64, 96, 128>(&ring, product, cut, tile);
            } else {
                multiply_any<GATED, X_TOO, 8, 16, 32, 64, 80, 96, 112, 128, 160, 192, 224, 256>(
                    &ring, product, cut, tile);
            }
        }
    }
#endif
}

template <bool GATED, bool FEW, bool X_TOO>
static cudaError_t start(const CUtensorMap &w_map, const struct moe_product *product,
                         int64_t n_pairs, int n_sms, cudaStream_t stream) {
    using S = shape<FEW, X_TOO>;
    struct fp8_cut cut;
    cut.squares = by_squares(product);
    cut.stage_bytes = WEIGHT_BYTES + product->max_pairs * S::PAIR_BYTES;
    cut.scale_bytes = (WEIGHT_SCALES + product->max_pairs) * (int)sizeof(float);
    const int fit = S::RING_BYTES / (cut.stage_bytes + cut.scale_bytes);
    cut.n_stages = fit < MAX_STAGES ? fit : MAX_STAGES;
    const int bytes = S::RING_BYTES + RING_ALIGNMENT;
    auto kernel = moe_fp8_kernel<GATED, FEW, X_TOO>;
    const cudaError_t status = shared_allow(kernel, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const int64_t most = moe_most_tiles(product, n_pairs), room = n_sms * S::BLOCKS;
    return launch(kernel, dim3((unsigned)(most < room ? most : room)), dim3(THREADS), (size_t)bytes,
                  stream, w_map, *product, cut);
}

template <bool GATED, bool X_TOO>
static cudaError_t run(struct moe_product *product, int n_tokens, cudaStream_t stream) {
    const int64_t k = product->n_inputs, n = product->n_outputs, n_experts = product->n_experts;
    CUtensorMap w_map;
    const bool mapped =
        GATED ? hopper_map_groups_fp8(&w_map, product->w, k, n / 8, n_experts)
              : hopper_map_fp8(&w_map, product->w, k, n_experts * n, k, MOE_TILE_ROWS);
    int n_sms;
    const cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess || !mapped) {
        return status != cudaSuccess ? status : cudaErrorNotSupported;
    }
    const int few = shape<true, X_TOO>::PAIRS;
    product->n_steps = (product->n_inputs + STEP - 1) / STEP;
    product->max_pairs = moe_tile_pairs(product, n_tokens, few, shape<false, X_TOO>::PAIRS);
    return (product->max_pairs <= few
                ? start<GATED, true, X_TOO>
                : start<GATED, false, X_TOO>)(w_map, product, (int64_t)n_tokens * product->n_active,
                                              n_sms, stream);
}

cudaError_t moe_fp8_run(struct moe_product *product, bool gated, int n_tokens,
                        cudaStream_t stream) {
    const struct call_fp8 *fp8 = &product->fp8;
    const bool squares = by_squares(product);
    /* Rows of weights and of inputs begin at multiples of 16 bytes. */
    if (product->n_inputs % 16 != 0 || fp8->w_rows != (squares ? (int)STEP : 1) ||
        (!squares && fp8->w_columns < product->n_inputs && fp8->w_columns != STEP) ||
        (fp8->x_too && product->x_stride % FP8_ROW_ALIGN != 0)) {
        return cudaErrorNotSupported;
    }
    auto path = gated ? (fp8->x_too ? run<true, true> : run<true, false>)
                      : (fp8->x_too ? run<false, true> : run<false, false>);
    return path(product, n_tokens, stream);
}
