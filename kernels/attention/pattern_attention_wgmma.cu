/* Attention to the blocks of keys that a pattern lists on sm_90a (warpgroup.cuh says how): 128
 * queries of a head at a time, whose tiles of keys are those of the kept blocks. Blocks are whole
 * tiles, so that one thread fetches them by walking over the words. A tile at the end of a request
 * reaches into the next one; its scores are masked, so that another request's keys and values never
 * count, provided they are finite. */
#include "kernels/attention/pattern_attention.cuh"
#include "kernels/attention/warpgroup.cuh"
#include "kernels/heads.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum { STAGES = DENSE_WGMMA_STAGES };

#if HOPPER_DEVICE

/* 128 queries of a head: the i-th of all, of request r, which begins with the before-th. */
struct pattern_item {
    int64_t i, before;
    int request, head, row0, first, n, n_blocks;
    const uint32_t *words;
};

/* The i-th item, i no smaller than before; false: there are no more. */
static __device__ __forceinline__ bool item_find(const struct call_pattern_attention &call,
                                                 struct pattern_item &item) {
    for (; item.request < call.n_requests; item.request++) {
        item.first = call.start[item.request];
        item.n = call.start[item.request + 1] - item.first;
        const int n_tiles = (item.n + TILE_M - 1) / TILE_M;
        const int64_t n_items = (int64_t)n_tiles * call.n_heads, at = item.i - item.before;
        if (at < n_items) {
            item.head = (int)(at / n_tiles);
            item.row0 = (int)(at % n_tiles) * TILE_M;
            item.n_blocks = pattern_n_blocks(item.n, call.block_tokens);
            item.words = pattern_row(call, item.request, item.head, item.n_blocks,
                                     item.row0 / call.block_tokens);
            return true;
        }
        item.before += n_items;
    }
    return false;
}

/* Keys that the item's queries attend to. By a whole warp. */
static __device__ __forceinline__ int item_keys(const struct pattern_item &item, int block_tokens) {
    int n = 0;
    for (int word = threadIdx.x % 32; word < pattern_n_words(item.n_blocks); word += 32) {
        n += __popc(item.words[word]);
    }
    n = __reduce_add_sync(~0u, n) * block_tokens;
    const int last = item.n_blocks - 1, missing = item.n_blocks * block_tokens - item.n;
    return n - (pattern_has(item.words, last) ? missing : 0);
}

/* One thread's work: all items of the block. */
template <int D>
static __device__ __forceinline__ void
fetch_items(const struct attention_ring<STAGES> &ring, const CUtensorMap *q_map,
            const CUtensorMap *k_map, const CUtensorMap *v_map,
            const struct call_pattern_attention &call) {
    typedef struct warpgroup_tile<D> tile;
    struct ring_place<STAGES> place = {
        0, 1
    };
    int q_parity = 1;
    struct pattern_item item = {.i = (int64_t)blockIdx.x};
    for (; item_find(call, item); item.i += gridDim.x) {
        const int kv_head = item.head / (call.n_heads / call.n_kv_heads);
        ring_wait<STAGES>(ring.q_empty, q_parity);
        q_parity ^= 1;
        tile_fetch<tile::PLANES, tile::Q_PLANE_BYTES>(ring.q_tile, q_map, ring.q_full, item.head,
                                                      item.first + item.row0);
        for (int word = 0; word < pattern_n_words(item.n_blocks); word++) {
            for (uint32_t bits = item.words[word]; bits != 0; bits &= bits - 1) {
                const int block = word * PATTERN_WORD_BITS + __ffs((int)bits) - 1;
                const int begin = block * call.block_tokens;
                const int end = min(begin + call.block_tokens, item.n);
                for (int row = begin; row < end; row += tile::TILE_N) {
                    tile_fetch_keys<D>(ring, place, k_map, v_map, kv_head, item.first + row);
                }
            }
        }
    }
}
#endif

template <int D>
static __global__ void __launch_bounds__(WARPGROUP_THREADS, 1)
    pattern_attention_wgmma_kernel(const __grid_constant__ CUtensorMap q_map,
                                   const __grid_constant__ CUtensorMap k_map,
                                   const __grid_constant__ CUtensorMap v_map,
                                   const __grid_constant__ struct call_pattern_attention call,
                                   float scale_log2) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[ring_barriers<STAGES>];
    const struct attention_ring<STAGES> ring = ring_open<D, STAGES>(shared, barriers);
    if (threadIdx.x < 128) {
        registers_give<24>();
        if (threadIdx.x == 0) {
            fetch_items<D>(ring, &q_map, &k_map, &v_map, call);
        }
        return;
    }
    registers_take<240>();
    constexpr int TILE_N = warpgroup_tile<D>::TILE_N;
    struct attender<D, STAGES> attender;
    struct pattern_item item = {.i = (int64_t)blockIdx.x};
    attender.open(ring);
    for (; item_find(call, item); item.i += gridDim.x) {
        const int n_keys = item_keys(item, call.block_tokens);
        const int extent[2] = {n_keys, n_keys};
        attender.template run<false>((n_keys + TILE_N - 1) / TILE_N, 0, extent, n_keys, scale_log2);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = item.row0 + attender.row() + half * 8;
            attender.store(half,
                           static_cast<__nv_bfloat16 *>(call.y) +
                               (int64_t)(item.first + row) * call.y_stride + item.head * D,
                           row < item.n);
        }
    }
    attender.close();
#endif
}

template <int D>
static cudaError_t start(const struct call_pattern_attention *call, cudaStream_t stream) {
    constexpr int TILE_N = warpgroup_tile<D>::TILE_N, BYTES = WARPGROUP_BYTES(D, STAGES);
    static_assert(TILE_M % TILE_N == 0, "blocks of whole tiles of queries are whole tiles of keys");
    CUtensorMap q_map, k_map, v_map;
    if (!hopper_map(&q_map, call->q, D, call->n_heads, D, call->n_tokens, call->q_stride, TILE_M) ||
        !hopper_map(&k_map, call->k, D, call->n_kv_heads, D, call->n_tokens, call->kv_stride,
                    TILE_N) ||
        !hopper_map(&v_map, call->v, D, call->n_kv_heads, D, call->n_tokens, call->kv_stride,
                    TILE_N)) {
        return cudaErrorNotSupported;
    }
    int n_sms;
    cudaError_t status = multiprocessors(&n_sms);
    if (status == cudaSuccess) {
        status = shared_allow(pattern_attention_wgmma_kernel<D>, BYTES);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const int64_t most_items =
        (int64_t)((call->max_tokens + TILE_M - 1) / TILE_M) * call->n_heads * call->n_requests;
    launch(pattern_attention_wgmma_kernel<D>, (unsigned)(most_items < n_sms ? most_items : n_sms),
           WARPGROUP_THREADS, BYTES, stream, q_map, k_map, v_map, *call,
           1.44269504088896341f / sqrtf((float)D));
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_pattern_attention_wgmma(const struct call_pattern_attention *call,
                                                      cudaStream_t stream) {
    if (!pattern_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (!hopper_device() || call->block_tokens % TILE_M != 0) {
        return cudaErrorNotSupported;
    }
    if (call->n_requests == 0 || call->max_tokens == 0) {
        return cudaSuccess;
    }
    return by_head_size(call->head_size,
                        [&](auto head) { return start<decltype(head)::SIZE>(call, stream); });
}

extern "C" cudaError_t kernel_pattern_attention(const struct call_pattern_attention *call,
                                                cudaStream_t stream) {
    const cudaError_t status = kernel_pattern_attention_wgmma(call, stream);
    return status == cudaErrorNotSupported ? kernel_pattern_attention_mma(call, stream) : status;
}
