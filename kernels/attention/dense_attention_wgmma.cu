/* Bidirectional attention of whole requests on sm_90a (warpgroup.cuh says how): 128 queries of a
 * head at a time, fetched by one thread. Tiles reach into the next request; their scores are
 * masked, so another request's keys and values never count, provided they are finite. */
#include "kernels/attention/dense_attention.cuh"
#include "kernels/attention/warpgroup.cuh"
#include "kernels/launch.cuh"

enum { STAGES = 2 };

#if HOPPER_DEVICE
struct dense_item {
    int request, head, row0, first, length; /* the request's first token, and how many it has */
    struct query_rows queries;
};

/* false when the item lies past the last of its request's queries. */
static __device__ __forceinline__ bool item_of(const struct call_dense_attention &call, int i,
                                               int n_row_tiles, struct dense_item &item) {
    item.row0 = i % n_row_tiles * TILE_M;
    item.head = i / n_row_tiles % call.n_heads;
    item.request = i / n_row_tiles / call.n_heads;
    item.queries = query_rows_of(call, item.request);
    item.first = call.start[item.request];
    item.length = call.start[item.request + 1] - item.first;
    return item.row0 < item.queries.n;
}

/* Two halves of a tile. */
static __device__ __forceinline__ void fetch(uint32_t to, const CUtensorMap *map, uint32_t full,
                                             int plane, int row) {
    barrier_expect(full, TILE_BYTES);
    for (int half = 0; half < 2; half++) {
        tensor_copy(to + half * HALF_BYTES, map, full, half * 64, plane, row);
    }
}

/* One thread's work: all items of the block. */
static __device__ __forceinline__ void
fetch_items(const struct attention_ring<STAGES> &ring, const CUtensorMap *q_map,
            const CUtensorMap *k_map, const CUtensorMap *v_map,
            const struct call_dense_attention &call, int n_row_tiles, int n_items) {
    struct ring_place<STAGES> place = {
        0, 1
    };
    int q_parity = 1;
    struct dense_item item;
    for (int i = blockIdx.x; i < n_items; i += gridDim.x) {
        if (!item_of(call, i, n_row_tiles, item)) {
            continue;
        }
        const int kv_head = item.head / (call.n_heads / call.n_kv_heads);
        ring_wait<STAGES>(ring.q_empty, q_parity);
        q_parity ^= 1;
        fetch(ring.q_tile, q_map, ring.q_full, item.head, item.queries.first + item.row0);
        for (int row = 0; row < item.length; row += TILE_N) {
            const int at = place.at;
            ring_wait<STAGES>(ring.k_empty + at * 8, place.parity);
            fetch(ring.k_ring + at * TILE_BYTES, k_map, ring.k_full + at * 8, kv_head,
                  item.first + row);
            ring_wait<STAGES>(ring.v_empty + at * 8, place.parity);
            fetch(ring.v_ring + at * TILE_BYTES, v_map, ring.v_full + at * 8, kv_head,
                  item.first + row);
            place.next();
        }
    }
}
#endif

static __global__ void __launch_bounds__(WARPGROUP_THREADS, 1)
    dense_attention_wgmma_kernel(const __grid_constant__ CUtensorMap q_map,
                                 const __grid_constant__ CUtensorMap k_map,
                                 const __grid_constant__ CUtensorMap v_map,
                                 const __grid_constant__ struct call_dense_attention call,
                                 int n_row_tiles, int n_items, float scale_log2) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[ring_barriers<STAGES>];
    const struct attention_ring<STAGES> ring = ring_open<STAGES>(shared, barriers);
    if (threadIdx.x < 128) {
        registers_give<24>();
        if (threadIdx.x == 0) {
            fetch_items(ring, &q_map, &k_map, &v_map, call, n_row_tiles, n_items);
        }
        return;
    }
    registers_take<240>();
    struct attender<STAGES> attender;
    struct dense_item item;
    attender.open(ring);
    for (int i = blockIdx.x; i < n_items; i += gridDim.x) {
        if (!item_of(call, i, n_row_tiles, item)) {
            continue;
        }
        const int extent[2] = {item.length, item.length};
        attender.template run<false>((item.length + TILE_N - 1) / TILE_N, 0, extent, item.length,
                                     scale_log2);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = item.row0 + attender.row() + half * 8;
            attender.store(half,
                           static_cast<__nv_bfloat16 *>(call.y) +
                               (int64_t)(item.queries.first + row) * call.y_stride +
                               item.head * HEAD_SIZE,
                           row < item.queries.n);
        }
    }
    attender.close();
#endif
}

extern "C" cudaError_t kernel_dense_attention_wgmma(const struct call_dense_attention *call,
                                                    cudaStream_t stream) {
    if (!dense_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (!hopper_device()) {
        return cudaErrorNotSupported;
    }
    if (call->n_requests == 0 || call->max_tokens == 0) {
        return cudaSuccess;
    }
    CUtensorMap q_map, k_map, v_map;
    if (!hopper_map(&q_map, call->q, HEAD_SIZE, call->n_heads, HEAD_SIZE,
                    dense_attention_rows(call), call->q_stride, TILE_M) ||
        !hopper_map(&k_map, call->k, HEAD_SIZE, call->n_kv_heads, HEAD_SIZE, call->n_tokens,
                    call->kv_stride, TILE_N) ||
        !hopper_map(&v_map, call->v, HEAD_SIZE, call->n_kv_heads, HEAD_SIZE, call->n_tokens,
                    call->kv_stride, TILE_N)) {
        return cudaErrorNotSupported;
    }
    int n_sms;
    cudaError_t status = multiprocessors(&n_sms);
    if (status == cudaSuccess) {
        status = shared_allow(dense_attention_wgmma_kernel, warpgroup_bytes<STAGES>);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const int n_row_tiles = (dense_attention_most_rows(call) + TILE_M - 1) / TILE_M;
    const int64_t n_items = (int64_t)n_row_tiles * call->n_heads * call->n_requests;
    if (n_items > INT32_MAX - 65536) {
        return cudaErrorInvalidValue;
    }
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)HEAD_SIZE);
    launch(dense_attention_wgmma_kernel, (unsigned)(n_items < n_sms ? n_items : n_sms),
           WARPGROUP_THREADS, warpgroup_bytes<STAGES>, stream, q_map, k_map, v_map, *call,
           n_row_tiles, (int)n_items, scale_log2);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_dense_attention(const struct call_dense_attention *call,
                                              cudaStream_t stream) {
    return hopper_device() ? kernel_dense_attention_wgmma(call, stream)
                           : kernel_dense_attention_mma(call, stream);
}
