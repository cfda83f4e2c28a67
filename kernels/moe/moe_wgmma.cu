/* The experts' products on sm_90a (moe.cuh). A warpgroup fetches: one thread the weights by tensor
 * copies, all of them the pairs' inputs, row by row, by asynchronous copies; both fill the stages
 * of one ring. Two warpgroups multiply 64 rows of weights each by as many pairs as a tile has, in
 * steps of 8 to 32. Where pairs are few all this is a stream of weights, each read once; two blocks
 * share a multiprocessor then, and one streams on while the other begins and ends its tiles. The
 * second product's blocks fetch their first weights as those of the kernel before end: that takes
 * only the starts, which are older than the first product, as that one waits for them before it
 * lets another kernel begin. */
#include "kernels/hopper.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/wgmma.cuh"
#include "kernels/moe/moe.cuh"
#include "kernels/moe/ring.cuh"

enum {
    WEIGHT_BYTES = MOE_TILE_ROWS * MOE_TILE_CHANNELS * 2,
    MAX_STAGES = 10,
    FEEDERS = MOE_FEEDERS,
    THREADS = MOE_WGMMA_THREADS,
    ROWS_APART = FEEDERS / 8, /* rows of inputs that a feeder copies 16 bytes each of */
};

/* Pairs a tile at most, a block's ring, and blocks a multiprocessor, for few pairs and for many. */
template <bool FEW> struct shape {
    static constexpr int PAIRS = FEW ? 64 : 256;
    static constexpr int RING_BYTES = FEW ? MOE_FEW_RING_BYTES : MOE_RING_BYTES;
    static constexpr int BLOCKS = FEW ? 2 : 1;
};

#if HOPPER_DEVICE
/* By one thread: a stage's weights. */
template <bool GATED>
static __device__ __forceinline__ void feed_weights(const struct stage_ring &ring, int at,
                                                    const CUtensorMap *w_map,
                                                    const struct moe_tile &tile, int step) {
    const uint32_t stage = ring.stages + at * ring.stage_bytes, full = ring.full + at * 8;
    const int channel = step * MOE_TILE_CHANNELS;
    barrier_expect(full, WEIGHT_BYTES);
    if (GATED) {
        tensor_copy_groups(stage, w_map, full, channel, tile.output_tile * MOE_SLOTS, tile.expert);
    } else {
        tensor_copy(stage, w_map, full, channel, tile.output_tile * MOE_TILE_ROWS, tile.expert);
    }
}

template <bool GATED, bool FEW>
static __device__ __forceinline__ void feed(struct stage_ring ring, const CUtensorMap *w_map,
                                            const struct moe_product &product,
                                            const struct moe_table *table, int n_tiles) {
    constexpr int TURNS = shape<FEW>::PAIRS / ROWS_APART;
    const int chunk = threadIdx.x % 8, row = threadIdx.x / 8;
    const uint32_t to_row = WEIGHT_BYTES + row * 128 + ((chunk ^ (row & 7)) << 4);
    const char *x = static_cast<const char *>(product.x) + chunk * 16;
    struct moe_tile tile = {};
    int early = 0; /* stages of the first tile whose weights are under way */
    if (!GATED) {
        if ((int)blockIdx.x < n_tiles) {
            moe_tile_find(&tile, table, product, blockIdx.x);
            early = min(ring.n_stages, product.n_steps);
            for (int i = 0; threadIdx.x == 0 && i < early; i++) {
                feed_weights<GATED>(ring, i, w_map, tile, i);
            }
        }
        dependencies_wait();
        dependents_launch();
    }
    for (int number = blockIdx.x; number < n_tiles; number += gridDim.x) {
        moe_tile_find(&tile, table, product, number);
        uint32_t from[TURNS]; /* in 16 bytes */
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            const int pair = min(row + i * ROWS_APART, tile.n_pairs - 1);
            from[i] = 0;
            if (i * ROWS_APART < tile.n_pairs) {
                from[i] =
                    (uint32_t)(moe_input_row(product, tile.first + pair) * product.x_stride / 8);
            }
        }
        for (int step = 0; step < product.n_steps; step++) {
            const uint32_t stage = ring.stages + ring.at * ring.stage_bytes;
            const uint32_t full = ring.full + ring.at * 8;
            const int channel = step * MOE_TILE_CHANNELS;
            const bool exists = channel + chunk * 8 < product.n_inputs;
            barrier_wait(ring.empty + ring.at * 8, ring.parity ^ 1);
            if (early > 0) {
                early--;
            } else if (threadIdx.x == 0) {
                feed_weights<GATED>(ring, ring.at, w_map, tile, step);
            }
#pragma unroll
            for (int i = 0; i < TURNS; i++) {
                if (i * ROWS_APART < tile.n_pairs && row + i * ROWS_APART < tile.n_pairs) {
                    copy_async(stage + to_row + i * ROWS_APART * 128,
                               x + (uint64_t)from[i] * 16 + (exists ? channel * 2 : -chunk * 16),
                               exists);
                }
            }
            barrier_arrive_copied(full);
            ring_advance(&ring);
        }
    }
    copy_async_commit();
    copy_async_wait<0>();
}

template <bool GATED, int WIDTH>
static __device__ __forceinline__ void
multiply(struct stage_ring *ring, const struct moe_product &product, const struct moe_tile &tile) {
    const int group = threadIdx.x / 128 - 1;
    const bool leader = threadIdx.x % 128 == 0;
    float sum[WIDTH / 2];
    int previous = -1;
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        sum[i] = 0; /* else all widths' sums would live from tile to tile */
    }
    for (int step = 0; step < product.n_steps; step++) {
        const uint32_t stage = ring->stages + ring->at * ring->stage_bytes;
        barrier_wait(ring->full + ring->at * 8, ring->parity);
        fence_copied();
        const uint64_t a = operand_rows(stage + group * (WEIGHT_BYTES / 2));
        const uint64_t b = operand_rows(stage + WEIGHT_BYTES);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < MOE_TILE_CHANNELS / 16; k++) {
            wgmma_m64k16<WIDTH>(sum, a + k * 2, b + k * 2, true);
        }
        wgmma_commit();
        wgmma_wait<1>(); /* the products of the step before this one are done */
        if (previous >= 0 && leader) {
            barrier_arrive(ring->empty + previous * 8);
        }
        previous = ring->at;
        ring_advance(ring);
    }
    wgmma_wait<0>();
    if (leader) {
        barrier_arrive(ring->empty + previous * 8);
    }
    moe_store<GATED, WIDTH>(product, tile, group * 4 + threadIdx.x / 32 % 4, sum);
}

/* By the narrowest of these widths that holds the tile's pairs. */
template <bool GATED, int WIDTH, int... WIDER>
static __device__ __forceinline__ void multiply_any(struct stage_ring *ring,
                                                    const struct moe_product &product,
                                                    const struct moe_tile &tile) {
    if constexpr (sizeof...(WIDER) == 0) {
        multiply<GATED, WIDTH>(ring, product, tile);
    } else {
        if (tile.n_pairs <= WIDTH) {
            multiply<GATED, WIDTH>(ring, product, tile);
        } else {
            multiply_any<GATED, WIDER...>(ring, product, tile);
        }
    }
}
#endif

template <bool GATED, bool FEW>
static __global__ void __launch_bounds__(THREADS, shape<FEW>::BLOCKS)
    moe_wgmma_kernel(const __grid_constant__ CUtensorMap w_map, const struct moe_product product,
                     int stage_bytes, int n_stages) {
#if HOPPER_DEVICE
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 * MAX_STAGES];
    __shared__ struct moe_table table;
    struct stage_ring ring = {};
    ring.stages = (shared_address(shared) + 1023) / 1024 * 1024;
    ring.full = shared_address(barriers);
    ring.empty = ring.full + MAX_STAGES * 8;
    ring.stage_bytes = stage_bytes;
    ring.n_stages = n_stages;
    if (GATED) {
        dependencies_wait();
        dependents_launch();
    }
    if (threadIdx.x < 32) {
        moe_table_build(&table, product);
    } else if (threadIdx.x == 32) {
        for (int i = 0; i < n_stages; i++) {
            barrier_init(ring.full + i * 8, FEEDERS + 1);
            barrier_init(ring.empty + i * 8, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    const int n_tiles = table.tiles[product.n_experts] * product.n_output_tiles;
    if (threadIdx.x < FEEDERS) {
        if constexpr (!FEW) {
            registers_give<56>();
        }
        feed<GATED, FEW>(ring, &w_map, product, &table, n_tiles);
    } else {
        if constexpr (!FEW) {
            registers_take<224>();
        }
        dependencies_wait();
        struct moe_tile tile = {};
        for (int number = blockIdx.x; number < n_tiles; number += gridDim.x) {
            moe_tile_find(&tile, &table, product, number);
            if constexpr (FEW) {
                multiply_any<GATED, 8, 16, 32, 64>(&ring, product, tile);
            } else {
                multiply_any<GATED, 8, 16, 32, 64, 96, 128, 160, 176, 192, 208, 224, 240, 256>(
                    &ring, product, tile);
            }
        }
    }
#endif
}

template <bool GATED, bool FEW>
static cudaError_t start_kind(const CUtensorMap &w_map, const struct moe_product *product,
                              int64_t n_pairs, int n_sms, cudaStream_t stream) {
    const int stage_bytes = WEIGHT_BYTES + product->max_pairs * MOE_TILE_CHANNELS * 2;
    const int fit = shape<FEW>::RING_BYTES / stage_bytes;
    const int n_stages = fit < MAX_STAGES ? fit : MAX_STAGES;
    const int bytes = shape<FEW>::RING_BYTES + RING_ALIGNMENT;
    const cudaError_t status = shared_allow(moe_wgmma_kernel<GATED, FEW>, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const int64_t most = moe_most_tiles(product, n_pairs), room = n_sms * shape<FEW>::BLOCKS;
    return launch(moe_wgmma_kernel<GATED, FEW>, dim3((unsigned)(most < room ? most : room)),
                  dim3(THREADS), (size_t)bytes, stream, w_map, *product, stage_bytes, n_stages);
}

template <bool GATED>
static cudaError_t start(struct moe_product *product, int n_tokens, cudaStream_t stream) {
    const int64_t n_pairs = (int64_t)n_tokens * product->n_active;
    if (!hopper_device()) {
        return cudaErrorNotSupported;
    }
    if (product->fp8.w_scale) {
        return moe_fp8_run(product, GATED, n_tokens, stream);
    }
    int n_sms;
    cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess) {
        return status;
    }
    product->max_pairs = moe_tile_pairs(product, n_tokens, shape<true>::PAIRS, shape<false>::PAIRS);
    const int64_t k = product->n_inputs, n = product->n_outputs;
    CUtensorMap w_map;
    const bool mapped = GATED ? hopper_map_groups(&w_map, product->w, k, n / 8, product->n_experts)
                              : hopper_map(&w_map, product->w, k, n, k, product->n_experts, n * k,
                                           1, MOE_TILE_ROWS);
    if (!mapped) {
        return cudaErrorNotSupported;
    }
    auto run = product->max_pairs <= shape<true>::PAIRS ? start_kind<GATED, true>
                                                        : start_kind<GATED, false>;
    return run(w_map, product, n_pairs, n_sms, stream);
}

extern "C" cudaError_t kernel_moe_gate_up_wgmma(const struct call_moe_gate_up *call,
                                                cudaStream_t stream) {
    struct moe_product product;
    if (!moe_product_of(call, &product)) {
        return cudaErrorInvalidValue;
    }
    return call->n_tokens == 0 ? cudaSuccess : start<true>(&product, call->n_tokens, stream);
}

extern "C" cudaError_t kernel_moe_down_wgmma(const struct call_moe_down *call,
                                             cudaStream_t stream) {
    struct moe_product product;
    if (!moe_product_of(call, &product)) {
        return cudaErrorInvalidValue;
    }
    return call->n_tokens == 0 ? cudaSuccess : start<false>(&product, call->n_tokens, stream);
}
