/* Paged attention of many query rows on sm_90a: the tiles and turns of dense attention
 * (dense_attention_wgmma.cu) over the line of units of paged_attention.cuh. A block holds 128 query
 * rows of a key-value head, 64 for each of two warpgroups, so that keys and values are read once
 * for 32 queries of a group of four; a third warpgroup's one warp fetches them, a page or a part of
 * one to a lane. Rows past an item's extent are whatever their page holds: their scores are masked,
 * and their values zeroed, since 0 times a NaN would count. */
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/attention/paged_attention.cuh"
#include "kernels/linear/wgmma.cuh"

enum {
    HEAD_SIZE = 128,
    TILE_M = 128,
    TILE_N = 128,
    STAGES = 3,
    HALF_BYTES = TILE_N * 128, /* a tile is two halves of 64 columns */
    TILE_BYTES = 2 * HALF_BYTES,
    THREADS = 384,
    LEAST_PAGE_ROWS = 8, /* the rows of one period of the swizzle */
    /* Named barriers: the warpgroups' turns, both together, and each by itself. */
    TURN = 1,
    BOTH = 3,
    ALONE = 4,
};

static __global__ void __launch_bounds__(THREADS, 1)
    paged_attention_wgmma_kernel(const __grid_constant__ CUtensorMap q_map,
                                 const __grid_constant__ CUtensorMap k_map,
                                 const __grid_constant__ CUtensorMap v_map,
                                 const __grid_constant__ struct call_paged_attention call,
                                 int tile_tokens, int page_shift, int box_rows, int n_sms,
                                 float scale_log2) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 + 4 * STAGES];
    __shared__ int arrived;
    constexpr int ROW_FLOATS = HEAD_SIZE + 4;
    const uint32_t q_tile = (shared_address(shared) + 1023) / 1024 * 1024;
    const uint32_t k_ring = q_tile + TILE_BYTES, v_ring = k_ring + STAGES * TILE_BYTES;
    const uint32_t q_full = shared_address(barriers), q_empty = q_full + 8;
    const uint32_t k_full = q_full + 16, v_full = k_full + STAGES * 8;
    const uint32_t k_empty = v_full + STAGES * 8, v_empty = k_empty + STAGES * 8;
    const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;
    const int group = call.n_heads / call.n_kv_heads;
    struct paged_cursor use;
    const struct paged_stretch stretch =
        paged_stretch_find<TILE_M, TILE_N, false>(call, tile_tokens, n_sms, use);
    if (stretch.begin >= stretch.end) {
        return;
    }
    if (threadIdx.x == 0) {
        barrier_init(q_full, 1);
        barrier_init(q_empty, 2);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(k_full + i * 8, 1);
            barrier_init(v_full + i * 8, 1);
            barrier_init(k_empty + i * 8, 2);
            barrier_init(v_empty + i * 8, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_give<40>();
        if (threadIdx.x < 32) {
            const int n_copies = TILE_N / box_rows * 2, half = lane % 2;
            const int in_tile = lane / 2 * box_rows;
            int at = 0, parity = 1, q_parity = 1;
            for (int unit = stretch.begin; unit < stretch.end;) {
                if (unit == stretch.begin || use.tile == 0) {
                    barrier_wait(q_empty, q_parity);
                    q_parity ^= 1;
                    if (lane == 0) {
                        barrier_expect(q_full, 2 * 128 * tile_tokens * group);
                    }
                    __syncwarp();
                    if (lane < 2) {
                        tensor_copy(q_tile + half * HALF_BYTES, &q_map, q_full, half * 64,
                                    use.kv_head * group, use.first + use.row_tile * tile_tokens);
                    }
                }
                /* Past the extent any page will do: that of the tile's first row. */
                int row = use.tile * TILE_N + in_tile;
                row = row < use.extent ? row : use.tile * TILE_N;
                int pool_row = 0;
                if (lane < n_copies) {
                    const int page =
                        call.pages[(int64_t)use.request * call.max_pages + (row >> page_shift)];
                    pool_row = (page << page_shift) + (row & ((1 << page_shift) - 1));
                }
                const uint32_t to = at * TILE_BYTES + half * HALF_BYTES + in_tile * 128;
                barrier_wait(k_empty + at * 8, parity);
                if (lane == 0) {
                    barrier_expect(k_full + at * 8, TILE_BYTES);
                }
                __syncwarp();
                if (lane < n_copies) {
                    tensor_copy(k_ring + to, &k_map, k_full + at * 8, half * 64, use.kv_head,
                                pool_row);
                }
                barrier_wait(v_empty + at * 8, parity);
                if (lane == 0) {
                    barrier_expect(v_full + at * 8, TILE_BYTES);
                }
                __syncwarp();
                if (lane < n_copies) {
                    tensor_copy(v_ring + to, &v_map, v_full + at * 8, half * 64, use.kv_head,
                                pool_row);
                }
                if (++at == STAGES) {
                    at = 0;
                    parity ^= 1;
                }
                unit += paged_step<TILE_N>(use);
                if (unit < stretch.end) {
                    paged_next<TILE_N>(use, call, tile_tokens);
                }
            }
        }
        return;
    }
    registers_take<232>();
    const int warp = threadIdx.x / 32 % 4;
    const bool leader = threadIdx.x % 128 == 0;
    const int my_turn = TURN + warpgroup - 1, its_turn = TURN + 2 - warpgroup;
    const uint32_t q_rows = q_tile + (warpgroup - 1) * 64 * 128;
    const int my_row = (warpgroup - 1) * 64 + warp * 16 + lane / 4;
    int k_at = 0, k_parity = 0, v_at = 0, v_parity = 0, q_parity = 0, n_segments = 0;
    int extent[2] = {0, 0};
    float s[64], out[64], top[2], sum[2], shrink[2];
    uint32_t p[8][4];

    auto issue_scores = [&]() {
        barrier_wait(k_full + k_at * 8, k_parity);
        const uint64_t a = operand_rows(q_rows), b = operand_rows(k_ring + k_at * TILE_BYTES);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int at = k / 4 * (HALF_BYTES / 16) + k % 4 * 2;
            wgmma_m64n128k16(s, a + at, b + at, k > 0);
        }
        wgmma_commit();
    };
    auto issue_values = [&](int n_keys, bool accumulate) {
        barrier_wait(v_full + v_at * 8, v_parity);
        if (n_keys < TILE_N) { /* both warpgroups write the same zeros */
            for (int i = n_keys * 8 + threadIdx.x % 128; i < TILE_N * 8; i += 128) {
                const uint32_t to = v_ring + v_at * TILE_BYTES + i * 16;
                asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};\n"
                             "st.shared.v4.b32 [%2], {%1, %1, %1, %1};\n" ::"r"(to),
                             "r"(0), "r"(to + HALF_BYTES)
                             : "memory");
            }
            asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
            named_barrier_sync(ALONE + warpgroup - 1, 128);
        }
        const uint64_t b = operand_columns(v_ring + v_at * TILE_BYTES, HALF_BYTES);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            wgmma_m64n128k16_registers(out, p[k], b + k * (2048 / 16), accumulate || k > 0);
        }
        wgmma_commit();
    };
    auto keys_done = [&]() {
        if (leader) {
            barrier_arrive(k_empty + k_at * 8);
        }
        if (++k_at == STAGES) {
            k_at = 0;
            k_parity ^= 1;
        }
    };
    auto values_done = [&]() {
        if (leader) {
            barrier_arrive(v_empty + v_at * 8);
        }
        if (++v_at == STAGES) {
            v_at = 0;
            v_parity ^= 1;
        }
    };
    auto exponentials = [&](int first_key) { /* s becomes probabilities */
        if (first_key + TILE_N > min(extent[0], extent[1])) {
#pragma unroll
            for (int i = 0; i < 64; i++) {
                const int key = first_key + i / 4 * 8 + lane % 4 * 2 + (i & 1);
                s[i] = key < extent[i / 2 % 2] ? s[i] : PAGED_NEVER;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float peak = PAGED_NEVER;
#pragma unroll
            for (int i = 0; i < 16; i++) {
                peak = fmaxf(peak, fmaxf(s[i * 4 + half * 2], s[i * 4 + half * 2 + 1]));
            }
            peak = fmaxf(top[half], quad_max(peak));
            shrink[half] = exp2_fast((top[half] - peak) * scale_log2);
            top[half] = peak;
            const float shift = peak > PAGED_NEVER ? peak * scale_log2 : 0;
            float added = 0;
#pragma unroll
            for (int i = 0; i < 16; i++) {
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float &x = s[i * 4 + half * 2 + j];
                    x = exp2_fast(x * scale_log2 - shift);
                    added += x;
                }
            }
            sum[half] = sum[half] * shrink[half] + added;
        }
    };
    auto pack = [&]() {
#pragma unroll
        for (int k = 0; k < 8; k++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[k][i] = bf16_pack(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
            }
        }
    };

    if (warpgroup == 2) { /* the first turn is the first warpgroup's */
        named_barrier_arrive(its_turn, 256);
    }
    for (int unit = stretch.begin; unit < stretch.end;) {
        /* A segment: what of an item is in the stretch. */
        const int n_tiles = min(use.n_tiles - use.tile, stretch.end - unit);
        const int tile_first = use.first + use.row_tile * tile_tokens;
        const int n_rows = min(tile_tokens, use.n_tokens - use.row_tile * tile_tokens) * group;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = my_row + half * 8;
            extent[half] = row < n_rows ? call.extent[tile_first + row / group] : use.extent;
        }
        top[0] = top[1] = PAGED_NEVER;
        sum[0] = sum[1] = 0;
        int first_key = use.tile * TILE_N;
        barrier_wait(q_full, q_parity);
        q_parity ^= 1;
        named_barrier_sync(my_turn, 256);
        issue_scores();
        named_barrier_arrive(its_turn, 256);
        wgmma_wait<0>();
        keys_done();
        if (n_tiles == 1 && leader) {
            barrier_arrive(q_empty);
        }
        exponentials(first_key);
        pack();
        for (int tile = 1; tile < n_tiles; tile++) {
            named_barrier_sync(my_turn, 256);
            issue_scores();
            issue_values(TILE_N, tile > 1);
            named_barrier_arrive(its_turn, 256);
            first_key += TILE_N;
            wgmma_wait<1>();
            keys_done();
            if (tile == n_tiles - 1 && leader) {
                barrier_arrive(q_empty);
            }
            exponentials(first_key);
            wgmma_wait<0>();
            values_done();
            pack();
#pragma unroll
            for (int i = 0; i < 64; i++) {
                out[i] *= shrink[i / 2 % 2];
            }
        }
        issue_values(use.extent - first_key, n_tiles > 1);
        sum[0] = quad_sum(sum[0]);
        sum[1] = quad_sum(sum[1]);
        wgmma_wait<0>();
        values_done();
        const bool item_ends = use.tile + n_tiles == use.n_tiles;
        const bool whole = use.tile == 0 && item_ends;
        float *partials =
            reinterpret_cast<float *>(static_cast<char *>(call.scratch) + PAGED_MAX_BLOCKS * 4);
        if (whole) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = my_row + half * 8;
                const float scale = 1.0f / sum[half];
                struct bf16x8 *to = reinterpret_cast<struct bf16x8 *>(
                    static_cast<__nv_bfloat16 *>(call.y) +
                    (int64_t)(tile_first + row / group) * call.y_stride +
                    (use.kv_head * group + row % group) * HEAD_SIZE);
#pragma unroll
                for (int i = 0; i < 4; i++) { /* neighbours exchange pairs for 16-byte stores */
                    uint32_t word[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int at = (i * 4 + j) * 4 + half * 2;
                        word[j] = bf16_pack(out[at] * scale, out[at + 1] * scale);
                    }
                    quad_transpose(word, lane);
                    if (row < n_rows) {
                        *reinterpret_cast<uint4 *>(to + i * 4 + lane % 4) =
                            make_uint4(word[0], word[1], word[2], word[3]);
                    }
                }
            }
        } else {
            /* A block's first unfinished item takes its slot 0, its last one slot 1. */
            const int slot = blockIdx.x * 2 + (n_segments > 0);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float *to =
                    partials + ((int64_t)slot * TILE_M + my_row + half * 8) * ROW_FLOATS;
#pragma unroll
                for (int i = 0; i < 16; i++) {
                    if (my_row + half * 8 < n_rows) {
                        *reinterpret_cast<float2 *>(to + i * 8 + lane % 4 * 2) =
                            make_float2(out[i * 4 + half * 2], out[i * 4 + half * 2 + 1]);
                    }
                }
                if (lane % 4 == 0 && my_row + half * 8 < n_rows) {
                    to[HEAD_SIZE] = top[half];
                    to[HEAD_SIZE + 1] = sum[half];
                }
            }
            const int item_begin = unit - use.tile; /* where its first tile is */
            const int first_block = stretch_of(stretch, item_begin);
            const int last_block = stretch_of(stretch, item_begin + use.n_tiles - 1);
            int *counters = static_cast<int *>(call.scratch);
            __threadfence();
            named_barrier_sync(BOTH, 256);
            if (threadIdx.x == 128) {
                arrived = atomicAdd(&counters[first_block], 1);
            }
            named_barrier_sync(BOTH, 256);
            if (arrived == last_block - first_block) {
                __threadfence();
                if (threadIdx.x == 128) {
                    counters[first_block] = 0;
                }
                /* The item was its first block's last segment, and the others' first one. */
                const bool starts_first =
                    stretch_begin(stretch, first_block) >= item_begin - lead<TILE_N>;
                paged_merge<HEAD_SIZE, TILE_M, 256>(
                    call, use, tile_tokens, n_rows, partials, first_block * 2 + !starts_first, first_block,
                    last_block - first_block + 1, scale_log2, threadIdx.x - 128);
            }
        }
        n_segments++;
        unit += n_tiles + (item_ends ? lead<TILE_N> : 0);
        if (unit < stretch.end) {
            use.tile = use.n_tiles - 1;
            paged_next<TILE_N>(use, call, tile_tokens);
        }
    }
    if (warpgroup == 1) { /* takes the turn that is left over */
        named_barrier_sync(my_turn, 256);
    }
#endif
}

extern "C" cudaError_t kernel_paged_attention_wgmma(const struct call_paged_attention *call,
                                                    cudaStream_t stream) {
    if (!paged_attention_valid(call) || call->n_tokens < 0) {
        return cudaErrorInvalidValue;
    }
    if (!hopper_device() || call->head_size != HEAD_SIZE || call->page_rows < LEAST_PAGE_ROWS) {
        return cudaErrorNotSupported;
    }
    if (call->n_requests == 0 || call->max_queries == 0 || call->n_tokens == 0) {
        return cudaSuccess;
    }
    const int group = call->n_heads / call->n_kv_heads, tile_tokens = TILE_M / group;
    const int box_rows = call->page_rows < TILE_N ? call->page_rows : TILE_N;
    int page_shift = 0;
    while (1 << page_shift < call->page_rows) {
        page_shift++;
    }
    /* How many rows the pool has is not told; pages say which there are. */
    CUtensorMap q_map, k_map, v_map;
    if (!hopper_map(&q_map, call->q, HEAD_SIZE, call->n_heads, HEAD_SIZE, call->n_tokens,
                    call->q_stride, tile_tokens, group) ||
        !hopper_map(&k_map, call->k, HEAD_SIZE, call->n_kv_heads, HEAD_SIZE, INT32_MAX,
                    call->kv_stride, box_rows) ||
        !hopper_map(&v_map, call->v, HEAD_SIZE, call->n_kv_heads, HEAD_SIZE, INT32_MAX,
                    call->kv_stride, box_rows)) {
        return cudaErrorNotSupported;
    }
    int device, n_sms;
    const int bytes = (1 + 2 * STAGES) * TILE_BYTES + 1024;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(paged_attention_wgmma_kernel,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)HEAD_SIZE);
    launch(paged_attention_wgmma_kernel, (unsigned)n_sms, THREADS, bytes, stream, q_map, k_map,
           v_map, *call, tile_tokens, page_shift, box_rows, n_sms, scale_log2);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_paged_attention(const struct call_paged_attention *call,
                                              cudaStream_t stream) {
    const cudaError_t few = kernel_paged_attention_few(call, stream);
    if (few != cudaErrorNotSupported) {
        return few;
    }
    const bool many_rows =
        call->n_kv_heads > 0 &&
        (int64_t)call->max_queries * (call->n_heads / call->n_kv_heads) > TILE_M / 4;
    if (many_rows && !call->invariant && call->n_tokens > 0) {
        const cudaError_t status = kernel_paged_attention_wgmma(call, stream);
        if (status != cudaErrorNotSupported) {
            return status;
        }
    }
    return kernel_paged_attention_mma(call, stream);
}
