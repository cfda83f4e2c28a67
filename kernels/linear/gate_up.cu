/* Products with weights [N, C] on sm_90a, in bf16 or in fp8 with a scale for each row of weights
 * and of inputs, y = x w' + add or y = silu(x g') * (x u'), or the head's summaries of x w', with
 * the epilogue in the registers that hold the sums and the stores of a tile spread over the
 * products of the next (at once, they cost up to 5 %). A tile is 128 tokens by two boxes of weight
 * rows: neighbours for a plain product, gates and the ups that belong to them for SwiGLU, so that
 * one warpgroup's instruction makes both factors of its outputs and every thread holds matching
 * pairs. One thread feeds a ring of shared-memory stages by tensor copies; two warpgroups multiply
 * 64 tokens each. Blocks are persistent and work in clusters of two that fetch half of what they
 * share, weights or inputs, each for both. Sums of fp8 stay on the tensor cores from a tile's first
 * step to its last, in about 14 bits: on random numbers they are off by 0.0012 of their size after
 * 4096 channels and by 0.0026 after 12288, where rounding to bf16 costs 0.0017 (one H200). */
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/fp8.cuh"
#include "kernels/linear/head.cuh"
#include "kernels/linear/tiles.cuh"
#include "kernels/linear/wgmma.cuh"

enum {
    TILE_TOKENS = 128,
    STEP_BYTES = 128, /* of a row: 64 channels of bf16, FP8_STEP of fp8 */
    INPUT_BYTES = TILE_TOKENS * STEP_BYTES,
    /* Tiles of tokens that are walked before the next weights: their inputs (16 MiB at 4096
     * channels) and the weights of the tiles in flight fit in the L2 cache together. */
    RASTER_TILES = 2048 / TILE_TOKENS,
};

/* What is multiplied, and what becomes of it: SUMMED is the head's, in fp8 (FP8_SUMMED). */
enum kind { WIDE, CODES, SUMMED };

struct product {
    void *y;
    const void *add; /* NULL: nothing is added */
    int64_t y_stride;
    int n_tokens, n_outputs, n_steps;
    int n_token_tiles, n_output_tiles;
    int second_box; /* rows of w from a tile's first box to its second */
    /* In fp8: scales of the rows of w, and of the first row of x; the next is x_stride bytes on. */
    const float *w_scale;
    const char *x_scale;
    int64_t x_stride;
    bool statistics, rounded; /* SUMMED */
};

/* What a block's threads share of the launch: the ring of stages and its barriers. */
template <bool GATED, int SHARING, int WIDTH, int KIND> struct stage_ring {
    static constexpr int OUTPUTS = GATED ? WIDTH / 2 : WIDTH; /* columns of y a tile */
    static constexpr int BLOCKS = SHARING == SHARE_NONE ? 1 : 2;
    static constexpr bool SUMMED_UP = KIND == SUMMED;
    static constexpr int CHANNELS = KIND == WIDE ? 64 : FP8_STEP; /* a step */
    static constexpr int BOX_BYTES = WIDTH / 2 * STEP_BYTES;
    static constexpr int STAGE_BYTES = INPUT_BYTES + 2 * BOX_BYTES;
    static constexpr int STAGES = PRODUCT_RING_BYTES / STAGE_BYTES;
    uint32_t stages, full, empty;
    int rank; /* of the block in its cluster */
    int at, parity;
};

#if HOPPER_DEVICE
/* Where a tile starts: the last one reaches back over its neighbour's part rather than out of
 * bounds, where tensor copies are slow (lab/README.md), and stores only its own. */
static __device__ __forceinline__ int tile_start(int tile, int width, int n) {
    return min(tile * width, max(n - width, 0));
}

/* Summaries must not count an output twice: their last tile does not reach back. */
template <class RING>
static __device__ __forceinline__ int first_output(int tile, const struct product &product) {
    return RING::SUMMED_UP ? tile * RING::OUTPUTS
                           : tile_start(tile, RING::OUTPUTS, product.n_outputs);
}

template <bool GATED, int SHARING, int WIDTH, int KIND>
static __device__ __forceinline__ void
product_feed(struct stage_ring<GATED, SHARING, WIDTH, KIND> ring, const CUtensorMap *x_map,
             const CUtensorMap *w_map, const struct product &product, int n_deals) {
    using R = stage_ring<GATED, SHARING, WIDTH, KIND>;
    /* Fewer tokens than a tile: the rest of its memory is never written, nor its rows stored. */
    const int x_bytes = min(product.n_tokens, (int)TILE_TOKENS) * STEP_BYTES;
    for (int deal = blockIdx.x / R::BLOCKS; deal < n_deals; deal += gridDim.x / R::BLOCKS) {
        int token_tile, output_tile;
        tile_of<SHARING, RASTER_TILES>(product, deal, ring.rank, &token_tile, &output_tile);
        const int token = tile_start(token_tile, TILE_TOKENS, product.n_tokens);
        const int output = first_output<R>(output_tile, product);
        for (int step = 0; step < product.n_steps; step++) {
            const uint32_t to = ring.stages + ring.at * R::STAGE_BYTES;
            const uint32_t barrier = ring.full + ring.at * 8;
            const int channel = step * R::CHANNELS;
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
                const int row = output + box * product.second_box;
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

/* A thread's share of a finished tile of y, two neighbouring columns a word, as the sums lay. It
 * is stored while the next tile's products run, in pieces of 8 rows by 32 columns a warp: column
 * group i of row half h is piece 2 i + h, and within it words 8 i + 2 j + h, j = 0 .. 3. */
template <int OUTPUTS> struct finished {
    uint32_t word[OUTPUTS / 4];
    int64_t at;    /* element of y where this thread's 16 bytes of piece 0 go */
    uint32_t ours; /* a bit a piece: inside the tile's own part of y */
};

static __device__ __forceinline__ int64_t piece_offset(int piece, int64_t y_stride) {
    return piece % 2 * 8 * y_stride + piece / 2 * 32;
}

template <int OUTPUTS>
static __device__ __forceinline__ void finished_place(struct finished<OUTPUTS> *done,
                                                      const struct product &product, int token_tile,
                                                      int output_tile) {
    const int lane = threadIdx.x % 32, row = (threadIdx.x / 32 - 4) * 16 + lane / 4;
    const int token = tile_start(token_tile, TILE_TOKENS, product.n_tokens) + row;
    const int first = tile_start(output_tile, OUTPUTS, product.n_outputs) + lane % 4 * 8;
    done->at = token * product.y_stride + first;
    done->ours = 0;
#pragma unroll
    for (int piece = 0; piece < OUTPUTS / 16; piece++) {
        const int y_row = token + piece % 2 * 8, column = first + piece / 2 * 32;
        if (y_row >= token_tile * TILE_TOKENS && y_row < product.n_tokens &&
            column >= output_tile * OUTPUTS && column < product.n_outputs) {
            done->ours |= 1u << piece;
        }
    }
}

/* Loads what is added to a tile long before its sums are there, 16 bytes a lane. */
template <int OUTPUTS>
static __device__ __forceinline__ void finished_load(struct finished<OUTPUTS> *done,
                                                     const struct product &product) {
    const __nv_bfloat16 *add = static_cast<const __nv_bfloat16 *>(product.add) + done->at;
#pragma unroll
    for (int piece = 0; piece < OUTPUTS / 16; piece++) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (done->ours >> piece & 1) {
            v = *reinterpret_cast<const uint4 *>(add + piece_offset(piece, product.y_stride));
        }
        uint32_t *word = done->word + piece / 2 * 8 + piece % 2;
        word[0] = v.x, word[2] = v.y, word[4] = v.z, word[6] = v.w;
    }
}

/* Four lanes hold two neighbouring columns of each of four groups of eight; they trade until each
 * has one group, and back. */
template <int OUTPUTS>
static __device__ __forceinline__ void
piece_trade(uint32_t (&word)[4], const struct finished<OUTPUTS> &done, int piece) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        word[j] = done.word[piece / 2 * 8 + j * 2 + piece % 2];
    }
    quad_transpose(word, threadIdx.x % 32);
}

template <int OUTPUTS>
static __device__ __forceinline__ void piece_store(const struct finished<OUTPUTS> &done, int piece,
                                                   const struct product &product) {
    uint32_t word[4];
    piece_trade(word, done, piece);
    if (done.ours >> piece & 1) {
        __nv_bfloat16 *y = static_cast<__nv_bfloat16 *>(product.y) + done.at;
        /* As uint4: a struct of bf16 pairs is stored in four pieces. */
        *reinterpret_cast<uint4 *>(y + piece_offset(piece, product.y_stride)) =
            make_uint4(word[0], word[1], word[2], word[3]);
    }
}

/* Rounds a tile's sums, once; a gate's up is half the tile's width further on. */
template <bool GATED, int WIDTH, int OUTPUTS>
static __device__ __forceinline__ void finished_round(struct finished<OUTPUTS> *done,
                                                      const float (&sum)[WIDTH / 2], bool added) {
    if (!GATED && added) {
#pragma unroll
        for (int piece = 0; piece < OUTPUTS / 16; piece++) {
            uint32_t word[4];
            piece_trade(word, *done, piece);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = piece / 2 * 8 + j * 2 + piece % 2;
                const float2 add =
                    __bfloat1622float2(*reinterpret_cast<__nv_bfloat162 *>(&word[j]));
                done->word[i] = bf16_pack(sum[i * 2] + add.x, sum[i * 2 + 1] + add.y);
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < OUTPUTS / 4; i++) {
        if constexpr (GATED) {
            done->word[i] = bf16_pack(swiglu(sum[i * 2], sum[i * 2 + WIDTH / 4]),
                                      swiglu(sum[i * 2 + 1], sum[i * 2 + 1 + WIDTH / 4]));
        } else {
            done->word[i] = bf16_pack(sum[i * 2], sum[i * 2 + 1]);
        }
    }
}

template <int WIDTH, int KIND>
static __device__ __forceinline__ void products(float (&sum)[WIDTH / 2], uint32_t inputs,
                                                uint32_t weights, bool first) {
    const uint64_t a = operand_rows(inputs), b = operand_rows(weights);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < STEP_BYTES / 32; k++) {
        if constexpr (KIND != WIDE) {
            wgmma_m64k32_fp8<WIDTH>(sum, a + k * 2, b + k * 2, !first || k > 0);
        } else {
            wgmma_m64k16<WIDTH>(sum, a + k * 2, b + k * 2, !first || k > 0);
        }
    }
    wgmma_commit();
}

/* A tile's scales of fp8: asked for at its beginning, those of the weights by all threads of a
 * warpgroup, which trade them at its end. */
template <int WIDTH> struct tile_factors { float w[(WIDTH + 127) / 128], x[2]; };

template <class RING, int WIDTH>
static __device__ __forceinline__ void factors_load(struct tile_factors<WIDTH> *to,
                                                    const struct product &product, int token_tile,
                                                    int output_tile, int64_t n_rows) {
    const int output = first_output<RING>(output_tile, product), lane = threadIdx.x % 32;
    const int token = tile_start(token_tile, TILE_TOKENS, product.n_tokens) +
                      (threadIdx.x / 32 - 4) * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < (WIDTH + 127) / 128; i++) {
        const int at = i * 128 + threadIdx.x % 128;
        const int64_t row =
            output + (at < WIDTH / 2 ? at : (int64_t)product.second_box + at - WIDTH / 2);
        to->w[i] = at < WIDTH && row < n_rows ? __ldg(product.w_scale + row) : 0;
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t row = min(token + half * 8, product.n_tokens - 1);
        to->x[half] = *reinterpret_cast<const float *>(product.x_scale + row * product.x_stride);
    }
}

/* own: room for 256 scales of this warpgroup's. */
template <int WIDTH>
static __device__ __forceinline__ void
factors_apply(float (&sum)[WIDTH / 2], const struct tile_factors<WIDTH> &factors, float *own) {
#pragma unroll
    for (int i = 0; i < (WIDTH + 127) / 128; i++) {
        own[i * 128 + threadIdx.x % 128] = factors.w[i];
    }
    named_barrier_sync(threadIdx.x / 128, 128);
#pragma unroll
    for (int group = 0; group < WIDTH / 8; group++) {
        const float2 w = reinterpret_cast<const float2 *>(own)[group * 4 + threadIdx.x % 4];
        sum[group * 4] *= w.x * factors.x[0];
        sum[group * 4 + 1] *= w.y * factors.x[0];
        sum[group * 4 + 2] *= w.x * factors.x[1];
        sum[group * 4 + 3] *= w.y * factors.x[1];
    }
}

/* The head's: what is known of the logits of a tile's rows. */
template <bool STATISTICS>
static __device__ __forceinline__ void summaries_store(const struct product &product,
                                                       int token_tile, int output_tile,
                                                       float (&logit)[FP8_SUMMED_OUTPUTS / 2]) {
    const int lane = threadIdx.x % 32, output = output_tile * FP8_SUMMED_OUTPUTS + lane % 4 * 2;
    const int first = tile_start(token_tile, TILE_TOKENS, product.n_tokens) +
                      (threadIdx.x / 32 - 4) * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const struct head_summary<STATISTICS> summary = row_summary<FP8_SUMMED_OUTPUTS, STATISTICS>(
            logit, half, output, product.n_outputs - output, product.rounded);
        const int row = first + half * 8;
        if (lane % 4 == 0 && row >= token_tile * TILE_TOKENS && row < product.n_tokens) {
            static_cast<struct head_summary<STATISTICS> *>(
                product.y)[(int64_t)row * product.n_output_tiles + output_tile] = summary;
        }
    }
}

/* What a tile's end needs and can be asked for long before. */
template <class RING, bool GATED, int WIDTH, int KIND, int OUTPUTS>
static __device__ __forceinline__ void
tile_begin(struct finished<OUTPUTS> *done, struct tile_factors<WIDTH> *factors,
           const struct product &product, int token_tile, int output_tile) {
    if constexpr (KIND != WIDE) {
        factors_load<RING, WIDTH>(factors, product, token_tile, output_tile,
                                  (int64_t)product.n_outputs * (GATED ? 2 : 1));
    }
    if constexpr (KIND != SUMMED) {
        finished_place(done, product, token_tile, output_tile);
        if (!GATED && product.add) {
            finished_load(done, product);
        }
    }
}

/* scales: room for 256 of each warpgroup's. */
template <bool GATED, int WIDTH, int KIND, int OUTPUTS>
static __device__ __forceinline__ void
tile_end(struct finished<OUTPUTS> *done, float (&sum)[WIDTH / 2],
         const struct tile_factors<WIDTH> &factors, const struct product &product, int token_tile,
         int output_tile, float *scales) {
    if constexpr (KIND != WIDE) {
        factors_apply<WIDTH>(sum, factors, scales + (threadIdx.x / 128 - 1) * 256);
    }
    if constexpr (KIND == SUMMED) {
        product.statistics ? summaries_store<true>(product, token_tile, output_tile, sum)
                           : summaries_store<false>(product, token_tile, output_tile, sum);
    } else {
        finished_round<GATED, WIDTH>(done, sum, product.add);
    }
}

template <bool GATED, int SHARING, int WIDTH, int KIND>
static __device__ __forceinline__ void
product_work(struct stage_ring<GATED, SHARING, WIDTH, KIND> ring, const struct product &product,
             int n_deals, float *scales) {
    using R = stage_ring<GATED, SHARING, WIDTH, KIND>;
    constexpr int PIECES = R::OUTPUTS / 16, STORE_STEPS = 8;
    const int group_bytes = (threadIdx.x / 128 - 1) * INPUT_BYTES / 2;
    const bool leader = threadIdx.x % 128 == 0;
    float sum[WIDTH / 2];
    struct finished<R::OUTPUTS> done;
    [[maybe_unused]] struct tile_factors<WIDTH> factors;
    done.ours = 0;
    int previous = -1;
    auto release = [&]() { /* the stage before this one */
                           if (previous >= 0 && leader) {
                               for (int block = 0; block < R::BLOCKS; block++) {
                                   R::BLOCKS == 1
                                       ? barrier_arrive(ring.empty + previous * 8)
                                       : barrier_arrive_at(ring.empty + previous * 8, block);
                               }
                           }
    };
    auto multiply = [&](int step) {
        const uint32_t stage = ring.stages + ring.at * R::STAGE_BYTES;
        barrier_wait(ring.full + ring.at * 8, ring.parity);
        products<WIDTH, KIND>(sum, stage + group_bytes, stage + INPUT_BYTES, step == 0);
    };
    auto settle = [&]() {
        wgmma_wait<1>(); /* the products of the step before this one are done */
        release();
        previous = ring.at;
        ring_advance(&ring);
    };
    for (int deal = blockIdx.x / R::BLOCKS; deal < n_deals; deal += gridDim.x / R::BLOCKS) {
#pragma unroll
        for (int step = 0; step < STORE_STEPS; step++) {
            if (step < product.n_steps) {
                multiply(step);
            }
#pragma unroll
            for (int piece = step * PIECES / STORE_STEPS; piece < (step + 1) * PIECES / STORE_STEPS;
                 piece++) {
                piece_store(done, piece, product);
            }
            if (step < product.n_steps) {
                settle();
            }
        }
        int token_tile, output_tile;
        tile_of<SHARING, RASTER_TILES>(product, deal, ring.rank, &token_tile, &output_tile);
        tile_begin<R, GATED, WIDTH, KIND>(&done, &factors, product, token_tile, output_tile);
        for (int step = STORE_STEPS; step < product.n_steps; step++) {
            multiply(step);
            settle();
        }
        wgmma_wait<0>();
        release();
        previous = -1;
        tile_end<GATED, WIDTH, KIND>(&done, sum, factors, product, token_tile, output_tile, scales);
    }
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        piece_store(done, piece, product);
    }
}
#endif

template <bool GATED, int SHARING, int WIDTH, int KIND>
static __global__ void __launch_bounds__(PRODUCT_THREADS, 1)
    product_kernel(const __grid_constant__ CUtensorMap x_map,
                   const __grid_constant__ CUtensorMap w_map, const struct product product) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    using R = stage_ring<GATED, SHARING, WIDTH, KIND>;
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 * R::STAGES];
    __shared__ __align__(8) float scales[KIND == WIDE ? 1 : 2 * 256];
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
    const int n_deals = product.n_token_tiles * product.n_output_tiles / R::BLOCKS;
    if (threadIdx.x < 128) {
        registers_give<40>();
        if (threadIdx.x == 0) {
            product_feed(ring, &x_map, &w_map, product, n_deals);
        }
    } else {
        registers_take<232>();
        product_work(ring, product, n_deals, scales);
    }
    /* A block's memory must outlive its neighbour's copies and arrivals. */
    blocks_sync<R::BLOCKS>();
#endif
}

template <bool GATED, int SHARING, int WIDTH, int KIND>
static cudaError_t product_start(const CUtensorMap &x_map, const CUtensorMap &w_map,
                                 const struct product &product, int n_sms, cudaStream_t stream) {
    const int bytes = PRODUCT_RING_BYTES + RING_ALIGNMENT, n_blocks = SHARING == SHARE_NONE ? 1 : 2;
    const int64_t n_tiles = (int64_t)product.n_token_tiles * product.n_output_tiles;
    const cudaError_t status = shared_allow(product_kernel<GATED, SHARING, WIDTH, KIND>, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const dim3 grid((unsigned)((n_tiles < n_sms ? n_tiles : n_sms) / n_blocks * n_blocks));
    return launch_clusters(product_kernel<GATED, SHARING, WIDTH, KIND>, grid, dim3(PRODUCT_THREADS),
                           n_blocks, (size_t)bytes, stream, x_map, w_map, product);
}

/* What a tile costs beyond its products, in rows of weights: rounding the sums, which nothing hides
 * (SiLU is 2 to 3 % of a tile of 256 rows and 4096 channels), and the more bytes from the L2 cache
 * a product, the narrower the tile is. With it each of 27 shapes was cut within 2.5 % of the best
 * of the three widths (one H200, 2026-11-21). */
enum { TILE_OVERHEAD = 16 };

template <bool GATED, int WIDTH, int KIND>
static decltype(&product_start<GATED, 0, WIDTH, KIND>) start_of(int sharing) {
    return sharing == SHARE_WEIGHTS  ? product_start<GATED, SHARE_WEIGHTS, WIDTH, KIND>
           : sharing == SHARE_INPUTS ? product_start<GATED, SHARE_INPUTS, WIDTH, KIND>
                                     : product_start<GATED, SHARE_NONE, WIDTH, KIND>;
}

template <bool GATED, int KIND>
static decltype(&product_start<GATED, 0, 256, KIND>) start_of(const struct tile_cut &cut) {
    if constexpr (KIND != SUMMED) {
        return cut.width == 256   ? start_of<GATED, 256, KIND>(cut.sharing)
               : cut.width == 192 ? start_of<GATED, 192, KIND>(cut.sharing)
                                  : start_of<GATED, 128, KIND>(cut.sharing);
    }
    return start_of<GATED, 256, KIND>(cut.sharing);
}

/* x_stride: elements, in fp8 bytes. */
template <bool GATED, int KIND>
static cudaError_t product_run(struct product *product, const void *x, int64_t x_stride,
                               const void *w, int n_channels, cudaStream_t stream) {
    if (product->n_tokens == 0) {
        return cudaSuccess;
    }
    if (!hopper_device()) {
        return cudaErrorNotSupported;
    }
    int n_sms;
    cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess) {
        return status;
    }
    const int boxes = GATED ? 2 : 1; /* rows of w for one column of y */
    struct tile_cut cut = tile_cut_of<TILE_TOKENS>(256, product->n_tokens, product->n_outputs,
                                                   256 / boxes, n_sms, TILE_OVERHEAD);
    for (int width = 192; KIND != SUMMED && width >= 128; width -= 64) {
        const struct tile_cut other = tile_cut_of<TILE_TOKENS>(
            width, product->n_tokens, product->n_outputs, width / boxes, n_sms, TILE_OVERHEAD);
        cut = other.cost < cut.cost ? other : cut;
    }
    product->n_token_tiles = cut.n_token_tiles;
    product->n_output_tiles = cut.n_output_tiles;
    product->second_box = GATED ? product->n_outputs : cut.width / 2;
    const int channels = KIND == WIDE ? 64 : FP8_STEP;
    product->n_steps = (n_channels + channels - 1) / channels;
    const int input_box = cut.sharing == SHARE_INPUTS       ? TILE_TOKENS / 2
                          : product->n_tokens < TILE_TOKENS ? product->n_tokens
                                                            : TILE_TOKENS;
    const int64_t n_rows = (int64_t)product->n_outputs * boxes;
    CUtensorMap x_map, w_map;
    const bool mapped =
        KIND == WIDE
            ? hopper_map(&x_map, x, n_channels, 1, x_stride, product->n_tokens, x_stride,
                         input_box) &&
                  hopper_map(&w_map, w, n_channels, 1, n_channels, n_rows, n_channels,
                             cut.width / 2)
            : hopper_map_fp8(&x_map, x, n_channels, product->n_tokens, x_stride, input_box) &&
                  hopper_map_fp8(&w_map, w, n_channels, n_rows, n_channels, cut.width / 2);
    return mapped ? start_of<GATED, KIND>(cut)(x_map, w_map, *product, n_sms, stream)
                  : cudaErrorNotSupported;
}

cudaError_t fp8_run_channels(const struct fp8_product *p, cudaStream_t stream) {
    struct product product = {};
    product.y = p->y;
    product.add = p->add;
    product.y_stride = p->y_stride;
    product.n_tokens = p->n_tokens;
    product.n_outputs = p->n_outputs;
    product.w_scale = p->w_scale + p->before;
    product.x_scale = static_cast<const char *>(p->x) + p->n_inputs;
    product.x_stride = p->x_stride;
    product.statistics = p->statistics;
    product.rounded = p->rounded;
    auto run = p->outcome == FP8_GATED    ? product_run<true, CODES>
               : p->outcome == FP8_SUMMED ? product_run<false, SUMMED>
                                          : product_run<false, CODES>;
    const cudaError_t status = run(&product, p->x, p->x_stride, p->w, p->n_inputs, stream);
    return status == cudaSuccess ? fp8_codes(p, stream) : status;
}

extern "C" cudaError_t kernel_gate_up(const struct call_gate_up *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0 || call->n_hidden <= 0 || call->n_hidden % 8 != 0 ||
        call->n_hidden > INT32_MAX / 2 || call->x_stride % 8 != 0 || call->y_stride % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    struct product product = {};
    product.y = call->y;
    product.y_stride = call->y_stride;
    product.n_tokens = call->n_tokens;
    product.n_outputs = call->n_hidden;
    return product_run<true, WIDE>(&product, call->x, call->x_stride, call->w, call->n_channels,
                                   stream);
}

extern "C" cudaError_t kernel_linear_wgmma(const struct call_linear *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_inputs <= 0 ||
        call->n_inputs % 8 != 0 || call->n_outputs <= 0 || call->n_outputs % 8 != 0 ||
        call->x_stride % 8 != 0 || call->y_stride % 8 != 0 || call->by_inputs) {
        return cudaErrorInvalidValue;
    }
    struct product product = {};
    product.y = call->y;
    product.add = call->add;
    product.y_stride = call->y_stride;
    product.n_tokens = call->n_tokens;
    product.n_outputs = call->n_outputs;
    return product_run<false, WIDE>(&product, call->x, call->x_stride, call->w, call->n_inputs,
                                    stream);
}
