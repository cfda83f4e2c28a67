/* The importance of masked tokens in one layer: a block a request. A warp takes 16 of the masked
 * queries of one head at a time: their scores by tensor cores, the pool over neighbouring keys by
 * shuffles, softmax in registers, the sums over queries and heads kept in registers to the end.
 * They are added in one order, whatever else is in the call. Queries and keys come straight from
 * memory to fragments, 16 bytes a lane: both in the same permuted order along D. */
#include "kernels/device.cuh"
#include "kernels/heads.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"

/* Lists tokens first .. first + n_tokens - 1 that are masked, in order, as many as there is room
 * for; returns how many there are. For a whole block of THREADS threads; counts has one place a
 * warp. list is ready for all when it returns. */
template <int THREADS>
static __device__ __forceinline__ int list_masked(const uint8_t *masked, int first, int n_tokens,
                                                  int *list, int *counts) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int n = 0;
    for (int base = 0; base < n_tokens; base += THREADS) {
        const int i = base + threadIdx.x;
        const bool is_masked = i < n_tokens && masked[first + i];
        const unsigned all = __ballot_sync(~0u, is_masked);
        if (lane == 0) {
            counts[warp] = __popc(all);
        }
        __syncthreads();
        const int its = lane < THREADS / 32 ? counts[lane] : 0;
        const int before = __reduce_add_sync(~0u, lane < warp ? its : 0);
        const int at = n + before + __popc(all & ((1u << lane) - 1));
        if (is_masked && at < FOCUS_MAX_BLOCK) {
            list[at] = first + i;
        }
        n += __reduce_add_sync(~0u, its);
        __syncthreads();
    }
    return n;
}

template <int D, int MAX_KEYS, int THREADS>
static __global__ void __launch_bounds__(THREADS)
    importance_kernel(const struct call_importance call, float scale_log2) {
    dependencies_wait();
    dependents_launch();
    constexpr int WARPS = THREADS / 32, KEY_TILES = MAX_KEYS / 8, SPANS = D / 32;
    constexpr float NEVER = -1e30f;
    __shared__ int list[FOCUS_MAX_BLOCK], counts[WARPS];
    __shared__ float sums[WARPS][MAX_KEYS];
    const int first = call.start[blockIdx.x], n_tokens = call.start[blockIdx.x + 1] - first;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % 4;
    const int group = call.n_heads / call.n_kv_heads;
    const int n = list_masked<THREADS>(call.masked, first, n_tokens, list, counts);
    const bool fits = n > 0 && n <= MAX_KEYS;
    for (int i = threadIdx.x; i < n_tokens; i += THREADS) {
        if (!fits || !call.masked[first + i]) {
            call.importance[first + i] = 0;
        }
    }
    if (!fits) {
        return;
    }
    /* The rows of this lane's keys; past the last one any will do. */
    int64_t key_at[KEY_TILES];
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++) {
        const int token = list[min(t * 8 + lane / 4, n - 1)];
        key_at[t] = (call.kv_rows ? call.kv_rows[token] : token) * call.kv_stride + column * 8;
    }
    float sum[KEY_TILES][2];
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++) {
        sum[t][0] = sum[t][1] = 0;
    }
    const int n_row_tiles = (n + 15) / 16;
    for (int unit = warp; unit < call.n_heads * n_row_tiles; unit += WARPS) {
        const int head = unit / n_row_tiles, row_tile = unit % n_row_tiles;
        uint32_t q[2 * SPANS][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row_tile * 16 + half * 8 + lane / 4;
            const __nv_bfloat16 *from = static_cast<const __nv_bfloat16 *>(call.q) +
                                        list[min(row, n - 1)] * call.q_stride + head * D +
                                        column * 8;
#pragma unroll
            for (int span = 0; span < SPANS; span++) {
                const uint4 words = *reinterpret_cast<const uint4 *>(from + span * 32);
                q[2 * span][half] = words.x;
                q[2 * span][half + 2] = words.y;
                q[2 * span + 1][half] = words.z;
                q[2 * span + 1][half + 2] = words.w;
            }
        }
        const __nv_bfloat16 *keys = static_cast<const __nv_bfloat16 *>(call.k) + head / group * D;
        float s[KEY_TILES][4];
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++) {
            s[t][0] = s[t][1] = s[t][2] = s[t][3] = 0;
            if (t * 8 < n) {
#pragma unroll
                for (int span = 0; span < SPANS; span++) {
                    const uint4 words =
                        *reinterpret_cast<const uint4 *>(keys + key_at[t] + span * 32);
                    matrix_multiply(s[t], q[2 * span], words.x, words.y);
                    matrix_multiply(s[t], q[2 * span + 1], words.z, words.w);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[t][i] = t * 8 + column * 2 + i % 2 < n ? s[t][i] : NEVER;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            /* Of a key in an even column the left neighbour is another lane's, or in the tile
             * before; of one in an odd column the right neighbour. */
            float p[KEY_TILES][2], peak = NEVER, last = NEVER;
            const int left_lane = (lane & ~3) | ((lane + 3) & 3);
            const int right_lane = (lane & ~3) | ((lane + 1) & 3);
#pragma unroll
            for (int t = 0; t < KEY_TILES; t++) {
                const float even = s[t][half * 2], odd = s[t][half * 2 + 1];
                const float rotated = __shfl_sync(~0u, odd, left_lane);
                p[t][0] = fmaxf(fmaxf(even, odd), column == 0 ? last : rotated);
                last = rotated;
            }
            last = NEVER;
#pragma unroll
            for (int t = KEY_TILES - 1; t >= 0; t--) {
                const float even = s[t][half * 2], odd = s[t][half * 2 + 1];
                const float rotated = __shfl_sync(~0u, even, right_lane);
                p[t][1] = fmaxf(fmaxf(even, odd), column == 3 ? last : rotated);
                last = rotated;
            }
#pragma unroll
            for (int t = 0; t < KEY_TILES; t++) {
                p[t][0] = t * 8 + column * 2 < n ? p[t][0] : NEVER;
                p[t][1] = t * 8 + column * 2 + 1 < n ? p[t][1] : NEVER;
                peak = fmaxf(peak, fmaxf(p[t][0], p[t][1]));
            }
            peak = quad_max(peak);
            float weight = 0;
#pragma unroll
            for (int t = 0; t < KEY_TILES; t++) {
                p[t][0] = exp2_fast((p[t][0] - peak) * scale_log2);
                p[t][1] = exp2_fast((p[t][1] - peak) * scale_log2);
                weight += p[t][0] + p[t][1];
            }
            weight = quad_sum(weight);
            const float scale = row_tile * 16 + half * 8 + lane / 4 < n ? 1.0f / weight : 0.0f;
#pragma unroll
            for (int t = 0; t < KEY_TILES; t++) {
                sum[t][0] += p[t][0] * scale;
                sum[t][1] += p[t][1] * scale;
            }
        }
    }
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int step = 4; step < 32; step *= 2) {
                sum[t][i] += __shfl_xor_sync(~0u, sum[t][i], step);
            }
            if (lane < 4) {
                sums[warp][t * 8 + column * 2 + i] = sum[t][i];
            }
        }
    }
    __syncthreads();
    if (threadIdx.x < n) {
        float all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            all += sums[w][threadIdx.x];
        }
        call.importance[list[threadIdx.x]] = all;
    }
}

template <int D>
static void importance_start(const struct call_importance *call, cudaStream_t stream) {
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)D);
    const unsigned n = (unsigned)call->n_requests;
    const struct block_shape shape = importance_shape_of(call->max_masked);
    auto kernel = shape.each == 32   ? importance_kernel<D, 32, 512>
                  : shape.each == 64 ? importance_kernel<D, 64, 512>
                                     : importance_kernel<D, 128, 256>;
    launch(kernel, n, (unsigned)shape.threads, 0, stream, *call, scale_log2);
}

extern "C" cudaError_t kernel_importance(const struct call_importance *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || !is_head_size(call->head_size) || call->n_requests < 0 ||
        call->n_kv_heads <= 0 || call->n_heads <= 0 || call->n_heads % call->n_kv_heads != 0 ||
        call->q_stride % 8 != 0 || call->kv_stride % 8 != 0 || call->max_masked < 0 ||
        call->max_masked > FOCUS_MAX_BLOCK) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests == 0) {
        return cudaSuccess;
    }
    return by_head_size(call->head_size, [&](auto head) {
        importance_start<decltype(head)::SIZE>(call, stream);
        return cudaGetLastError();
    });
}
