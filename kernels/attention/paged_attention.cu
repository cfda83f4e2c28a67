/* Attention over exact keys and values in pages: memory-bound, so the work is cut by bytes, as in
 * block attention (paged_attention.cuh says how). Loads run STAGES - 1 tiles ahead of the
 * arithmetic, across items; where a tile's rows are is looked up one tile earlier still. An item
 * that ends up in several blocks leaves partial sums in scratch; the block that arrives last adds
 * them in order. Where it is cut depends on the whole batch, and so do its last bits.
 * WHOLE: no item is cut. With WARPS_N = 1 the sums of a row then are the same whatever tile of
 * queries it is in, and in whatever company. */
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/attention/paged_attention.cuh"

enum { MERGE_COLUMNS = 64, FETCH_ROWS = 4 /* of a page to a lane */ };

/* A tile row holds D bf16 as chunks of 16 bytes; the chunk is exclusive-ored with the row so that
 * the eight rows one ldmatrix phase reads lie in different banks. */
template <int D>
static __device__ __forceinline__ uint32_t paged_address(uint32_t base, int row, int chunk) {
    return base + static_cast<uint32_t>(row * (D * 2) + ((chunk ^ (row & 7)) << 4));
}

template <int D, int WARPS_M, int WARPS_N, int TILE_N, int STAGES, bool WHOLE>
static __global__ void __launch_bounds__(32 * WARPS_M * WARPS_N)
    paged_attention_kernel(const struct call_paged_attention call, int tile_tokens, int page_shift,
                           int n_sms, float scale_log2) {
    dependencies_wait();
    dependents_launch();
    constexpr int TILE_M = 16 * WARPS_M, THREADS = 32 * WARPS_M * WARPS_N;
    constexpr int WARP_KEYS = TILE_N / WARPS_N, KEY_TILES = WARP_KEYS / 8;
    constexpr int TILE_BYTES = TILE_N * D * 2, STAGE_BYTES = 2 * TILE_BYTES;
    constexpr int CHUNKS = D / 8, OUTS = D / 8, ROW_FLOATS = D + 4;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ int arrived;
    const uint32_t stages = shared_address(shared);
    float *merge = reinterpret_cast<float *>(shared + STAGES * STAGE_BYTES);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const int group = call.n_heads / call.n_kv_heads;
    int *counters = static_cast<int *>(call.scratch);
    float *partials =
        reinterpret_cast<float *>(static_cast<char *>(call.scratch) + PAGED_MAX_BLOCKS * 4);

    struct paged_cursor load;
    const struct paged_stretch stretch =
        paged_stretch_find<TILE_M, TILE_N, WHOLE>(call, tile_tokens, n_sms, load);
    if (stretch.begin >= stretch.end) {
        return;
    }
    struct paged_cursor use = load;
    int load_at = stretch.begin, n_issued = 0, pool_row = 0;

    auto look_up = [&]() { /* the pool's row of the load's tile's rows FETCH_ROWS lane .. */
        const int row = load.tile * TILE_N + lane * FETCH_ROWS;
        if (lane < TILE_N / FETCH_ROWS && row < load.extent) {
            const int page =
                call.pages[(int64_t)load.request * call.max_pages + (row >> page_shift)];
            pool_row = (page << page_shift) + (row & ((1 << page_shift) - 1));
        }
    };
    auto issue = [&]() {
        if (load_at < stretch.end) {
            const int n_keys = load.extent - load.tile * TILE_N;
            const int64_t column = load.kv_head * D;
            const uint32_t to = stages + (n_issued % STAGES) * STAGE_BYTES;
#pragma unroll
            for (int i = 0; i < TILE_N * CHUNKS / THREADS; i++) {
                const int at = i * THREADS + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
                const bool valid = row < n_keys;
                const int base = __shfl_sync(~0u, pool_row, row / FETCH_ROWS);
                const int64_t from =
                    valid ? (base + row % FETCH_ROWS) * call.kv_stride + column + chunk * 8 : 0;
                copy_async(paged_address<D>(to, row, chunk),
                           static_cast<const __nv_bfloat16 *>(call.k) + from, valid);
                copy_async(paged_address<D>(to + TILE_BYTES, row, chunk),
                           static_cast<const __nv_bfloat16 *>(call.v) + from, valid);
            }
            n_issued++;
            load_at += paged_step<TILE_N>(load);
            if (load_at < stretch.end) {
                paged_next<TILE_N>(load, call, tile_tokens);
                look_up();
            }
        }
        copy_async_commit();
    };
    look_up();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        issue();
    }

    uint32_t q[D / 16][4];
    float out[OUTS][4];
    float top[2] = {PAGED_NEVER, PAGED_NEVER}, sum[2] = {0, 0};
    int extent[2], n_segments = 0, first_tile = use.tile, use_at = stretch.begin;
    for (int unit = 0; use_at < stretch.end; unit++) {
        const int n_rows = min(tile_tokens, use.n_tokens - use.row_tile * tile_tokens) * group;
        const int64_t tile_first = use.first + use.row_tile * tile_tokens;
        if (unit == 0 || use.tile == 0) { /* a new item: its query rows, straight to fragments */
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = warp_m * 16 + half * 8 + lane / 4;
                const bool valid = row < n_rows;
                const int64_t token = tile_first + (valid ? row / group : 0);
                const int head = use.kv_head * group + row % group;
                const uint32_t *from = reinterpret_cast<const uint32_t *>(
                    static_cast<const __nv_bfloat16 *>(call.q) + token * call.q_stride + head * D);
                extent[half] = valid ? call.extent[token] : use.extent;
#pragma unroll
                for (int k = 0; k < D / 16; k++) {
                    q[k][half] = valid ? from[k * 8 + lane % 4] : 0;
                    q[k][half + 2] = valid ? from[k * 8 + 4 + lane % 4] : 0;
                }
            }
#pragma unroll
            for (int i = 0; i < OUTS; i++) {
                out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
            }
            top[0] = top[1] = PAGED_NEVER;
            sum[0] = sum[1] = 0;
            first_tile = use.tile;
        }
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        issue();

        const int first_key = use.tile * TILE_N + warp_n * WARP_KEYS;
        if (first_key < use.extent) {
            const uint32_t keys = stages + (unit % STAGES) * STAGE_BYTES;
            const uint32_t values = keys + TILE_BYTES;
            float s[KEY_TILES][4];
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++) {
                s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
            }
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
#pragma unroll
                for (int n = 0; n < KEY_TILES / 2; n++) {
                    const int row = warp_n * WARP_KEYS + n * 16 + (lane & 7) + (lane >> 4) * 8;
                    uint32_t b[4];
                    matrix_load(b, paged_address<D>(keys, row, k * 2 + ((lane >> 3) & 1)));
                    matrix_multiply(s[2 * n], q[k], b[0], b[1]);
                    matrix_multiply(s[2 * n + 1], q[k], b[2], b[3]);
                }
            }
            if (first_key + WARP_KEYS > min(extent[0], extent[1])) {
#pragma unroll
                for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        if (first_key + n * 8 + (lane % 4) * 2 + (i & 1) >= extent[i / 2]) {
                            s[n][i] = PAGED_NEVER;
                        }
                    }
                }
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float peak = PAGED_NEVER;
#pragma unroll
                for (int n = 0; n < KEY_TILES; n++) {
                    peak = fmaxf(peak, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
                }
                peak = fmaxf(top[half], quad_max(peak));
                const float shrink = exp2_fast((top[half] - peak) * scale_log2);
                const float shift = peak > PAGED_NEVER ? peak * scale_log2 : 0;
                top[half] = peak;
                float added = 0;
#pragma unroll
                for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++) {
                        s[n][i] = exp2_fast(s[n][i] * scale_log2 - shift);
                        added += s[n][i];
                    }
                }
                sum[half] = sum[half] * shrink + added;
#pragma unroll
                for (int i = 0; i < OUTS; i++) {
                    out[i][2 * half] *= shrink;
                    out[i][2 * half + 1] *= shrink;
                }
            }
#pragma unroll
            for (int k = 0; k < KEY_TILES / 2; k++) {
                const uint32_t p[4] = {bf16_pack(s[2 * k][0], s[2 * k][1]),
                                       bf16_pack(s[2 * k][2], s[2 * k][3]),
                                       bf16_pack(s[2 * k + 1][0], s[2 * k + 1][1]),
                                       bf16_pack(s[2 * k + 1][2], s[2 * k + 1][3])};
                const int row = warp_n * WARP_KEYS + k * 16 + (lane & 15);
#pragma unroll
                for (int n = 0; n < OUTS / 2; n++) {
                    uint32_t b[4];
                    matrix_load_transposed(b, paged_address<D>(values, row, n * 2 + (lane >> 4)));
                    matrix_multiply(out[2 * n], p, b[0], b[1]);
                    matrix_multiply(out[2 * n + 1], p, b[2], b[3]);
                }
            }
        }

        const bool item_ends = use.tile + 1 == use.n_tiles;
        const int next_at = use_at + paged_step<TILE_N>(use);
        if (item_ends || next_at >= stretch.end) {
            sum[0] = quad_sum(sum[0]);
            sum[1] = quad_sum(sum[1]);
            if constexpr (WARPS_N > 1) { /* the other warps of the same rows hand their sums over */
                constexpr int WIDTH = MERGE_COLUMNS + 2, BUFFER = TILE_M * WIDTH;
#pragma unroll
                for (int pass = 0; pass < D / MERGE_COLUMNS; pass++) {
                    __syncthreads();
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        float *row = merge + (warp_m * 16 + half * 8 + lane / 4) * WIDTH;
                        if (warp_n > 0) {
                            row += (warp_n - 1) * BUFFER;
                            row[MERGE_COLUMNS] = top[half];
                            row[MERGE_COLUMNS + 1] = sum[half];
#pragma unroll
                            for (int n = 0; n < MERGE_COLUMNS / 8; n++) {
                                const int i = pass * (MERGE_COLUMNS / 8) + n;
                                *reinterpret_cast<float2 *>(row + n * 8 + (lane % 4) * 2) =
                                    make_float2(out[i][2 * half], out[i][2 * half + 1]);
                            }
                        }
                    }
                    __syncthreads();
                    if (warp_n == 0) {
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            const float *row = merge + (warp_m * 16 + half * 8 + lane / 4) * WIDTH;
                            float peak = top[half], scale[WARPS_N];
#pragma unroll
                            for (int w = 1; w < WARPS_N; w++) {
                                peak = fmaxf(peak, row[(w - 1) * BUFFER + MERGE_COLUMNS]);
                            }
                            scale[0] = exp2_fast((top[half] - peak) * scale_log2);
                            float whole_sum = sum[half] * scale[0];
#pragma unroll
                            for (int w = 1; w < WARPS_N; w++) {
                                const float *its = row + (w - 1) * BUFFER;
                                scale[w] = exp2_fast((its[MERGE_COLUMNS] - peak) * scale_log2);
                                whole_sum += its[MERGE_COLUMNS + 1] * scale[w];
                            }
#pragma unroll
                            for (int n = 0; n < MERGE_COLUMNS / 8; n++) {
                                const int i = pass * (MERGE_COLUMNS / 8) + n;
                                float2 y = make_float2(out[i][2 * half] * scale[0],
                                                       out[i][2 * half + 1] * scale[0]);
#pragma unroll
                                for (int w = 1; w < WARPS_N; w++) {
                                    const float2 f = *reinterpret_cast<const float2 *>(
                                        row + (w - 1) * BUFFER + n * 8 + (lane % 4) * 2);
                                    y.x += f.x * scale[w];
                                    y.y += f.y * scale[w];
                                }
                                out[i][2 * half] = y.x;
                                out[i][2 * half + 1] = y.y;
                            }
                            if (pass == D / MERGE_COLUMNS - 1) {
                                sum[half] = whole_sum;
                                top[half] = peak;
                            }
                        }
                    }
                }
            }
            const bool whole = WHOLE || (first_tile == 0 && item_ends);
            /* A block's first unfinished item takes its slot 0, its last one slot 1. */
            float *slot =
                partials + ((int64_t)blockIdx.x * 2 + (n_segments > 0)) * TILE_M * ROW_FLOATS;
            if (warp_n == 0) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = warp_m * 16 + half * 8 + lane / 4;
                    if (whole) {
                        const float scale = 1.0f / sum[half];
                        uint4 *to = reinterpret_cast<uint4 *>(
                            static_cast<__nv_bfloat16 *>(call.y) +
                            (tile_first + row / group) * call.y_stride +
                            (use.kv_head * group + row % group) * D);
#pragma unroll
                        for (int i = 0; i < D / 32; i++) {
                            uint32_t word[4];
#pragma unroll
                            for (int j = 0; j < 4; j++) {
                                word[j] = bf16_pack(out[i * 4 + j][2 * half] * scale,
                                                    out[i * 4 + j][2 * half + 1] * scale);
                            }
                            quad_transpose(word, lane);
                            if (row < n_rows) {
                                to[i * 4 + lane % 4] =
                                    make_uint4(word[0], word[1], word[2], word[3]);
                            }
                        }
                    } else {
                        float *to = slot + row * ROW_FLOATS;
#pragma unroll
                        for (int i = 0; i < OUTS; i++) {
                            if (row < n_rows) {
                                *reinterpret_cast<float2 *>(to + i * 8 + (lane % 4) * 2) =
                                    make_float2(out[i][2 * half], out[i][2 * half + 1]);
                            }
                        }
                        if (lane % 4 == 0 && row < n_rows) {
                            to[D] = top[half];
                            to[D + 1] = sum[half];
                        }
                    }
                }
            }
            if (!whole) {
                const int item_begin = use_at - use.tile; /* where its first tile is */
                const int first_block = stretch_of(stretch, item_begin);
                const int last_block = stretch_of(stretch, item_begin + use.n_tiles - 1);
                __threadfence();
                __syncthreads();
                if (threadIdx.x == 0) {
                    arrived = atomicAdd(&counters[first_block], 1);
                }
                __syncthreads();
                if (arrived == last_block - first_block) {
                    __threadfence();
                    if (threadIdx.x == 0) {
                        counters[first_block] = 0;
                    }
                    /* The item was its first block's last segment, and the others' first one. */
                    const bool starts_first =
                        stretch_begin(stretch, first_block) >= item_begin - lead<TILE_N>;
                    paged_merge<D, TILE_M, THREADS>(
                        call, use, tile_tokens, n_rows, partials, first_block * 2 + !starts_first,
                        first_block, last_block - first_block + 1, scale_log2, threadIdx.x);
                }
            }
            n_segments++;
        }
        use_at = next_at;
        if (use_at < stretch.end) {
            paged_next<TILE_N>(use, call, tile_tokens);
        }
    }
    copy_async_wait<0>();
}

template <int D, int WARPS_M, int WARPS_N, int TILE_N, bool WHOLE>
static cudaError_t paged_start(const struct call_paged_attention *call, int n_sms,
                               cudaStream_t stream) {
    constexpr int STAGES = 3;
    auto kernel = paged_attention_kernel<D, WARPS_M, WARPS_N, TILE_N, STAGES, WHOLE>;
    const int threads = 32 * WARPS_M * WARPS_N;
    const int bytes =
        STAGES * 2 * TILE_N * D * 2 + (WARPS_N - 1) * 16 * WARPS_M * (MERGE_COLUMNS + 2) * 4;
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int per_sm = 0;
    if (status == cudaSuccess) {
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, bytes);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const int n_blocks = n_sms * (per_sm > 3 ? 3 : per_sm);
    int page_shift = 0;
    while (1 << page_shift < call->page_rows) {
        page_shift++;
    }
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)D);
    launch(kernel, (unsigned)(n_blocks < PAGED_MAX_BLOCKS ? n_blocks : PAGED_MAX_BLOCKS), threads,
           bytes, stream, *call, 16 * WARPS_M / (call->n_heads / call->n_kv_heads), page_shift,
           n_sms, scale_log2);
    return cudaGetLastError();
}

template <int D, int TILE_N>
static cudaError_t paged_choose(const struct call_paged_attention *call, int n_sms,
                                cudaStream_t stream) {
    const int group = call->n_heads / call->n_kv_heads;
    const int64_t n_rows = (int64_t)call->max_queries * group;
    if (call->invariant) {
        return n_rows <= 32 ? paged_start<D, 2, 1, TILE_N, true>(call, n_sms, stream)
                            : paged_start<D, 8, 1, TILE_N, true>(call, n_sms, stream);
    }
    return n_rows <= 16   ? paged_start<D, 1, TILE_N / 16, TILE_N, false>(call, n_sms, stream)
           : n_rows <= 32 ? paged_start<D, 2, 2, TILE_N, false>(call, n_sms, stream)
           : n_rows <= 64 ? paged_start<D, 4, 1, TILE_N, false>(call, n_sms, stream)
                          : paged_start<D, 8, 1, TILE_N, false>(call, n_sms, stream);
}

bool paged_attention_valid(const struct call_paged_attention *call) {
    const int rows = call->page_rows;
    return call->dtype == KERNEL_BF16 && (call->head_size == 128 || call->head_size == 64) &&
           call->n_requests >= 0 && call->n_kv_heads > 0 && call->n_heads > 0 &&
           call->n_heads % call->n_kv_heads == 0 && call->n_heads / call->n_kv_heads <= 128 &&
           rows >= 4 && rows <= 256 && (rows & (rows - 1)) == 0 && call->q_stride % 8 == 0 &&
           call->kv_stride % 8 == 0 && call->y_stride % 8 == 0 && call->max_queries >= 0 &&
           call->max_extent <= (int64_t)call->max_pages * rows;
}

/* compact: stages small enough for the 100 KiB of shared memory of sm_86 and sm_89. */
static cudaError_t paged_attention(const struct call_paged_attention *call, bool compact,
                                   cudaStream_t stream) {
    if (!paged_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    int device, n_sms;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (status != cudaSuccess || call->n_requests == 0 || call->max_queries == 0) {
        return status;
    }
    if (call->head_size == 64) {
        return compact ? paged_choose<64, 32>(call, n_sms, stream)
                       : paged_choose<64, 64>(call, n_sms, stream);
    }
    return compact ? paged_choose<128, 32>(call, n_sms, stream)
                   : paged_choose<128, 64>(call, n_sms, stream);
}

extern "C" cudaError_t kernel_paged_attention_compact(const struct call_paged_attention *call,
                                                      cudaStream_t stream) {
    return paged_attention(call, true, stream);
}

extern "C" cudaError_t kernel_paged_attention_mma(const struct call_paged_attention *call,
                                                  cudaStream_t stream) {
    int device, shared_bytes;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                                        device);
    }
    return status == cudaSuccess ? paged_attention(call, shared_bytes < 160 * 1024, stream)
                                 : status;
}
