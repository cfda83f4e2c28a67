/* Bidirectional attention of whole requests on sm_90a (warpgroup.cuh says how): 128 queries of a
 * head at a time, fetched by one thread. Tiles reach into the next request; their scores are
 * masked, so another request's keys and values never count, provided they are finite.
 *
 * An item, 128 queries of a head, takes as long as its request has keys. The blocks take the items
 * in turn, those of the longest request first, so that none is left with a long one at the end. */
#include "kernels/attention/dense_attention.cuh"
#include "kernels/attention/warpgroup.cuh"
#include "kernels/heads.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum { STAGES = DENSE_WGMMA_STAGES, MOST_REQUESTS = 512 /* of one launch */ };

#if HOPPER_DEVICE
static __device__ __forceinline__ int row_tiles(const struct query_rows &queries) {
    return (queries.n + TILE_M - 1) / TILE_M;
}

/* The requests, the longest first, and where the items of each end in the row of all. */
struct dense_order {
    int request[MOST_REQUESTS], end[MOST_REQUESTS];
    int length[MOST_REQUESTS], n_tiles[MOST_REQUESTS]; /* of each request, as they come */
};

/* By all threads of the block. */
static __device__ __forceinline__ void order_requests(const struct call_dense_attention &call,
                                                      struct dense_order &order) {
    for (int r = threadIdx.x; r < call.n_requests; r += WARPGROUP_THREADS) {
        order.length[r] = call.start[r + 1] - call.start[r];
        order.n_tiles[r] = row_tiles(query_rows_of(call, r));
    }
    __syncthreads();
    for (int r = threadIdx.x; r < call.n_requests; r += WARPGROUP_THREADS) {
        int place = 0, before = 0;
        for (int s = 0; s < call.n_requests; s++) {
            const bool first =
                order.length[s] > order.length[r] || (order.length[s] == order.length[r] && s < r);
            place += first;
            before += first ? order.n_tiles[s] : 0;
        }
        order.request[place] = r;
        order.end[place] = (before + order.n_tiles[r]) * call.n_heads;
    }
    __syncthreads();
}

struct dense_item {
    int place, i;                  /* of its request in the order, of itself in the row of all */
    int head, row0, first, length; /* the request's first token, and how many it has */
    struct query_rows queries;
};

/* The i-th item, i no smaller than before; false: there are no more. */
static __device__ __forceinline__ bool item_find(const struct call_dense_attention &call,
                                                 const struct dense_order &order,
                                                 struct dense_item &item) {
    while (item.place < call.n_requests && item.i >= order.end[item.place]) {
        item.place++;
    }
    if (item.place == call.n_requests) {
        return false;
    }
    const int request = order.request[item.place];
    const int in_request = item.i - (item.place > 0 ? order.end[item.place - 1] : 0);
    const int n_tiles = order.n_tiles[request];
    item.row0 = in_request % n_tiles * TILE_M;
    item.head = in_request / n_tiles;
    item.queries = query_rows_of(call, request);
    item.first = call.start[request];
    item.length = order.length[request];
    return true;
}

/* One thread's work: all items of the block. */
template <int D>
static __device__ __forceinline__ void
fetch_items(const struct attention_ring<STAGES> &ring, const CUtensorMap *q_map,
            const CUtensorMap *k_map, const CUtensorMap *v_map,
            const struct call_dense_attention &call, const struct dense_order &order) {
    typedef struct warpgroup_tile<D> tile;
    struct ring_place<STAGES> place = {
        0, 1
    };
    int q_parity = 1;
    struct dense_item item = {.i = (int)blockIdx.x};
    for (; item_find(call, order, item); item.i += gridDim.x) {
        const int kv_head = item.head / (call.n_heads / call.n_kv_heads);
        ring_wait<STAGES>(ring.q_empty, q_parity);
        q_parity ^= 1;
        tile_fetch<tile::PLANES, tile::Q_PLANE_BYTES>(ring.q_tile, q_map, ring.q_full, item.head,
                                                      item.queries.first + item.row0);
        for (int row = 0; row < item.length; row += tile::TILE_N) {
            tile_fetch_keys<D>(ring, place, k_map, v_map, kv_head, item.first + row);
        }
    }
}
#endif

template <int D>
static __global__ void __launch_bounds__(WARPGROUP_THREADS, 1)
    dense_attention_wgmma_kernel(const __grid_constant__ CUtensorMap q_map,
                                 const __grid_constant__ CUtensorMap k_map,
                                 const __grid_constant__ CUtensorMap v_map,
                                 const __grid_constant__ struct call_dense_attention call,
                                 float scale_log2) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[ring_barriers<STAGES>];
    __shared__ struct dense_order order;
    order_requests(call, order);
    const struct attention_ring<STAGES> ring = ring_open<D, STAGES>(shared, barriers);
    if (threadIdx.x < 128) {
        registers_give<24>();
        if (threadIdx.x == 0) {
            fetch_items<D>(ring, &q_map, &k_map, &v_map, call, order);
        }
        return;
    }
    registers_take<240>();
    constexpr int TILE_N = warpgroup_tile<D>::TILE_N;
    struct attender<D, STAGES> attender;
    struct dense_item item = {.i = (int)blockIdx.x};
    attender.open(ring);
    for (; item_find(call, order, item); item.i += gridDim.x) {
        const int extent[2] = {item.length, item.length};
        attender.template run<false>((item.length + TILE_N - 1) / TILE_N, 0, extent, item.length,
                                     scale_log2);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = item.row0 + attender.row() + half * 8;
            attender.store(half,
                           static_cast<__nv_bfloat16 *>(call.y) +
                               (int64_t)(item.queries.first + row) * call.y_stride + item.head * D,
                           row < item.queries.n);
        }
    }
    attender.close();
#endif
}

template <int D>
static cudaError_t dense_start(const struct call_dense_attention *call, cudaStream_t stream) {
    constexpr int TILE_N = warpgroup_tile<D>::TILE_N, BYTES = WARPGROUP_BYTES(D, STAGES);
    CUtensorMap q_map, k_map, v_map;
    if (!hopper_map(&q_map, call->q, D, call->n_heads, D, dense_attention_rows(call),
                    call->q_stride, TILE_M) ||
        !hopper_map(&k_map, call->k, D, call->n_kv_heads, D, call->n_tokens, call->kv_stride,
                    TILE_N) ||
        !hopper_map(&v_map, call->v, D, call->n_kv_heads, D, call->n_tokens, call->kv_stride,
                    TILE_N)) {
        return cudaErrorNotSupported;
    }
    int n_sms;
    cudaError_t status = multiprocessors(&n_sms);
    if (status == cudaSuccess) {
        status = shared_allow(dense_attention_wgmma_kernel<D>, BYTES);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const int64_t most_tiles = (dense_attention_most_rows(call) + TILE_M - 1) / TILE_M;
    const float scale_log2 = 1.44269504088896341f / sqrtf((float)D);
    for (int first = 0; first < call->n_requests && status == cudaSuccess; first += MOST_REQUESTS) {
        struct call_dense_attention some = *call;
        some.start += first;
        some.n_requests -= first;
        some.n_requests = some.n_requests < MOST_REQUESTS ? some.n_requests : MOST_REQUESTS;
        const int64_t most_items = most_tiles * call->n_heads * some.n_requests;
        if (most_items > INT32_MAX - 65536) {
            return cudaErrorInvalidValue;
        }
        launch(dense_attention_wgmma_kernel<D>, (unsigned)(most_items < n_sms ? most_items : n_sms),
               WARPGROUP_THREADS, BYTES, stream, q_map, k_map, v_map, some, scale_log2);
        status = cudaGetLastError();
    }
    return status;
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
    return by_head_size(call->head_size,
                        [&](auto head) { return dense_start<decltype(head)::SIZE>(call, stream); });
}

extern "C" cudaError_t kernel_dense_attention(const struct call_dense_attention *call,
                                              cudaStream_t stream) {
    return hopper_device() ? kernel_dense_attention_wgmma(call, stream)
                           : kernel_dense_attention_mma(call, stream);
}
