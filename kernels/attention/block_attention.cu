/* Attention of active blocks over packed caches: memory-bound, so the work is cut by bytes.
 * An item is (request, key-value head, tile of query rows); the rows of a group's heads are
 * stacked. A unit is one item's tile of keys. Units are laid out in one line and every block of the
 * grid takes an equal stretch of it, so ragged batches and small ones fill the GPU alike. Loads run
 * STAGES - 1 tiles ahead of the arithmetic, across items. An item that ends up in several blocks
 * leaves partial sums in scratch; the block that arrives last adds them in order.
 * Where it is cut depends on the whole batch, and so do its last bits. WHOLE: no item is cut, which
 * leaves multiprocessors idle where there are few. */
#include "kernels/attention/block_attention.cuh"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"

template <int WARPS_M, int WARPS_N, int TILE_N, int STAGES, bool WHOLE>
static __global__ void __launch_bounds__(32 * WARPS_M * WARPS_N)
    block_attention_kernel(const struct call_block_attention call, float scale_log2) {
    dependencies_wait();
    dependents_launch();
    constexpr int TILE_M = 16 * WARPS_M, THREADS = 32 * WARPS_M * WARPS_N;
    constexpr int WARP_KEYS = TILE_N / WARPS_N, KEY_TILES = WARP_KEYS / 8;
    constexpr int STAGE_BYTES = 2 * TILE_N * 256;
    constexpr float NEVER = -INFINITY;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ int arrived;
    const uint32_t stages = shared_address(shared);
    float *merge = reinterpret_cast<float *>(shared + STAGES * STAGE_BYTES);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const int group = call.n_heads / call.n_kv_heads;
    int *counters = static_cast<int *>(call.scratch);
    float *partials = reinterpret_cast<float *>(static_cast<char *>(call.scratch) + MAX_BLOCKS * 4);

    /* Every warp finds the line's length and the stretch's first request for itself. */
    int total = 0, longest = 0, shortest = INT32_MAX;
    const struct request mine = request_load(call, lane); /* of the first 32 requests */
    for (int r = lane; r < call.n_requests; r += 32) {
        int n_tiles;
        const int n_items =
            request_items<TILE_M, TILE_N>(call, r == lane ? mine : request_load(call, r), n_tiles);
        total += n_items * n_tiles;
        longest = max(longest, n_tiles);
        shortest = n_items > 0 ? min(shortest, n_tiles) : shortest;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        total += __shfl_xor_sync(~0u, total, step);
        longest = max(longest, __shfl_xor_sync(~0u, longest, step));
        shortest = min(shortest, __shfl_xor_sync(~0u, shortest, step));
    }
    /* No stretch is empty: what an item's blocks have left is counted by their number. Items of
     * one length are dealt whole when that costs a block less than putting parts together does,
     * about the time of MERGE_TILES tiles. */
    const int n_blocks = min(total, (int)gridDim.x), block = blockIdx.x;
    if (block >= n_blocks) {
        return;
    }
    const int n_items = longest == shortest ? total / longest : 0;
    const int dealt = (n_items + n_blocks - 1) / n_blocks * longest;
    const bool deal_whole = n_items >= n_blocks && dealt - total / n_blocks <= MERGE_TILES;
    const int grain = deal_whole ? longest : 1, n_grains = deal_whole ? n_items : total;
    /* The first n_longer blocks take one grain more than the rest. */
    const int share = n_grains / n_blocks, n_longer = n_grains % n_blocks;
    int unit_begin = (share * block + min(block, n_longer)) * grain;
    int unit_end = unit_begin + (share + (block < n_longer)) * grain;
    struct cursor load = cursor_at<TILE_M, TILE_N>(call, mine, unit_begin);
    if (WHOLE) { /* an item is its block's in whose stretch it begins */
        unit_begin += units_to_item(load);
        if (unit_end < total) {
            unit_end += units_to_item(cursor_at<TILE_M, TILE_N>(call, mine, unit_end));
        }
        if (unit_begin == unit_end) {
            return;
        }
        load = cursor_at<TILE_M, TILE_N>(call, mine, unit_begin);
    }
    struct cursor use = load;
    const int n_units = unit_end - unit_begin;
    int n_issued = 0;

    auto issue = [&]() {
        if (n_issued < n_units) {
            const bool cached = load.tile < load.cache_tiles;
            const int first = (cached ? load.tile : load.tile - load.cache_tiles) * TILE_N;
            const int n_keys = cached ? load.kept : load.n_fresh;
            const int64_t stride = cached ? HEAD_SIZE : call.kv_stride;
            const int64_t base =
                cached ? load.cache + (int64_t)load.kv_head * load.kept * HEAD_SIZE
                       : load.first_row * call.kv_stride + (int64_t)load.kv_head * HEAD_SIZE;
            const __nv_bfloat16 *k =
                static_cast<const __nv_bfloat16 *>(cached ? call.cache : call.k) + base;
            const __nv_bfloat16 *v = cached ? k + (int64_t)call.n_kv_heads * load.kept * HEAD_SIZE
                                            : static_cast<const __nv_bfloat16 *>(call.v) + base;
            const uint32_t to = stages + (n_issued % STAGES) * STAGE_BYTES;
#pragma unroll
            for (int i = 0; i < TILE_N * 16 / THREADS; i++) {
                const int at = i * THREADS + threadIdx.x, row = at / 16, chunk = at % 16;
                const bool valid = first + row < n_keys;
                const int64_t from = (valid ? first + row : 0) * stride + chunk * 8;
                copy_async(tile_address(to, row, chunk), k + from, valid);
                copy_async(tile_address(to + TILE_N * 256, row, chunk), v + from, valid);
            }
            if (++n_issued < n_units) {
                cursor_next<TILE_M, TILE_N>(load, call);
            }
        }
        copy_async_commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        issue();
    }

    uint32_t q[8][4];
    float out[16][4];
    float top[2] = {NEVER, NEVER}, sum[2] = {0, 0};
    int n_segments = 0, first_tile = use.tile;
    for (int unit = 0; unit < n_units; unit++) {
        if (unit == 0 || use.tile == 0) { /* a new item: its query rows, straight to fragments */
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = use.row_tile * TILE_M + warp_m * 16 + half * 8 + lane / 4;
                const bool valid = row < use.n_rows;
                const int token = use.first_row + row / group;
                const int head = use.kv_head * group + row % group;
                const uint32_t *from =
                    reinterpret_cast<const uint32_t *>(static_cast<const __nv_bfloat16 *>(call.q) +
                                                       token * call.q_stride + head * HEAD_SIZE);
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    q[k][half] = valid ? from[k * 8 + lane % 4] : 0;
                    q[k][half + 2] = valid ? from[k * 8 + 4 + lane % 4] : 0;
                }
            }
#pragma unroll
            for (int i = 0; i < 16; i++) {
                out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
            }
            top[0] = top[1] = NEVER;
            sum[0] = sum[1] = 0;
            first_tile = use.tile;
        }
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        issue();

        const bool cached = use.tile < use.cache_tiles;
        const int n_keys = (cached ? use.kept : use.n_fresh) -
                           (cached ? use.tile : use.tile - use.cache_tiles) * TILE_N -
                           warp_n * WARP_KEYS;
        if (n_keys > 0) {
            const uint32_t keys = stages + (unit % STAGES) * STAGE_BYTES;
            const uint32_t values = keys + TILE_N * 256;
            float s[KEY_TILES][4];
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++) {
                s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
            }
#pragma unroll
            for (int k = 0; k < 8; k++) {
#pragma unroll
                for (int n = 0; n < KEY_TILES / 2; n++) {
                    const int row = warp_n * WARP_KEYS + n * 16 + (lane & 7) + (lane >> 4) * 8;
                    uint32_t b[4];
                    matrix_load(b, tile_address(keys, row, k * 2 + ((lane >> 3) & 1)));
                    matrix_multiply(s[2 * n], q[k], b[0], b[1]);
                    matrix_multiply(s[2 * n + 1], q[k], b[2], b[3]);
                }
            }
            if (n_keys < WARP_KEYS) {
#pragma unroll
                for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        if (n * 8 + (lane % 4) * 2 + (i & 1) >= n_keys) {
                            s[n][i] = NEVER;
                        }
                    }
                }
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float peak = NEVER;
#pragma unroll
                for (int n = 0; n < KEY_TILES; n++) {
                    peak = fmaxf(peak, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
                }
                peak = fmaxf(top[half], quad_max(peak));
                const float shrink = exp2_fast((top[half] - peak) * scale_log2);
                const float shift = peak * scale_log2;
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
                for (int i = 0; i < 16; i++) {
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
                for (int n = 0; n < 8; n++) {
                    uint32_t b[4];
                    matrix_load_transposed(b, tile_address(values, row, n * 2 + (lane >> 4)));
                    matrix_multiply(out[2 * n], p, b[0], b[1]);
                    matrix_multiply(out[2 * n + 1], p, b[2], b[3]);
                }
            }
        }

        const bool item_ends = use.tile + 1 == use.n_tiles;
        if (item_ends || unit + 1 == n_units) {
            sum[0] = quad_sum(sum[0]);
            sum[1] = quad_sum(sum[1]);
            if constexpr (WARPS_N == 2) { /* the second half of the warps hands its sums over */
                constexpr int WIDTH = MERGE_COLUMNS + 2;
#pragma unroll
                for (int pass = 0; pass < HEAD_SIZE / MERGE_COLUMNS; pass++) {
                    __syncthreads();
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        float *row = merge + (warp_m * 16 + half * 8 + lane / 4) * WIDTH;
                        if (warp_n == 1) {
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
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const float *row = merge + (warp_m * 16 + half * 8 + lane / 4) * WIDTH;
                        if (warp_n == 0) {
                            /* The first half of a tile is never empty, so the peak is finite. */
                            const float other = row[MERGE_COLUMNS];
                            const float peak = fmaxf(top[half], other);
                            const float mine = exp2_fast((top[half] - peak) * scale_log2);
                            const float its = exp2_fast((other - peak) * scale_log2);
#pragma unroll
                            for (int n = 0; n < MERGE_COLUMNS / 8; n++) {
                                const int i = pass * (MERGE_COLUMNS / 8) + n;
                                const float2 f =
                                    *reinterpret_cast<const float2 *>(row + n * 8 + (lane % 4) * 2);
                                out[i][2 * half] = out[i][2 * half] * mine + f.x * its;
                                out[i][2 * half + 1] = out[i][2 * half + 1] * mine + f.y * its;
                            }
                            if (pass == HEAD_SIZE / MERGE_COLUMNS - 1) {
                                sum[half] = sum[half] * mine + row[MERGE_COLUMNS + 1] * its;
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
                    const int in_tile = warp_m * 16 + half * 8 + lane / 4;
                    const int row = use.row_tile * TILE_M + in_tile;
                    const float scale = whole ? 1.0f / sum[half] : 1.0f;
                    if (whole) {
                        uint4 *to = reinterpret_cast<uint4 *>(
                            static_cast<__nv_bfloat16 *>(call.y) +
                            (use.first_row + row / group) * call.y_stride +
                            (use.kv_head * group + row % group) * HEAD_SIZE);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            uint32_t word[4];
#pragma unroll
                            for (int j = 0; j < 4; j++) {
                                word[j] = bf16_pack(out[i * 4 + j][2 * half] * scale,
                                                    out[i * 4 + j][2 * half + 1] * scale);
                            }
                            quad_transpose(word, lane);
                            if (row < use.n_rows) {
                                to[i * 4 + lane % 4] =
                                    make_uint4(word[0], word[1], word[2], word[3]);
                            }
                        }
                    } else {
                        float *to = slot + in_tile * ROW_FLOATS;
#pragma unroll
                        for (int i = 0; i < 16; i++) {
                            *reinterpret_cast<float2 *>(to + i * 8 + (lane % 4) * 2) =
                                make_float2(out[i][2 * half], out[i][2 * half + 1]);
                        }
                        if (lane % 4 == 0) {
                            to[HEAD_SIZE] = top[half];
                            to[HEAD_SIZE + 1] = sum[half];
                        }
                    }
                }
            }
            if (!whole) {
                const int item_begin = unit_begin + unit - use.tile;
                auto block_of = [&](int at) {
                    const int in_longer = n_longer * (share + 1);
                    return at < in_longer ? at / (share + 1) : n_longer + (at - in_longer) / share;
                };
                const int first_block = block_of(item_begin);
                const int last_block = block_of(item_begin + use.n_tiles - 1);
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
                        share * first_block + min(first_block, n_longer) == item_begin;
                    const int n_parts = last_block - first_block + 1;
                    const int first_slot = first_block * 2 + !starts_first;
                    /* Part i is in slot first_slot (i = 0) or slot 0 of block first_block + i. */
                    /* A thread has one chunk of four columns in every (THREADS / 32)th row, and
                     * MERGE_ROWS of those rows in flight. */
                    constexpr int APART = THREADS / 32;
                    const int column = threadIdx.x % 32 * 4;
#pragma unroll 1
                    for (int in_tile = threadIdx.x / 32; in_tile < TILE_M;
                         in_tile += MERGE_ROWS * APART) {
                        float peak[MERGE_ROWS], weight[MERGE_ROWS], y[MERGE_ROWS][4];
#pragma unroll
                        for (int i = 0; i < MERGE_ROWS; i++) {
                            peak[i] = NEVER;
                            weight[i] = y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0;
                        }
#pragma unroll 4
                        for (int part = 0; part < n_parts; part++) {
                            const int slot_at = part ? (first_block + part) * 2 : first_slot;
                            const float *from =
                                partials + ((int64_t)slot_at * TILE_M + in_tile) * ROW_FLOATS;
                            float2 its[MERGE_ROWS];
                            float4 f[MERGE_ROWS];
#pragma unroll
                            for (int i = 0; i < MERGE_ROWS; i++) {
                                const float *row = from + i * APART * ROW_FLOATS;
                                its[i] = __ldcg(reinterpret_cast<const float2 *>(row + HEAD_SIZE));
                                f[i] = __ldcg(reinterpret_cast<const float4 *>(row + column));
                            }
#pragma unroll
                            for (int i = 0; i < MERGE_ROWS; i++) {
                                const float higher = fmaxf(peak[i], its[i].x);
                                const float mine = exp2_fast((peak[i] - higher) * scale_log2);
                                const float scale = exp2_fast((its[i].x - higher) * scale_log2);
                                peak[i] = higher;
                                weight[i] = weight[i] * mine + its[i].y * scale;
                                y[i][0] = y[i][0] * mine + f[i].x * scale;
                                y[i][1] = y[i][1] * mine + f[i].y * scale;
                                y[i][2] = y[i][2] * mine + f[i].z * scale;
                                y[i][3] = y[i][3] * mine + f[i].w * scale;
                            }
                        }
#pragma unroll
                        for (int i = 0; i < MERGE_ROWS; i++) {
                            const int row = use.row_tile * TILE_M + in_tile + i * APART;
                            const float scale = 1.0f / weight[i];
                            if (row < use.n_rows) {
                                *reinterpret_cast<uint2 *>(
                                    static_cast<__nv_bfloat16 *>(call.y) +
                                    (use.first_row + row / group) * call.y_stride +
                                    (use.kv_head * group + row % group) * HEAD_SIZE + column) =
                                    make_uint2(bf16_pack(y[i][0] * scale, y[i][1] * scale),
                                               bf16_pack(y[i][2] * scale, y[i][3] * scale));
                            }
                        }
                    }
                }
            }
            n_segments++;
        }
        if (unit + 1 < n_units) {
            cursor_next<TILE_M, TILE_N>(use, call);
        }
    }
    copy_async_wait<0>();
}

template <int WARPS_M, int WARPS_N, int TILE_N, int STAGES, bool WHOLE = false>
static cudaError_t block_attention_start(const struct call_block_attention *call, int n_sms,
                                         cudaStream_t stream) {
    auto kernel = block_attention_kernel<WARPS_M, WARPS_N, TILE_N, STAGES, WHOLE>;
    const int threads = 32 * WARPS_M * WARPS_N;
    int bytes = STAGES * 2 * TILE_N * 256;
    if (WARPS_N == 2) {
        bytes += 16 * WARPS_M * (MERGE_COLUMNS + 2) * 4;
    }
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int per_sm = 0;
    if (status == cudaSuccess) {
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, bytes);
    }
    if (status != cudaSuccess) {
        return status;
    }
    int n_blocks = n_sms * (per_sm > 3 ? 3 : per_sm);
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)HEAD_SIZE);
    launch(kernel, (unsigned)(n_blocks < MAX_BLOCKS ? n_blocks : MAX_BLOCKS), threads, bytes,
           stream, *call, scale_log2);
    return cudaGetLastError();
}

extern "C" int64_t block_attention_scratch_bytes(int n_sms) {
    /* The counters; for at most three blocks a multiprocessor, two slots of 128 rows each. */
    int64_t n_blocks = n_sms * 3 < MAX_BLOCKS ? n_sms * 3 : MAX_BLOCKS;
    return MAX_BLOCKS * 4 + n_blocks * 2 * 128 * ROW_FLOATS * 4;
}

bool block_attention_valid(const struct call_block_attention *call) {
    return call->dtype == KERNEL_BF16 && call->head_size == HEAD_SIZE && call->n_requests >= 0 &&
           call->n_kv_heads > 0 && call->n_heads % call->n_kv_heads == 0 &&
           call->q_stride % 8 == 0 && call->kv_stride % 8 == 0 && call->y_stride % 8 == 0 &&
           call->max_queries >= 0;
}

/* compact: stages small enough for the 100 KiB of shared memory of sm_86 and sm_89. */
static cudaError_t block_attention(const struct call_block_attention *call, bool compact,
                                   cudaStream_t stream) {
    if (!block_attention_valid(call)) {
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
    if (call->invariant) {
        return compact ? block_attention_start<4, 1, 32, 3, true>(call, n_sms, stream)
                       : block_attention_start<4, 1, 64, 3, true>(call, n_sms, stream);
    }
    const int n_rows = call->max_queries * (call->n_heads / call->n_kv_heads);
    if (n_rows <= 32) {
        return compact ? block_attention_start<2, 2, 32, 3>(call, n_sms, stream)
                       : block_attention_start<2, 2, 64, 3>(call, n_sms, stream);
    }
    if (n_rows <= 64) {
        return compact ? block_attention_start<4, 1, 32, 3>(call, n_sms, stream)
                       : block_attention_start<4, 1, 64, 3>(call, n_sms, stream);
    }
    return compact ? block_attention_start<8, 1, 32, 3>(call, n_sms, stream)
                   : block_attention_start<8, 1, 64, 3>(call, n_sms, stream);
}

extern "C" cudaError_t kernel_block_attention_compact(const struct call_block_attention *call,
                                                      cudaStream_t stream) {
    return block_attention(call, true, stream);
}

extern "C" cudaError_t kernel_block_attention(const struct call_block_attention *call,
                                              cudaStream_t stream) {
    const cudaError_t few = kernel_block_attention_few(call, stream);
    return few == cudaErrorNotSupported ? kernel_block_attention_line(call, stream) : few;
}

extern "C" cudaError_t kernel_block_attention_line(const struct call_block_attention *call,
                                                   cudaStream_t stream) {
    int device, shared_bytes;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                                        device);
    }
    return status == cudaSuccess ? block_attention(call, shared_bytes < 160 * 1024, stream)
                                 : status;
}
