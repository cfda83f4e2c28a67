/* Attention to the blocks of keys that a pattern lists, for sm_80 and later: mma.sync, 64 queries
 * of one block and head at a time, 16 a warp, whose keys are the kept blocks put one after another.
 * The path of sm_90a for blocks of whole tiles is pattern_attention_wgmma.cu. */
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/pattern_attention.cuh"
#include "kernels/heads.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"

enum { ROWS = 64, THREADS = PATTERN_THREADS };

/* The kept blocks, in order. By the first warp; returns how many. */
static __device__ __forceinline__ int list_blocks(const uint32_t *words, int n_blocks,
                                                  uint16_t *blocks) {
    const int lane = threadIdx.x;
    int n = 0;
    for (int word = 0; word < pattern_n_words(n_blocks); word++) {
        const uint32_t bits = words[word];
        if (bits >> lane & 1) {
            blocks[n + __popc(bits & ((1u << lane) - 1))] =
                (uint16_t)(word * PATTERN_WORD_BITS + lane);
        }
        n += __popc(bits);
    }
    return n;
}

/* Keys of the list: all blocks are whole but maybe the request's last. */
static __device__ __forceinline__ int listed_keys(const uint16_t *blocks, int n_listed,
                                                  int block_tokens, int n) {
    const int last = n_listed > 0 ? blocks[n_listed - 1] : 0;
    return n_listed > 0 ? (n_listed - 1) * block_tokens + min(block_tokens, n - last * block_tokens)
                        : 0;
}

/* The listed keys and their values, in tiles; two stages of both in shared memory. */
template <int D> struct listed_tiles {
    typedef struct row_copy<D, THREADS> copy;
    static constexpr int KEYS = PATTERN_TILE_KEYS(D);
    static constexpr uint32_t TILE = KEYS * D * 2;
    const uint16_t *blocks;
    const __nv_bfloat16 *k, *v; /* the chunk that the thread copies of the request's first row */
    int64_t stride;
    int tokens, n_keys;
    uint32_t stages;

    __device__ __forceinline__ uint32_t keys_of(int tile) const {
        return stages + (tile & 1) * 2 * TILE;
    }
    __device__ __forceinline__ void load(int tile) const {
        const uint32_t to = keys_of(tile);
        const int chunk = threadIdx.x % copy::LANES;
#pragma unroll
        for (int i = 0; i < KEYS / copy::ROWS; i++) {
            const int row = i * copy::ROWS + threadIdx.x / copy::LANES, at = tile * KEYS + row;
            const bool valid = at < n_keys;
            const int key = valid ? blocks[at / tokens] * tokens + at % tokens : 0;
#pragma unroll
            for (int c = 0; c < copy::CHUNKS * copy::LANES; c += copy::LANES) {
                copy_async(tile_address<D>(to, row, chunk + c), k + key * stride + c * 8, valid);
                copy_async(tile_address<D>(to + TILE, row, chunk + c), v + key * stride + c * 8,
                           valid);
            }
        }
    }
};

/* The block's rows of queries, all tiles of them. */
template <int D>
static __device__ __forceinline__ void
attend(const struct call_pattern_attention &call, const struct item_rows &rows,
       const struct listed_tiles<D> &tiles, float scale_log2) {
    constexpr int KEYS = listed_tiles<D>::KEYS;
    const int warp = threadIdx.x / 32, n_tiles = (tiles.n_keys + KEYS - 1) / KEYS;
    const int extent[2] = {tiles.n_keys, tiles.n_keys};
    uint32_t q[D / 16][4];
    query_load<D>(q, call.q, call.q_stride, rows, warp * 16);
    struct part<D> part;
    part_clear(part);
    tiles.load(0);
    copy_async_commit();
    for (int tile = 0; tile < n_tiles; tile++) {
        copy_async_wait<0>();
        __syncthreads();
        if (tile + 1 < n_tiles) {
            tiles.load(tile + 1);
        }
        copy_async_commit();
        if (warp * 16 < rows.n_rows) {
            const uint32_t keys = tiles.keys_of(tile);
            part_add<KEYS>(part, q, keys, keys + tiles.TILE, tile * KEYS, extent, scale_log2);
        }
    }
    copy_async_wait<0>();
    part_close(part);
    part_store<D>(part, call.y, call.y_stride, rows, warp * 16);
}

template <int D>
static __global__ void __launch_bounds__(THREADS)
    pattern_attention_kernel(const struct call_pattern_attention call, float scale_log2) {
    dependencies_wait();
    dependents_launch();
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ uint16_t blocks[PATTERN_MAX_BLOCKS];
    __shared__ int n_listed;
    const int request = blockIdx.z, head = blockIdx.y, tokens = call.block_tokens;
    const int tiles_a_block = (tokens + ROWS - 1) / ROWS;
    const int block = blockIdx.x / tiles_a_block;
    const int first = call.start[request], n = call.start[request + 1] - first;
    const int row0 = block * tokens + blockIdx.x % tiles_a_block * ROWS;
    const int end = min((block + 1) * tokens, n);
    if (row0 >= end) {
        return;
    }
    if (threadIdx.x < 32) {
        const int n_blocks = pattern_n_blocks(n, tokens);
        const int listed =
            list_blocks(pattern_row(call, request, head, n_blocks, block), n_blocks, blocks);
        if (threadIdx.x == 0) {
            n_listed = listed;
        }
    }
    __syncthreads();
    const int kv_head = head / (call.n_heads / call.n_kv_heads);
    const int64_t kv_at = (int64_t)first * call.kv_stride + kv_head * D +
                          threadIdx.x % listed_tiles<D>::copy::LANES * 8;
    const struct listed_tiles<D> tiles = {
        blocks, static_cast<const __nv_bfloat16 *>(call.k) + kv_at,
            static_cast<const __nv_bfloat16 *>(call.v) + kv_at, call.kv_stride, tokens,
            listed_keys(blocks, n_listed, tokens, n), shared_address(shared)
    };
    const struct item_rows rows = {first + row0, min(end - row0, (int)ROWS), 1, head};
    attend<D>(call, rows, tiles, scale_log2);
}

template <int D>
static cudaError_t start(const struct call_pattern_attention *call, cudaStream_t stream) {
    const int bytes = PATTERN_ATTENTION_BYTES(D);
    const cudaError_t status = shared_allow(pattern_attention_kernel<D>, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const int64_t tiles = (call->block_tokens + ROWS - 1) / ROWS;
    const dim3 grid((unsigned)(pattern_most_blocks(call) * tiles), (unsigned)call->n_heads,
                    (unsigned)call->n_requests);
    launch(pattern_attention_kernel<D>, grid, THREADS, bytes, stream, *call,
           1.44269504088896341f / sqrtf((float)D));
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_pattern_attention_mma(const struct call_pattern_attention *call,
                                                    cudaStream_t stream) {
    if (!pattern_attention_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests == 0 || call->max_tokens == 0) {
        return cudaSuccess;
    }
    return by_head_size(call->head_size,
                        [&](auto head) { return start<decltype(head)::SIZE>(call, stream); });
}
