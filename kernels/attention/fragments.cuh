/* What a warp has of 16 query rows of heads of D channels, and what it does with a tile of keys:
 * products by mma.sync, softmax with a running peak, sums. A lane holds parts of the rows lane / 4
 * and lane / 4 + 8 of the 16, `half` 0 and 1. */
#ifndef UNMASK_KERNELS_ATTENTION_FRAGMENTS_CUH
#define UNMASK_KERNELS_ATTENTION_FRAGMENTS_CUH

#include "kernels/device.cuh"

/* Below any score, and finite: the difference of two is a number. */
#define ATTENTION_NEVER (-1e30f)

/* Floats of a row that is not finished, on its way to another block: its sums, its peak and its
 * weight. */
template <int D> constexpr int part_floats = D + 4;

/* The rows of an item: some tokens' heads of one group, token after token. */
struct item_rows {
    int first, n_rows, group, head; /* the first token; the group's first head */
};

/* Where a row is in [T, H, D] with tokens `stride` apart. */
template <int D>
static __device__ __forceinline__ int64_t row_at(const struct item_rows &rows, int row,
                                                 int64_t stride) {
    return (rows.first + row / rows.group) * stride + (rows.head + row % rows.group) * D;
}

/* The warp's rows from row0 on, straight to fragments; 0 past the last. */
template <int D>
static __device__ __forceinline__ void query_load(uint32_t (&q)[D / 16][4], const void *base,
                                                  int64_t stride, const struct item_rows &rows,
                                                  int row0) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + half * 8 + lane / 4;
        const bool valid = row < rows.n_rows;
        const uint32_t *from = reinterpret_cast<const uint32_t *>(
            static_cast<const __nv_bfloat16 *>(base) + row_at<D>(rows, valid ? row : 0, stride));
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            q[k][half] = valid ? from[k * 8 + lane % 4] : 0;
            q[k][half + 2] = valid ? from[k * 8 + 4 + lane % 4] : 0;
        }
    }
}

template <int D> struct part {
    float out[D / 8][4];
    float top[2], sum[2];
};

template <int D> static __device__ __forceinline__ void part_clear(struct part<D> &part) {
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        part.out[i][0] = part.out[i][1] = part.out[i][2] = part.out[i][3] = 0;
    }
    part.top[0] = part.top[1] = ATTENTION_NEVER;
    part.sum[0] = part.sum[1] = 0;
}

/* The largest score of one of this lane's two rows. */
template <int KEY_TILES>
static __device__ __forceinline__ float row_peak(const float (&s)[KEY_TILES][4], int half) {
    float peak = ATTENTION_NEVER;
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
        peak = fmaxf(peak, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    }
    return quad_max(peak);
}

/* s becomes probabilities of this lane's two rows; what came before shrinks to the new peaks. */
template <int D, int KEY_TILES>
static __device__ __forceinline__ void part_weigh(struct part<D> &part, float (&s)[KEY_TILES][4],
                                                  float scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float peak = fmaxf(part.top[half], row_peak(s, half));
        const float shrink = exp2_fast((part.top[half] - peak) * scale_log2);
        const float shift = peak > ATTENTION_NEVER ? peak * scale_log2 : 0;
        float added = 0;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = exp2_fast(s[n][i] * scale_log2 - shift);
                added += s[n][i];
            }
        }
        part.top[half] = peak;
        part.sum[half] = part.sum[half] * shrink + added;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            part.out[i][2 * half] *= shrink;
            part.out[i][2 * half + 1] *= shrink;
        }
    }
}

/* Adds WARP_KEYS keys from first_key on, of which the lane's two rows attend to those below
 * extent[half]; where rows are left out, to those below before[half] and the last one. */
template <int WARP_KEYS, bool LEAVES_OUT = false, int D>
static __device__ __forceinline__ void
part_add(struct part<D> &part, const uint32_t (&q)[D / 16][4], uint32_t keys, uint32_t values,
         int first_key, const int (&extent)[2], float scale_log2, const int *before = nullptr) {
    constexpr int KEY_TILES = WARP_KEYS / 8;
    const int lane = threadIdx.x % 32;
    float s[KEY_TILES][4];
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
    }
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
#pragma unroll
        for (int n = 0; n < KEY_TILES / 2; n++) {
            const int row = n * 16 + (lane & 7) + (lane >> 4) * 8;
            uint32_t b[4];
            matrix_load(b, tile_address<D>(keys, row, k * 2 + ((lane >> 3) & 1)));
            matrix_multiply(s[2 * n], q[k], b[0], b[1]);
            matrix_multiply(s[2 * n + 1], q[k], b[2], b[3]);
        }
    }
    const int *seen = LEAVES_OUT ? before : extent;
    if (first_key + WARP_KEYS > min(seen[0], seen[1])) {
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = first_key + n * 8 + lane % 4 * 2 + (i & 1);
                const bool sees = key < seen[i / 2] || (LEAVES_OUT && key + 1 == extent[i / 2]);
                s[n][i] = sees ? s[n][i] : ATTENTION_NEVER;
            }
        }
    }
    part_weigh(part, s, scale_log2);
#pragma unroll
    for (int k = 0; k < KEY_TILES / 2; k++) {
        const uint32_t p[4] = {bf16_pack(s[2 * k][0], s[2 * k][1]),
                               bf16_pack(s[2 * k][2], s[2 * k][3]),
                               bf16_pack(s[2 * k + 1][0], s[2 * k + 1][1]),
                               bf16_pack(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            matrix_load_transposed(
                b, tile_address<D>(values, k * 16 + (lane & 15), n * 2 + (lane >> 4)));
            matrix_multiply(part.out[2 * n], p, b[0], b[1]);
            matrix_multiply(part.out[2 * n + 1], p, b[2], b[3]);
        }
    }
}

/* All of a row's lanes have its whole sum; before the part goes anywhere. */
template <int D> static __device__ __forceinline__ void part_close(struct part<D> &part) {
    part.sum[0] = quad_sum(part.sum[0]);
    part.sum[1] = quad_sum(part.sum[1]);
}

/* Leaves a closed part for another warp or block: the warp's first n_rows rows, part_floats<D>
 * apart. */
template <int D>
static __device__ __forceinline__ void part_leave(const struct part<D> &part, float *rows,
                                                  int n_rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *row = rows + (half * 8 + lane / 4) * part_floats<D>;
        const bool valid = half * 8 + lane / 4 < n_rows;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            if (valid) {
                *reinterpret_cast<float2 *>(row + i * 8 + lane % 4 * 2) =
                    make_float2(part.out[i][2 * half], part.out[i][2 * half + 1]);
            }
        }
        if (lane % 4 == 0 && valid) {
            row[D] = part.top[half];
            row[D + 1] = part.sum[half];
        }
    }
}

/* Writes the warp's rows from row0 on, finished. */
template <int D>
static __device__ __forceinline__ void part_store(const struct part<D> &part, void *base,
                                                  int64_t stride, const struct item_rows &rows,
                                                  int row0) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + half * 8 + lane / 4;
        const float scale = 1.0f / part.sum[half];
        uint4 *to = reinterpret_cast<uint4 *>(static_cast<__nv_bfloat16 *>(base) +
                                              row_at<D>(rows, row, stride));
#pragma unroll
        for (int i = 0; i < D / 32; i++) { /* neighbours exchange pairs for 16-byte stores */
            uint32_t word[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                word[j] = bf16_pack(part.out[i * 4 + j][2 * half] * scale,
                                    part.out[i * 4 + j][2 * half + 1] * scale);
            }
            quad_transpose(word, lane);
            if (row < rows.n_rows) {
                to[i * 4 + lane % 4] = make_uint4(word[0], word[1], word[2], word[3]);
            }
        }
    }
}

#endif
