/* Products with weights in fp8 on sm_90a for many tokens, by squares of 128 x 128 that share a
 * scale (rows of their own: gate_up.cu, which this is after): a tile is 128 tokens by two boxes of
 * weight rows, neighbours for a plain product, gates and the ups that belong to them for SwiGLU.
 * One thread feeds a ring of stages of 128 channels by tensor copies; two warpgroups multiply 64
 * tokens each, one box after the other: the sums of a stage leave the tensor cores for single
 * precision, by squares times their scales, while the other warpgroup multiplies. Blocks are
 * persistent and work in clusters of two that fetch half of what they share, each for both. */
#include "kernels/fp8.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/fp8.cuh"
#include "kernels/linear/head.cuh"
#include "kernels/linear/tiles.cuh"
#include "kernels/linear/wgmma.cuh"

enum {
    TILE_TOKENS = 128,
    INPUT_BYTES = TILE_TOKENS * FP8_STEP,
    WIDTH = 128, /* rows of weights that an instruction takes: one box of them, or two of 64 */
    /* Tiles of tokens that are walked before the next weights (gate_up.cu). */
    RASTER_TILES = 4096 / TILE_TOKENS,
};

struct tiling {
    int n_steps, n_token_tiles, n_output_tiles;
    int second_box; /* rows of w from a tile's first box to its second */
    int shift;      /* rows by which the first tile begins before w, where squares do */
};

template <bool GATED, int SHARING, int BOX> struct tile_ring {
    static constexpr int OUTPUTS = GATED ? BOX : 2 * BOX; /* columns of y a tile */
    static constexpr int BLOCKS = SHARING == SHARE_NONE ? 1 : 2;
    static constexpr int BOX_BYTES = BOX * FP8_STEP;
    static constexpr int STAGE_BYTES = INPUT_BYTES + 2 * BOX_BYTES;
    static constexpr int STAGES = FP8_RING_BYTES / STAGE_BYTES;
    uint32_t stages, full, empty;
    int rank; /* of the block in its cluster */
    int at, parity;
};

#if HOPPER_DEVICE
/* The last tile of tokens reaches back over its neighbour's part and stores only its own. */
static __device__ __forceinline__ int first_token(int tile, int n_tokens) {
    return min(tile * TILE_TOKENS, max(n_tokens - TILE_TOKENS, 0));
}

template <bool GATED, int SHARING, int BOX>
static __device__ __forceinline__ void
tiles_feed(struct tile_ring<GATED, SHARING, BOX> ring, const CUtensorMap *x_map,
           const CUtensorMap *w_map, int n_tokens, const struct tiling &t, int n_deals) {
    using R = tile_ring<GATED, SHARING, BOX>;
    const int x_bytes = min(n_tokens, (int)TILE_TOKENS) * FP8_STEP;
    for (int deal = blockIdx.x / R::BLOCKS; deal < n_deals; deal += gridDim.x / R::BLOCKS) {
        int token_tile, output_tile;
        tile_of<SHARING, RASTER_TILES>(t, deal, ring.rank, &token_tile, &output_tile);
        const int token = first_token(token_tile, n_tokens);
        const int output = output_tile * R::OUTPUTS - t.shift;
        for (int step = 0; step < t.n_steps; step++) {
            const uint32_t to = ring.stages + ring.at * R::STAGE_BYTES;
            const uint32_t barrier = ring.full + ring.at * 8;
            const int channel = step * FP8_STEP;
            barrier_wait(ring.empty + ring.at * 8, ring.parity ^ 1);
            barrier_expect(barrier, x_bytes + 2 * R::BOX_BYTES);
            if (SHARING == SHARE_INPUTS) {
                tensor_copy_to(to + ring.rank * INPUT_BYTES / 2, x_map, barrier, channel, 0,
                               token + ring.rank * TILE_TOKENS / 2, 3);
            } else {
                tensor_copy(to, x_map, barrier, channel, 0, token);
            }
            for (int box = 0; box < 2; box++) {
                const uint32_t box_to = to + INPUT_BYTES + box * R::BOX_BYTES;
                const int row = output + box * t.second_box;
                if (SHARING != SHARE_WEIGHTS) {
                    tensor_copy(box_to, w_map, barrier, channel, 0, row);
                } else if (box == ring.rank) {
                    tensor_copy_to(box_to, w_map, barrier, channel, 0, row, 3);
                }
            }
            ring_advance(&ring);
        }
    }
}

/* A thread's share of a tile: two rows of tokens, of each box two neighbouring columns of every
 * eight. */
struct tile_share {
    int64_t row[2]; /* of x and y */
    bool ours[2];   /* the tile's own and there */
    int output;     /* the box's first column of y; that of a second one is BOX on */
};

template <bool GATED, int SHARING, int BOX>
static __device__ __forceinline__ struct tile_share
share_of(const struct tile_ring<GATED, SHARING, BOX> &ring, const struct fp8_product &p,
         const struct tiling &t, int deal) {
    using R = tile_ring<GATED, SHARING, BOX>;
    int token_tile, output_tile;
    tile_of<SHARING, RASTER_TILES>(t, deal, ring.rank, &token_tile, &output_tile);
    struct tile_share share;
    const int lane = threadIdx.x % 32, first = first_token(token_tile, p.n_tokens);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = first + (threadIdx.x / 32 - 4) * 16 + half * 8 + lane / 4;
        share.ours[half] = row >= token_tile * TILE_TOKENS && row < p.n_tokens;
        share.row[half] = min(row, p.n_tokens - 1);
    }
    share.output = output_tile * R::OUTPUTS - t.shift;
    return share;
}

/* Sums of one row half of four groups of eight columns, as this thread's pair of each. */
template <int BOX>
static __device__ __forceinline__ void four_pack(uint32_t (&word)[4], const float (&sum)[BOX / 2],
                                                 int group, int half) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int i = (group + j) * 4 + half * 2;
        word[j] = bf16_pack(sum[i], sum[i + 1]);
    }
}

/* Where this thread's 16 bytes of four groups of columns of a box are in y; -1: nowhere. */
static __device__ __forceinline__ int64_t group_place(const struct fp8_product &p,
                                                      const struct tile_share &share, int output,
                                                      int group, int half) {
    const int column = output + (group + threadIdx.x % 4) * 8;
    return share.ours[half] && column >= 0 && column < p.n_outputs
               ? share.row[half] * p.y_stride + column
               : -1;
}

/* What is added to a box, as it is stored: all of it is asked for before any of y is written, which
 * may be the same memory. */
template <int BOX> struct box_added { uint4 raw[BOX / 32][2]; };

template <int BOX>
static __device__ __forceinline__ void added_load(struct box_added<BOX> *to,
                                                  const struct fp8_product &p,
                                                  const struct tile_share &share, int output) {
#pragma unroll
    for (int four = 0; four < BOX / 32; four++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t at = group_place(p, share, output, four * 4, half);
            to->raw[four][half] = make_uint4(0, 0, 0, 0);
            if (at >= 0) {
                to->raw[four][half] = *reinterpret_cast<const uint4 *>(
                    static_cast<const __nv_bfloat16 *>(p.add) + at);
            }
        }
    }
}

template <int BOX>
static __device__ __forceinline__ void added_sum(float (&sum)[BOX / 2],
                                                 const struct box_added<BOX> &added) {
#pragma unroll
    for (int i = 0; i < BOX / 16; i++) {
        const uint4 raw = added.raw[i / 2][i % 2];
        uint32_t add[4] = {raw.x, raw.y, raw.z, raw.w};
        quad_transpose(add, threadIdx.x % 32);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 f = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&add[j]));
            sum[(i / 2 * 4 + j) * 4 + i % 2 * 2] += f.x;
            sum[(i / 2 * 4 + j) * 4 + i % 2 * 2 + 1] += f.y;
        }
    }
}

/* Stores a box of y in bf16, 16 bytes a lane after four lanes have traded groups of columns. */
template <int BOX>
static __device__ __forceinline__ void box_store(const struct fp8_product &p,
                                                 const struct tile_share &share, int output,
                                                 float (&sum)[BOX / 2]) {
#pragma unroll
    for (int group = 0; group < BOX / 8; group += 4) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t at = group_place(p, share, output, group, half);
            uint32_t word[4];
            four_pack<BOX>(word, sum, group, half);
            quad_transpose(word, threadIdx.x % 32);
            if (at >= 0) {
                *reinterpret_cast<uint4 *>(static_cast<__nv_bfloat16 *>(p.y) + at) =
                    make_uint4(word[0], word[1], word[2], word[3]);
            }
        }
    }
}

/* Both boxes of a tile, with what is added to them. */
template <int BOX>
static __device__ __forceinline__ void
boxes_store(const struct fp8_product &p, const struct tile_share &share, float (&sum)[2][BOX / 2]) {
    if (p.add) {
        struct box_added<BOX> added[2];
#pragma unroll
        for (int box = 0; box < 2; box++) {
            added_load<BOX>(&added[box], p, share, share.output + box * BOX);
        }
#pragma unroll
        for (int box = 0; box < 2; box++) {
            added_sum<BOX>(sum[box], added[box]);
        }
    }
#pragma unroll
    for (int box = 0; box < 2; box++) {
        box_store<BOX>(p, share, share.output + box * BOX, sum[box]);
    }
}

/* Stores a box of y, whose columns share a scale, in fp8: what a row of it in bf16 would be
 * quantised to. */
static __device__ __forceinline__ void codes_store(const struct fp8_product &p,
                                                   const struct tile_share &share,
                                                   float (&sum)[FP8_STEP / 2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float x[FP8_STEP / 4], most = 0;
#pragma unroll
        for (int i = 0; i < FP8_STEP / 4; i++) {
            const float exact = sum[i / 2 * 4 + half * 2 + i % 2];
            x[i] = __bfloat162float(__float2bfloat16_rn(exact));
            most = fmaxf(most, fabsf(x[i]));
        }
        uint8_t *row = p.codes + share.row[half] * fp8_row_bytes(p.n_outputs, FP8_STEP);
        quad_store_codes(x, most, row + share.output,
                         reinterpret_cast<float *>(row + p.n_outputs) + share.output / FP8_STEP,
                         share.ours[half]);
    }
}

/* The head's rows: what is known of the logits of a tile. */
template <bool STATISTICS>
static __device__ __forceinline__ void
summaries_store(const struct fp8_product &p, const struct tile_share &share, int n_output_tiles,
                float (&logit)[FP8_SUMMED_OUTPUTS / 2]) {
    const int lane = threadIdx.x % 32, token = share.output + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const struct head_summary<STATISTICS> summary = row_summary<FP8_SUMMED_OUTPUTS, STATISTICS>(
            logit, half, token, p.n_outputs - token, p.rounded);
        if (lane % 4 == 0 && share.ours[half]) {
            static_cast<struct head_summary<STATISTICS> *>(
                p.y)[share.row[half] * n_output_tiles + share.output / FP8_SUMMED_OUTPUTS] =
                summary;
        }
    }
}

/* Where the scales of a thread's two rows of inputs and of a tile's two boxes are, by squares. */
struct tile_scales {
    const float *x[2], *w[2];
};

/* What the sums of a step are scaled by: [box][row]. */
static __device__ __forceinline__ void scales_load(float (&to)[4], const struct tile_scales &from,
                                                   int step) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        to[i] = __ldg(from.x[i] + step);
        to[2 + i] = __ldg(from.w[i] + step);
    }
}

template <int BOX>
static __device__ __forceinline__ void promote(float (&sum)[BOX / 2], const float *part,
                                               const float (&scale)[4], int box) {
    const float of_row[2] = {scale[0] * scale[2 + box], scale[1] * scale[2 + box]};
#pragma unroll
    for (int i = 0; i < BOX / 2; i++) {
        sum[i] = fmaf(part[i], of_row[i / 2 % 2], sum[i]);
    }
}

template <class RING>
static __device__ __forceinline__ void stage_release(const RING &ring, int at) {
    if (threadIdx.x % 128 == 0) {
        for (int block = 0; block < RING::BLOCKS; block++) {
            RING::BLOCKS == 1 ? barrier_arrive(ring.empty + at * 8)
                              : barrier_arrive_at(ring.empty + at * 8, block);
        }
    }
}

/* The sums of a tile whose boxes are an instruction's each: one box after the other. */
template <class RING>
static __device__ __forceinline__ void wide_sum(RING *ring, const struct tile_scales &scales,
                                                int n_steps, float (&sum)[2][WIDTH / 2]) {
    const int group_bytes = (threadIdx.x / 128 - 1) * INPUT_BYTES / 2;
    float part[WIDTH / 2], scale[4], next[4], later[4];
    scales_load(scale, scales, 0);
    scales_load(next, scales, min(1, n_steps - 1));
    for (int step = 0; step < n_steps; step++) {
        const uint32_t stage = ring->stages + ring->at * RING::STAGE_BYTES;
        scales_load(later, scales, min(step + 2, n_steps - 1));
        barrier_wait(ring->full + ring->at * 8, ring->parity);
#pragma unroll
        for (int box = 0; box < 2; box++) {
            wgmma_row_fp8<WIDTH>(part, stage + group_bytes,
                                 stage + INPUT_BYTES + box * RING::BOX_BYTES);
            wgmma_wait<0>();
            if (box == 1) {
                stage_release(*ring, ring->at);
            }
            promote<WIDTH>(sum[box], part, scale, box);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            scale[i] = next[i];
            next[i] = later[i];
        }
        ring_advance(ring);
    }
}

/* Of a tile whose two boxes are one instruction's: a step's products run while the sums of the one
 * before are taken. */
template <class RING>
static __device__ __forceinline__ void narrow_sum(RING *ring, const struct tile_scales &scales,
                                                  int n_steps, float (&sum)[2][WIDTH / 4]) {
    const int group_bytes = (threadIdx.x / 128 - 1) * INPUT_BYTES / 2;
    float part[2][WIDTH / 2], scale[2][4];
    int previous = -1;
    auto begin = [&](int step, float(&to)[WIDTH / 2], float(&of)[4]) {
        const uint32_t stage = ring->stages + ring->at * RING::STAGE_BYTES;
        scales_load(of, scales, step);
        barrier_wait(ring->full + ring->at * 8, ring->parity);
        wgmma_row_fp8<WIDTH>(to, stage + group_bytes, stage + INPUT_BYTES);
    };
    auto end = [&](const float(&from)[WIDTH / 2], const float(&of)[4]) {
        stage_release(*ring, previous);
        promote<WIDTH / 2>(sum[0], from, of, 0);
        promote<WIDTH / 2>(sum[1], from + WIDTH / 4, of, 1);
    };
    auto advance = [&]() {
        previous = ring->at;
        ring_advance(ring);
    };
    begin(0, part[0], scale[0]);
    advance();
    int step = 1;
    for (; step + 1 < n_steps; step += 2) {
        begin(step, part[1], scale[1]);
        wgmma_wait<1>();
        end(part[0], scale[0]);
        advance();
        begin(step + 1, part[0], scale[0]);
        wgmma_wait<1>();
        end(part[1], scale[1]);
        advance();
    }
    if (step < n_steps) {
        begin(step, part[1], scale[1]);
        wgmma_wait<1>();
        end(part[0], scale[0]);
        advance();
        wgmma_wait<0>();
        end(part[1], scale[1]);
    } else {
        wgmma_wait<0>();
        end(part[0], scale[0]);
    }
}

template <bool GATED, int SHARING, int BOX>
static __device__ __forceinline__ void tiles_work(struct tile_ring<GATED, SHARING, BOX> ring,
                                                  const struct fp8_product &p,
                                                  const struct tiling &t, int n_deals) {
    using R = tile_ring<GATED, SHARING, BOX>;
    const int64_t n_rows = (int64_t)p.n_outputs * (GATED ? 2 : 1);
    float sum[2][BOX / 2];
    for (int deal = blockIdx.x / R::BLOCKS; deal < n_deals; deal += gridDim.x / R::BLOCKS) {
        const struct tile_share share = share_of<GATED, SHARING, BOX>(ring, p, t, deal);
        struct tile_scales scales;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int64_t row = share.output + (int64_t)i * t.second_box;
            scales.x[i] = fp8_scales_of_input(p, share.row[i]);
            scales.w[i] = fp8_scales_of<true>(p, min(row, n_rows - 1));
#pragma unroll
            for (int j = 0; j < BOX / 2; j++) {
                sum[i][j] = 0;
            }
        }
        if constexpr (BOX == WIDTH) {
            wide_sum(&ring, scales, t.n_steps, sum);
        } else {
            narrow_sum(&ring, scales, t.n_steps, sum);
        }
        if constexpr (GATED) {
#pragma unroll
            for (int i = 0; i < BOX / 2; i++) {
                sum[0][i] = swiglu(sum[0][i], sum[1][i]);
            }
            if constexpr (BOX == FP8_STEP) {
                if (p.codes) {
                    codes_store(p, share, sum[0]);
                    continue;
                }
            }
            box_store<BOX>(p, share, share.output, sum[0]);
        } else {
            if constexpr (2 * BOX == FP8_SUMMED_OUTPUTS) {
                if (p.outcome == FP8_SUMMED) {
                    auto &logits = reinterpret_cast<float(&)[BOX]>(sum);
                    p.statistics ? summaries_store<true>(p, share, t.n_output_tiles, logits)
                                 : summaries_store<false>(p, share, t.n_output_tiles, logits);
                    continue;
                }
            }
            boxes_store<BOX>(p, share, sum);
        }
    }
}
#endif

template <bool GATED, int SHARING, int BOX>
static __global__ void __launch_bounds__(PRODUCT_THREADS, 1)
    fp8_tiles_kernel(const __grid_constant__ CUtensorMap x_map,
                     const __grid_constant__ CUtensorMap w_map,
                     const __grid_constant__ struct fp8_product p,
                     const __grid_constant__ struct tiling t) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    using R = tile_ring<GATED, SHARING, BOX>;
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 * R::STAGES];
    R ring = {};
    ring.stages = (shared_address(shared) + 1023) / 1024 * 1024;
    ring.full = shared_address(barriers);
    ring.empty = ring.full + R::STAGES * 8;
    ring.rank = R::BLOCKS == 1 ? 0 : blockIdx.x % R::BLOCKS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < R::STAGES; i++) {
            barrier_init(ring.full + i * 8, 1);
            barrier_init(ring.empty + i * 8, 2 * R::BLOCKS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    blocks_sync<R::BLOCKS>();
    const int n_deals = t.n_token_tiles * t.n_output_tiles / R::BLOCKS;
    if (threadIdx.x < 128) {
        registers_give<40>();
        if (threadIdx.x == 0) {
            tiles_feed(ring, &x_map, &w_map, p.n_tokens, t, n_deals);
        }
    } else {
        registers_take<232>();
        tiles_work<GATED, SHARING, BOX>(ring, p, t, n_deals);
    }
    /* A block's memory must outlive its neighbour's copies and arrivals. */
    blocks_sync<R::BLOCKS>();
#endif
}

template <bool GATED, int SHARING, int BOX>
static cudaError_t tiles_start(const CUtensorMap &x_map, const CUtensorMap &w_map,
                               const struct fp8_product &p, const struct tiling &t, int n_sms,
                               cudaStream_t stream) {
    auto kernel = fp8_tiles_kernel<GATED, SHARING, BOX>;
    const int bytes = FP8_RING_BYTES + RING_ALIGNMENT, n_blocks = SHARING == SHARE_NONE ? 1 : 2;
    const int64_t n_tiles = (int64_t)t.n_token_tiles * t.n_output_tiles;
    const cudaError_t status = shared_allow(kernel, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const dim3 grid((unsigned)((n_tiles < n_sms ? n_tiles : n_sms) / n_blocks * n_blocks));
    return launch_clusters(kernel, grid, dim3(PRODUCT_THREADS), n_blocks, (size_t)bytes, stream,
                           x_map, w_map, p, t);
}

/* What a tile costs beyond its products, in rows of weights. */
enum { TILE_OVERHEAD = 32 };

template <bool GATED, int BOX>
static decltype(&tiles_start<GATED, 0, BOX>) start_of_sharing(int sharing) {
    return sharing == SHARE_WEIGHTS  ? tiles_start<GATED, SHARE_WEIGHTS, BOX>
           : sharing == SHARE_INPUTS ? tiles_start<GATED, SHARE_INPUTS, BOX>
                                     : tiles_start<GATED, SHARE_NONE, BOX>;
}

template <bool GATED>
static decltype(&tiles_start<GATED, 0, 128>) start_of(const struct tile_cut &cut) {
    return cut.width == 256 ? start_of_sharing<GATED, 128>(cut.sharing)
                            : start_of_sharing<GATED, 64>(cut.sharing);
}

cudaError_t fp8_run_tiles(const struct fp8_product *p, cudaStream_t stream) {
    const bool gated = p->outcome == FP8_GATED;
    const int boxes = gated ? 2 : 1; /* rows of w for one column of y */
    /* A box of ups must not lie in two squares, nor begin before its tile's gates. */
    const bool fits =
        p->squares ? p->w_rows == FP8_STEP &&
                         (!gated || (p->n_outputs % FP8_STEP == 0 && p->before % FP8_STEP == 0))
                   : p->w_rows == 1;
    const bool summed = p->outcome == FP8_SUMMED;
    if (!hopper_device() || !p->x_too || p->n_inputs % 16 != 0 || p->outcome == FP8_SINGLE ||
        (!summed && (p->n_outputs % 8 != 0 || p->y_stride % 8 != 0)) || !fits) {
        return cudaErrorNotSupported;
    }
    if (p->n_tokens == 0) {
        return cudaSuccess;
    }
    if (!p->squares) {
        return fp8_run_channels(p, stream);
    }
    int n_sms;
    const cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess) {
        return status;
    }
    struct tiling t = {};
    t.shift = p->before % FP8_STEP;
    struct tile_cut cut = tile_cut_of<TILE_TOKENS>(256, p->n_tokens, p->n_outputs + t.shift,
                                                   256 / boxes, n_sms, TILE_OVERHEAD);
    const struct tile_cut narrow = tile_cut_of<TILE_TOKENS>(
        128, p->n_tokens, p->n_outputs + t.shift, 128 / boxes, n_sms, TILE_OVERHEAD);
    cut = narrow.cost < cut.cost && !summed ? narrow : cut;
    t.n_token_tiles = cut.n_token_tiles;
    t.n_output_tiles = cut.n_output_tiles;
    t.second_box = gated ? p->n_outputs : cut.width / 2;
    t.n_steps = (p->n_inputs + FP8_STEP - 1) / FP8_STEP;
    const int input_box = cut.sharing == SHARE_INPUTS ? TILE_TOKENS / 2
                          : p->n_tokens < TILE_TOKENS ? p->n_tokens
                                                      : TILE_TOKENS;
    CUtensorMap x_map, w_map;
    if (!hopper_map_fp8(&x_map, p->x, p->n_inputs, p->n_tokens, p->x_stride, input_box) ||
        !hopper_map_fp8(&w_map, p->w, p->n_inputs, (int64_t)p->n_outputs * boxes, p->n_inputs,
                        cut.width / 2)) {
        return cudaErrorNotSupported;
    }
    auto start = gated ? start_of<true>(cut) : start_of<false>(cut);
    const cudaError_t started = start(x_map, w_map, *p, t, n_sms, stream);
    return started == cudaSuccess && cut.width != 2 * FP8_STEP ? fp8_codes(p, stream) : started;
}
