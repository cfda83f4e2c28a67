/* Attention of blocks over packed caches, and over exact keys and values in pages: memory-bound, so
 * the work is cut by bytes (line.cuh says how). Loads run STAGES - 1 tiles ahead of the arithmetic,
 * across items; where a tile's rows are is looked up one tile earlier still. Where an item is cut
 * depends on the whole batch, and so do its last bits.
 * WHOLE: no item is cut. With WARPS_N = 1 the sums of a row then are the same whatever tile of
 * queries it is in, and whatever other requests are in the batch.
 * Rows of fp8 are copied as they are, each eight codes with their scale to where their eight bf16
 * will be, and expanded there by the thread that copied them, once they have arrived. */
#ifndef UNMASK_KERNELS_ATTENTION_LINE_ATTENTION_CUH
#define UNMASK_KERNELS_ATTENTION_LINE_ATTENTION_CUH

#include "kernels/attention/merge.cuh"
#include "kernels/fp8.cuh"
#include "kernels/heads.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"

/* The WARPS_N warps of the same rows hand their closed parts to the first of them, some columns at
 * a time through memory of WARPS_N - 1 buffers. */
template <int D, int WARPS_M, int WARPS_N>
static __device__ __forceinline__ void warps_merge(struct part<D> &part, float *buffers, int warp_m,
                                                   int warp_n, float scale_log2) {
    constexpr int MERGE_COLUMNS = LINE_MERGE_COLUMNS(D);
    constexpr int WIDTH = MERGE_COLUMNS + 2, BUFFER = 16 * WARPS_M * WIDTH;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int pass = 0; pass < D / MERGE_COLUMNS; pass++) {
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float *row = buffers + (warp_m * 16 + half * 8 + lane / 4) * WIDTH;
            if (warp_n > 0) {
                row += (warp_n - 1) * BUFFER;
                row[MERGE_COLUMNS] = part.top[half];
                row[MERGE_COLUMNS + 1] = part.sum[half];
#pragma unroll
                for (int n = 0; n < MERGE_COLUMNS / 8; n++) {
                    const int i = pass * (MERGE_COLUMNS / 8) + n;
                    *reinterpret_cast<float2 *>(row + n * 8 + (lane % 4) * 2) =
                        make_float2(part.out[i][2 * half], part.out[i][2 * half + 1]);
                }
            }
        }
        __syncthreads();
        if (warp_n > 0) {
            continue;
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *row = buffers + (warp_m * 16 + half * 8 + lane / 4) * WIDTH;
            float peak = part.top[half], scale[WARPS_N];
#pragma unroll
            for (int w = 1; w < WARPS_N; w++) {
                peak = fmaxf(peak, row[(w - 1) * BUFFER + MERGE_COLUMNS]);
            }
            scale[0] = exp2_fast((part.top[half] - peak) * scale_log2);
            float sum = part.sum[half] * scale[0];
#pragma unroll
            for (int w = 1; w < WARPS_N; w++) {
                const float *its = row + (w - 1) * BUFFER;
                scale[w] = exp2_fast((its[MERGE_COLUMNS] - peak) * scale_log2);
                sum += its[MERGE_COLUMNS + 1] * scale[w];
            }
#pragma unroll
            for (int n = 0; n < MERGE_COLUMNS / 8; n++) {
                const int i = pass * (MERGE_COLUMNS / 8) + n;
                float2 y = make_float2(part.out[i][2 * half] * scale[0],
                                       part.out[i][2 * half + 1] * scale[0]);
#pragma unroll
                for (int w = 1; w < WARPS_N; w++) {
                    const float2 f = *reinterpret_cast<const float2 *>(row + (w - 1) * BUFFER +
                                                                       n * 8 + (lane % 4) * 2);
                    y.x += f.x * scale[w];
                    y.y += f.y * scale[w];
                }
                part.out[i][2 * half] = y.x;
                part.out[i][2 * half + 1] = y.y;
            }
            if (pass == D / MERGE_COLUMNS - 1) {
                part.sum[half] = sum;
                part.top[half] = peak;
            }
        }
    }
}

/* Keys and values of a stage that a thread itself has copied, from fp8 to bf16. */
template <int D, int TILE_N, int THREADS>
static __device__ __forceinline__ void tile_expand(uint32_t stage) {
    typedef struct row_copy<D, THREADS> copy;
    const int chunk = threadIdx.x % copy::LANES;
#pragma unroll
    for (int i = 0; i < (TILE_N + copy::ROWS - 1) / copy::ROWS; i++) {
        const int row = i * copy::ROWS + threadIdx.x / copy::LANES;
#pragma unroll
        for (int c = 0; row < TILE_N && c < copy::CHUNKS * copy::LANES; c += copy::LANES) {
            fp8_expand(tile_address<D>(stage, row, chunk + c));
            fp8_expand(tile_address<D>(stage + TILE_N * D * 2, row, chunk + c));
        }
    }
}

/* part_add, with what each of the lane's two rows leaves out, where any does. */
template <class KEYS, int WARP_KEYS, int D>
static __device__ __forceinline__ void
keys_add(struct part<D> &part, const uint32_t (&q)[D / 16][4], uint32_t keys, uint32_t values,
         int first_key, const int (&until)[2], float scale_log2, const typename KEYS::call &call,
         const struct item_rows &rows, int row0) {
    if constexpr (KEYS::LEAVES_OUT) {
        int before[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row0 + half * 8 + threadIdx.x % 32 / 4;
            before[half] =
                row < rows.n_rows ? KEYS::before(call, rows.first + row / rows.group) : until[half];
        }
        part_add<WARP_KEYS, true>(part, q, keys, values, first_key, until, scale_log2, before);
    } else {
        part_add<WARP_KEYS>(part, q, keys, values, first_key, until, scale_log2);
    }
}

template <class KEYS, int D, int WARPS_M, int WARPS_N, int TILE_N, int STAGES, bool WHOLE>
static __global__ void __launch_bounds__(32 * WARPS_M * WARPS_N)
    line_attention_kernel(const typename KEYS::call call, int tile_tokens, int n_sms,
                          float scale_log2) {
    dependencies_wait();
    dependents_launch();
    constexpr int TILE_M = 16 * WARPS_M, THREADS = 32 * WARPS_M * WARPS_N;
    constexpr int WARP_KEYS = TILE_N / WARPS_N, TILE_BYTES = TILE_N * D * 2;
    constexpr int STAGE_BYTES = 2 * TILE_BYTES;
    typedef struct row_copy<D, THREADS> copy;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ int arrived;
    const uint32_t stages = shared_address(shared);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M, row0 = warp_m * 16;
    const int group = call.n_heads / call.n_kv_heads;

    struct line_cursor<KEYS> load;
    const struct stretch stretch =
        stretch_find<KEYS, TILE_M, TILE_N, WHOLE>(call, tile_tokens, n_sms, load);
    if (stretch.begin >= stretch.end) {
        return;
    }
    struct line_cursor<KEYS> use = load;
    int load_at = stretch.begin, n_issued = 0;
    int looked_up = KEYS::template look_up<TILE_N>(call, load.request, load.tile, load.reach);
    auto issue = [&]() {
        if (load_at < stretch.end) {
            const int n_keys = load.reach.template in_tile<TILE_N>(load.tile);
            const uint32_t to = stages + (n_issued % STAGES) * STAGE_BYTES;
            const int chunk = threadIdx.x % copy::LANES;
            const typename KEYS::tile tile = KEYS::template tile_at<TILE_N>(
                call, load.kv_head, load.first, load.reach, load.tile, chunk * 8);
#pragma unroll
            for (int i = 0; i < (TILE_N + copy::ROWS - 1) / copy::ROWS; i++) {
                const int row = i * copy::ROWS + threadIdx.x / copy::LANES;
                const bool valid = row < n_keys;
                const auto from = tile.row(row, valid, looked_up);
                if constexpr (KEYS::FP8) {
#pragma unroll
                    for (int c = 0; row < TILE_N && c < copy::CHUNKS * copy::LANES;
                         c += copy::LANES) {
                        const uint32_t key = tile_address<D>(to, row, chunk + c);
                        if (tile.narrow) {
                            fp8_copy_async(key, from.k + c * 8, from.k_scale, valid, tile.odd);
                            fp8_copy_async(key + TILE_BYTES, from.v + c * 8, from.v_scale, valid,
                                           tile.odd);
                        } else {
                            copy_async(key, from.k + c * 16, valid);
                            copy_async(key + TILE_BYTES, from.v + c * 16, valid);
                        }
                    }
                } else if constexpr (copy::CHUNKS == 1) {
                    copy_async(tile_address<D>(to, row, chunk), from.k, valid);
                    copy_async(tile_address<D>(to + TILE_BYTES, row, chunk), from.v, valid);
                } else if (row < TILE_N) {
#pragma unroll
                    for (int c = 0; c < copy::CHUNKS * copy::LANES; c += copy::LANES) {
                        copy_async(tile_address<D>(to, row, chunk + c), from.k + c * 8, valid);
                        copy_async(tile_address<D>(to + TILE_BYTES, row, chunk + c), from.v + c * 8,
                                   valid);
                    }
                }
            }
            n_issued++;
            load_at += line_step<KEYS, TILE_N>(load);
            if (load_at < stretch.end) {
                line_next<KEYS, TILE_N>(load, call, tile_tokens);
                looked_up =
                    KEYS::template look_up<TILE_N>(call, load.request, load.tile, load.reach);
            }
        }
        copy_async_commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        issue();
    }

    uint32_t q[D / 16][4];
    struct part<D> part;
    struct item_rows rows = line_rows(use, tile_tokens, group);
    int extent[2], n_segments = 0, first_tile = use.tile, use_at = stretch.begin;
    for (int unit = 0; use_at < stretch.end; unit++) {
        if (unit == 0 || use.tile == 0) {
            rows = line_rows(use, tile_tokens, group);
            query_load<D>(q, call.q, call.q_stride, rows, row0);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = row0 + half * 8 + lane / 4;
                extent[half] = row < rows.n_rows ? KEYS::extent(call, rows.first + row / group)
                                                 : use.reach.n_keys();
            }
            part_clear(part);
            first_tile = use.tile;
        }
        copy_async_wait<STAGES - 2>();
        if constexpr (KEYS::FP8) {
            if (KEYS::template is_narrow<TILE_N>(use.reach, use.tile)) {
                tile_expand<D, TILE_N, THREADS>(stages + unit % STAGES * STAGE_BYTES);
            }
        }
        __syncthreads();
        issue();

        const int before = warp_n * WARP_KEYS;
        const int reached = use.reach.template in_tile<TILE_N>(use.tile) - before;
        if (reached > 0) {
            const uint32_t at = stages + (unit % STAGES) * STAGE_BYTES + before * (D * 2);
            const int first_key = KEYS::RAGGED ? use.tile * TILE_N + before : 0;
            const int until[2] = {KEYS::RAGGED ? extent[0] : reached,
                                  KEYS::RAGGED ? extent[1] : reached};
            keys_add<KEYS, WARP_KEYS>(part, q, at, at + TILE_BYTES, first_key, until, scale_log2,
                                      call, rows, row0);
        }
        const bool item_ends = use.tile + 1 == use.n_tiles;
        const int next_at = use_at + line_step<KEYS, TILE_N>(use);
        if (item_ends || next_at >= stretch.end) {
            part_close(part);
            if constexpr (WARPS_N > 1) {
                warps_merge<D, WARPS_M, WARPS_N>(
                    part, reinterpret_cast<float *>(shared + STAGES * STAGE_BYTES), warp_m, warp_n,
                    scale_log2);
            }
            if (WHOLE || (first_tile == 0 && item_ends)) {
                if (warp_n == 0) {
                    part_store<D>(part, call.y, call.y_stride, rows, row0);
                }
            } else {
                const int slot = blockIdx.x * 2 + (n_segments > 0);
                if (warp_n == 0) {
                    part_leave(part,
                               attention_partials(call.scratch) +
                                   ((int64_t)slot * TILE_M + row0) * part_floats<D>,
                               rows.n_rows - row0);
                }
                item_merge<D, TILE_M, THREADS>(
                    call.scratch, call.y, call.y_stride, rows,
                    item_parts_of<lead<KEYS, TILE_N>>(stretch, use_at - use.tile, use.n_tiles),
                    scale_log2, threadIdx.x, arrived, [] { __syncthreads(); });
            }
            n_segments++;
        }
        use_at = next_at;
        if (use_at < stretch.end) {
            line_next<KEYS, TILE_N>(use, call, tile_tokens);
        }
    }
    copy_async_wait<0>();
}

template <class KEYS, int D, int WARPS_M, int WARPS_N, int TILE_N, bool WHOLE>
static cudaError_t line_start(const typename KEYS::call *call, int n_sms, cudaStream_t stream) {
    static_assert(16 * WARPS_M * part_floats<D> <= ATTENTION_PART_FLOATS, "a part");
    auto kernel = line_attention_kernel<KEYS, D, WARPS_M, WARPS_N, TILE_N, LINE_STAGES(D), WHOLE>;
    const struct line_shape shape = {WARPS_M, WARPS_N, TILE_N};
    const int threads = line_threads(shape), bytes = line_bytes(shape, D);
    cudaError_t status = shared_allow(kernel, bytes);
    int per_sm = 0;
    if (status == cudaSuccess) {
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, bytes);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const int n_blocks =
        n_sms * (per_sm > ATTENTION_MOST_PER_SM ? (int)ATTENTION_MOST_PER_SM : per_sm);
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)D);
    launch(kernel, (unsigned)(n_blocks < ATTENTION_MAX_BLOCKS ? n_blocks : ATTENTION_MAX_BLOCKS),
           threads, bytes, stream, *call, 16 * WARPS_M / (call->n_heads / call->n_kv_heads), n_sms,
           scale_log2);
    return cudaGetLastError();
}

template <class KEYS, int D, int TILE_N>
static cudaError_t line_choose(const typename KEYS::call *call, int n_sms, cudaStream_t stream) {
    const int64_t n_rows = (int64_t)call->max_queries * (call->n_heads / call->n_kv_heads);
    constexpr int MOST = LINE_MOST_WARPS(D);
    const struct line_shape shape = line_shape_of(n_rows, call->invariant, TILE_N == 32, D);
    auto start = line_start<KEYS, D, MOST, 1, TILE_N, false>;
    if (call->invariant) {
        start = shape.warps_m == 2 ? line_start<KEYS, D, 2, 1, TILE_N, true>
                                   : line_start<KEYS, D, MOST, 1, TILE_N, true>;
    } else if (shape.warps_m < MOST) {
        start = shape.warps_m == 1   ? line_start<KEYS, D, 1, TILE_N / 16, TILE_N, false>
                : shape.warps_m == 2 ? line_start<KEYS, D, 2, 2, TILE_N, false>
                                     : line_start<KEYS, D, 4, 1, TILE_N, false>;
    }
    return start(call, n_sms, stream);
}

/* compact: stages small enough for the 100 KiB of shared memory of sm_86 and sm_89, as those of
 * wide heads always are. */
template <class KEYS, int D>
static cudaError_t line_attention(const typename KEYS::call *call, bool compact,
                                  cudaStream_t stream) {
    int n_sms;
    const cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess || call->n_requests == 0 || call->max_queries == 0) {
        return status;
    }
    if constexpr (D <= 128) {
        if (!compact) {
            return line_choose<KEYS, D, 64>(call, n_sms, stream);
        }
    }
    return line_choose<KEYS, D, 32>(call, n_sms, stream);
}

/* Over pages of which queries leave rows out (line_attention_checked.cu); the call is valid. */
cudaError_t paged_attention_checked(const struct call_paged_attention *call, cudaStream_t stream);

/* The same over caches in fp8 (line_attention_fp8.cu); calls are valid. */
cudaError_t block_attention_fp8(const struct call_block_attention *call, bool compact,
                                cudaStream_t stream);
cudaError_t paged_attention_fp8(const struct call_paged_attention *call, bool compact,
                                cudaStream_t stream);

#endif
