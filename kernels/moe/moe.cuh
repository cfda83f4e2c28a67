/* What the experts' products have in common on any GPU. A tile is 128 rows of an expert's weights
 * by up to max_pairs of its pairs; weights are the rows of the tensor cores' products, pairs the
 * columns, of which there may be few. For SwiGLU a tile's rows are gates and ups in turns of eight,
 * so that the thread that holds a gate holds the up that belongs to it. Blocks are persistent and
 * find their tiles from the experts' starts alone: the host knows no counts. */
#ifndef UNMASK_KERNELS_MOE_MOE_CUH
#define UNMASK_KERNELS_MOE_MOE_CUH

#include "kernels/calls.h"
#include "kernels/device.cuh"

enum { MOE_TILE_ROWS = 128, MOE_TILE_CHANNELS = 64, MOE_SLOTS = MOE_TILE_ROWS / 16 };

struct moe_product {
    const void *x, *w;
    void *y;
    const int32_t *start;
    const int32_t *order; /* NULL: inputs lie by place */
    int64_t x_stride;
    int n_active, n_experts, n_inputs, n_outputs;
    int n_output_tiles, n_steps;
    int max_pairs; /* a tile, a multiple of 8 */
    struct call_fp8 fp8;
    bool gelu;
};

/* Where experts begin: their pairs, and their tiles of pairs. In shared memory. */
struct moe_table {
    int32_t start[MOE_MAX_EXPERTS + 1], tiles[MOE_MAX_EXPERTS + 1];
};

/* By a block's first warp. */
static __device__ __forceinline__ void moe_table_build(struct moe_table *table,
                                                       const struct moe_product &product) {
    constexpr int EACH = MOE_MAX_EXPERTS / 32;
    const int first = threadIdx.x * EACH;
    int start[EACH + 1], n_tiles = 0;
#pragma unroll
    for (int i = 0; i <= EACH; i++) {
        start[i] = __ldcg(product.start + min(first + i, product.n_experts));
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        n_tiles += (start[i + 1] - start[i] + product.max_pairs - 1) / product.max_pairs;
    }
    int before = n_tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(~0u, before, step);
        before += (int)threadIdx.x >= step ? other : 0;
    }
    before -= n_tiles;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        table->start[first + i] = start[i];
        table->tiles[first + i] = before;
        before += (start[i + 1] - start[i] + product.max_pairs - 1) / product.max_pairs;
    }
    if (threadIdx.x == 31) {
        table->start[MOE_MAX_EXPERTS] = start[EACH];
        table->tiles[MOE_MAX_EXPERTS] = before;
    }
}

struct moe_tile {
    int expert, output_tile;
    int first, n_pairs; /* places first .. first + n_pairs - 1 */
};

/* The tile of a number below tiles[E] n_output_tiles. An expert's tiles of pairs are as even as can
 * be, and neighbours share weights. */
static __device__ __forceinline__ void moe_tile_find(struct moe_tile *tile,
                                                     const struct moe_table *table,
                                                     const struct moe_product &product,
                                                     int number) {
    static_assert((MOE_MAX_EXPERTS & (MOE_MAX_EXPERTS - 1)) == 0, "halved to 1");
    tile->expert = 0; /* the last one that begins at this number or before */
#pragma unroll
    for (int step = MOE_MAX_EXPERTS / 2; step > 0; step /= 2) {
        const int other = tile->expert + step;
        tile->expert =
            table->tiles[other] * product.n_output_tiles <= number ? other : tile->expert;
    }
    const int before = table->tiles[tile->expert],
              n_tiles = table->tiles[tile->expert + 1] - before;
    const int start = table->start[tile->expert];
    const int n_pairs = table->start[tile->expert + 1] - start;
    const int each = ((n_pairs + n_tiles - 1) / n_tiles + 7) / 8 * 8;
    const int local = number - before * product.n_output_tiles, at = local % n_tiles * each;
    tile->output_tile = local / n_tiles;
    tile->first = start + at;
    tile->n_pairs = min(each, n_pairs - at);
}

/* The row of x that is the input at a place. */
static __device__ __forceinline__ int64_t moe_input_row(const struct moe_product &product,
                                                        int place) {
    return product.order ? product.order[place] / product.n_active : place;
}

static __device__ __forceinline__ uint32_t matrix_transpose(uint32_t word) {
    uint32_t out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(out) : "r"(word));
    return out;
}

/* Rounds and stores a warp's 16 rows (slot of a tile) by WIDTH pairs, as the tensor cores leave
 * them: row lane / 4 (and 8 further down) of pairs 2 (lane % 4) and the next one, of eight each. A
 * transposed square of eight by eight lies across four lanes, which trade until each has 16 bytes
 * of one pair's outputs. */
template <bool GATED, int WIDTH>
static __device__ __forceinline__ void moe_store(const struct moe_product &product,
                                                 const struct moe_tile &tile, int slot,
                                                 const float (&sum)[WIDTH / 2]) {
    constexpr int SQUARES = WIDTH / 8 * (GATED ? 1 : 2);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < SQUARES; i += 4) {
        uint32_t word[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (i + j >= SQUARES) {
                word[j] = 0;
            } else if constexpr (GATED) {
                const int at = (i + j) * 4;
                word[j] =
                    matrix_transpose(product.gelu ? bf16_pack(geglu(sum[at], sum[at + 2]),
                                                              geglu(sum[at + 1], sum[at + 3]))
                                                  : bf16_pack(swiglu(sum[at], sum[at + 2]),
                                                              swiglu(sum[at + 1], sum[at + 3])));
            } else {
                const int at = (i + j) * 2;
                word[j] = matrix_transpose(bf16_pack(sum[at], sum[at + 1]));
            }
        }
        quad_transpose(word, lane);
        const int square = i + lane % 4;
        const int pair = (GATED ? square : square / 2) * 8 + lane / 4;
        const int output = GATED ? (tile.output_tile * MOE_SLOTS + slot) * 8
                                 : (tile.output_tile * MOE_SLOTS + slot) * 16 + square % 2 * 8;
        if (pair < tile.n_pairs && output < product.n_outputs) {
            __nv_bfloat16 *y = static_cast<__nv_bfloat16 *>(product.y) +
                               (int64_t)(tile.first + pair) * product.n_outputs + output;
            *reinterpret_cast<uint4 *>(y) = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

/* The product of a call; false for a call outside what calls_moe.h promises. */
bool moe_product_of(const struct call_moe_gate_up *call, struct moe_product *out);
bool moe_product_of(const struct call_moe_down *call, struct moe_product *out);

/* Tiles there may be at most. */
int64_t moe_most_tiles(const struct moe_product *product, int64_t n_pairs);

/* Pairs a tile on sm_90a: enough for most experts' counts when they scatter about their average, so
 * that their weights are read once; fewer leave more stages in flight. Up to `few`, 16, 32 or that;
 * beyond, a multiple of 32 up to `most`. */
int moe_tile_pairs(const struct moe_product *product, int n_tokens, int few, int most);

/* Weights in fp8 on sm_90a, whatever the inputs are in (moe_fp8.cu). */
cudaError_t moe_fp8_run(struct moe_product *product, bool gated, int n_tokens, cudaStream_t stream);

#endif
