/* Paged attention of many query rows on sm_90a: the products of warpgroup.cuh over the line of
 * units of line.cuh. A block holds 128 query rows of a key-value head, so that keys and values are
 * read once for 32 queries of a group of four; one warp fetches them, a page or a part of one to a
 * lane. Rows past an item's extent are whatever their page holds: their scores are masked, and
 * their values zeroed. */
#include "kernels/attention/merge.cuh"
#include "kernels/attention/warpgroup.cuh"
#include "kernels/heads.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum { LEAST_PAGE_ROWS = 8 /* the rows of one period of the swizzle */ };

#if HOPPER_DEVICE
/* One warp's work: all tiles of the block's stretch. box_rows: of a copy. */
template <int D, int STAGES>
static __device__ __forceinline__ void
fetch_stretch(const struct attention_ring<STAGES> &ring, const CUtensorMap *q_map,
              const CUtensorMap *k_map, const CUtensorMap *v_map,
              const struct call_paged_attention &call, const struct stretch &stretch,
              struct line_cursor<paged_keys> use, int tile_tokens, int box_rows) {
    typedef struct warpgroup_tile<D> tile;
    constexpr int PLANES = tile::PLANES, TILE_N = tile::TILE_N;
    const int lane = threadIdx.x, group = call.n_heads / call.n_kv_heads;
    const int n_copies = TILE_N / box_rows * PLANES, plane = lane % PLANES;
    const int in_tile = lane / PLANES * box_rows;
    struct ring_place<STAGES> place = {
        0, 1
    };
    int q_parity = 1;
    paged_keys keys;
    for (int unit = stretch.begin; unit < stretch.end;) {
        if (unit == stretch.begin || use.tile == 0) {
            keys.open(call, use.request, use.kv_head, use.first, use.reach);
            barrier_wait(ring.q_empty, q_parity);
            q_parity ^= 1;
            if (lane == 0) {
                barrier_expect(ring.q_full, PLANES * 128 * tile_tokens * group);
            }
            __syncwarp();
            if (lane < PLANES) {
                tensor_copy(ring.q_tile + plane * tile::Q_PLANE_BYTES, q_map, ring.q_full,
                            plane * 64, use.kv_head * group,
                            use.first + use.row_tile * tile_tokens);
            }
        }
        /* Past the extent any page will do: that of the tile's first row. */
        int row = use.tile * TILE_N + in_tile;
        row = row < use.reach.extent ? row : use.tile * TILE_N;
        const int pool_row = lane < n_copies ? keys.in_pool(row) : 0;
        const uint32_t to = place.at * tile::BYTES + plane * tile::PLANE_BYTES + in_tile * 128;
        auto fetch = [&](uint32_t ring_at, const CUtensorMap *map, uint32_t empty, uint32_t full) {
            barrier_wait(empty + place.at * 8, place.parity);
            if (lane == 0) {
                barrier_expect(full + place.at * 8, tile::BYTES);
            }
            __syncwarp();
            if (lane < n_copies) {
                tensor_copy(ring_at + to, map, full + place.at * 8, plane * 64, use.kv_head,
                            pool_row);
            }
        };
        fetch(ring.k_ring, k_map, ring.k_empty, ring.k_full);
        fetch(ring.v_ring, v_map, ring.v_empty, ring.v_full);
        place.next();
        unit += line_step<paged_keys, TILE_N>(use);
        if (unit < stretch.end) {
            line_next<paged_keys, TILE_N>(use, call, tile_tokens);
        }
    }
}
#endif

template <int D>
static __global__ void __launch_bounds__(WARPGROUP_THREADS, 1)
    paged_attention_wgmma_kernel(const __grid_constant__ CUtensorMap q_map,
                                 const __grid_constant__ CUtensorMap k_map,
                                 const __grid_constant__ CUtensorMap v_map,
                                 const __grid_constant__ struct call_paged_attention call,
                                 int tile_tokens, int box_rows, int n_sms, float scale_log2) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    extern __shared__ __align__(1024) unsigned char shared[];
    constexpr int STAGES = PAGED_WGMMA_STAGES(D), TILE_N = warpgroup_tile<D>::TILE_N;
    constexpr int LEAD = lead<paged_keys, TILE_N>, ROW_FLOATS = part_floats<D>;
    __shared__ __align__(8) uint64_t barriers[ring_barriers<STAGES>];
    __shared__ int arrived;
    const int group = call.n_heads / call.n_kv_heads;
    struct line_cursor<paged_keys> use;
    const struct stretch stretch =
        stretch_find<paged_keys, TILE_M, TILE_N, false>(call, tile_tokens, n_sms, use);
    if (stretch.begin >= stretch.end) {
        return;
    }
    const struct attention_ring<STAGES> ring = ring_open<D, STAGES>(shared, barriers);
    if (threadIdx.x < 128) {
        registers_give<40>();
        if (threadIdx.x < 32) {
            fetch_stretch<D>(ring, &q_map, &k_map, &v_map, call, stretch, use, tile_tokens,
                             box_rows);
        }
        return;
    }
    registers_take<232>();
    struct attender<D, STAGES> attender;
    attender.open(ring);
    int n_segments = 0;
    for (int unit = stretch.begin; unit < stretch.end;) {
        /* A segment: what of an item is in the stretch. */
        const int n_tiles = min(use.n_tiles - use.tile, stretch.end - unit);
        const struct item_rows rows = line_rows(use, tile_tokens, group);
        int extent[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = attender.row() + half * 8;
            extent[half] =
                row < rows.n_rows ? call.extent[rows.first + row / group] : use.reach.extent;
        }
        attender.template run<true>(n_tiles, use.tile * TILE_N, extent, use.reach.extent,
                                    scale_log2);
        const bool item_ends = use.tile + n_tiles == use.n_tiles;
        if (use.tile == 0 && item_ends) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = attender.row() + half * 8;
                attender.store(half,
                               static_cast<__nv_bfloat16 *>(call.y) +
                                   row_at<D>(rows, row, call.y_stride),
                               row < rows.n_rows);
            }
        } else {
            const int slot = blockIdx.x * 2 + (n_segments > 0);
            float *part = attention_partials(call.scratch) + (int64_t)slot * TILE_M * ROW_FLOATS;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = attender.row() + half * 8;
                if (row < rows.n_rows) {
                    attender.leave(half, part + row * ROW_FLOATS);
                }
            }
            item_merge<D, TILE_M, 256>(call.scratch, call.y, call.y_stride, rows,
                                       item_parts_of<LEAD>(stretch, unit - use.tile, use.n_tiles),
                                       scale_log2, threadIdx.x - 128, arrived,
                                       [] { named_barrier_sync(BOTH, 256); });
        }
        n_segments++;
        unit += n_tiles + (item_ends ? LEAD : 0);
        if (unit < stretch.end) {
            use.tile = use.n_tiles - 1;
            line_next<paged_keys, TILE_N>(use, call, tile_tokens);
        }
    }
    attender.close();
#endif
}

template <int D>
static cudaError_t paged_start(const struct call_paged_attention *call, cudaStream_t stream) {
    constexpr int TILE_N = warpgroup_tile<D>::TILE_N;
    constexpr int BYTES = WARPGROUP_BYTES(D, PAGED_WGMMA_STAGES(D));
    /* A block of each multiprocessor leaves parts, where scratch has room for those of three. */
    static_assert(TILE_M * part_floats<D> <= ATTENTION_MOST_PER_SM * ATTENTION_PART_FLOATS,
                  "parts");
    const int group = call->n_heads / call->n_kv_heads, tile_tokens = TILE_M / group;
    const int box_rows = call->page_rows < TILE_N ? call->page_rows : TILE_N;
    /* How many rows the pool has is not told; pages say which there are. */
    CUtensorMap q_map, k_map, v_map;
    if (!hopper_map(&q_map, call->q, D, call->n_heads, D, call->n_tokens, call->q_stride,
                    tile_tokens, group) ||
        !hopper_map(&k_map, call->k, D, call->n_kv_heads, D, INT32_MAX, call->kv_stride,
                    box_rows) ||
        !hopper_map(&v_map, call->v, D, call->n_kv_heads, D, INT32_MAX, call->kv_stride,
                    box_rows)) {
        return cudaErrorNotSupported;
    }
    int n_sms;
    cudaError_t status = multiprocessors(&n_sms);
    if (status == cudaSuccess) {
        status = shared_allow(paged_attention_wgmma_kernel<D>, BYTES);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)D);
    launch(paged_attention_wgmma_kernel<D>, (unsigned)n_sms, WARPGROUP_THREADS, BYTES, stream,
           q_map, k_map, v_map, *call, tile_tokens, box_rows, n_sms, scale_log2);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_paged_attention_wgmma(const struct call_paged_attention *call,
                                                    cudaStream_t stream) {
    if (!paged_attention_valid(call) || call->n_tokens < 0) {
        return cudaErrorInvalidValue;
    }
    if (!hopper_device() || call->page_rows < LEAST_PAGE_ROWS || call->cache_fp8 || call->before) {
        return cudaErrorNotSupported;
    }
    if (call->n_requests == 0 || call->max_queries == 0 || call->n_tokens == 0) {
        return cudaSuccess;
    }
    return by_head_size(call->head_size,
                        [&](auto head) { return paged_start<decltype(head)::SIZE>(call, stream); });
}

extern "C" cudaError_t kernel_paged_attention(const struct call_paged_attention *call,
                                              cudaStream_t stream) {
    if (call->local_window > 0 || !is_head_size(call->head_size)) {
        return kernel_paged_attention_window(call, stream);
    }
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
