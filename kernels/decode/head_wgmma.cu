/* The LM head in one kernel on sm_90a: the products of 128 rows by 256 (or 192) tokens never leave
 * the registers of the two warpgroups that made them; each row of a tile leaves one summary. One
 * thread feeds a ring of shared-memory stages by tensor copies. Blocks that share a tile of tokens
 * form a cluster of two and fetch half of it each for both. Persistent: a block walks tiles of rows
 * first, so that a tile of the weights is read from memory once. */
#include "kernels/linear/head.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/wgmma.cuh"

enum {
    TILE_ROWS = 128,
    TILE_CHANNELS = 64,
    ROW_BYTES = TILE_ROWS * TILE_CHANNELS * 2,
};

#if HOPPER_DEVICE
/* Where a tile of rows starts: the last one reaches back over rows that are its neighbour's rather
 * than out of bounds, where tensor copies are slow (lab/README.md). */
static __device__ __forceinline__ int first_row(int row_tile, int n_rows) {
    return min(row_tile * TILE_ROWS, max(n_rows - TILE_ROWS, 0));
}
#endif

template <int CLUSTER, int TILE_TOKENS, bool STATISTICS>
static __global__ void __launch_bounds__(HEAD_THREADS, 1)
    head_wgmma_kernel(const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap w_map, int n_row_tiles, int n_token_tiles,
                      int n_steps, int n_rows, int n_vocab, bool rounded,
                      struct head_summary<STATISTICS> *summaries) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    constexpr int TOKEN_BYTES = TILE_TOKENS * TILE_CHANNELS * 2;
    constexpr int STAGE_BYTES = ROW_BYTES + TOKEN_BYTES, STAGES = HEAD_RING_BYTES / STAGE_BYTES;
    /* Fewer rows than a tile: the rest of its memory is never written, nor its rows stored. */
    const int x_bytes = min(n_rows, (int)TILE_ROWS) * TILE_CHANNELS * 2;
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 * STAGES];
    const uint32_t ring = (shared_address(shared) + 1023) / 1024 * 1024;
    const uint32_t full = shared_address(barriers), empty = full + STAGES * 8;
    const int group = threadIdx.x / 128, rank = CLUSTER == 1 ? 0 : blockIdx.x % CLUSTER;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, 2 * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    if (CLUSTER > 1) {
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" ::
                         : "memory");
    } else {
        __syncthreads();
    }
    const int n_groups = n_row_tiles / CLUSTER, n_tiles = n_groups * n_token_tiles;
    if (group == 0) {
        registers_give<40>();
        if (threadIdx.x == 0) {
            int at = 0, parity = 1;
            for (int tile = blockIdx.x / CLUSTER; tile < n_tiles; tile += gridDim.x / CLUSTER) {
                const int row = first_row(tile % n_groups * CLUSTER + rank, n_rows);
                const int token = tile / n_groups * TILE_TOKENS;
                for (int step = 0; step < n_steps; step++) {
                    const uint32_t to = ring + at * STAGE_BYTES;
                    barrier_wait(empty + at * 8, parity);
                    barrier_expect(full + at * 8, x_bytes + TOKEN_BYTES);
                    tensor_copy(to, &x_map, full + at * 8, step * TILE_CHANNELS, 0, row);
                    if (CLUSTER == 1) {
                        for (int half = 0; half < 2; half++) {
                            tensor_copy(to + ROW_BYTES + half * TOKEN_BYTES / 2, &w_map,
                                        full + at * 8, step * TILE_CHANNELS, 0,
                                        token + half * TILE_TOKENS / 2);
                        }
                    } else {
                        tensor_copy_to(to + ROW_BYTES + rank * TOKEN_BYTES / 2, &w_map,
                                       full + at * 8, step * TILE_CHANNELS, 0,
                                       token + rank * TILE_TOKENS / 2, 3);
                    }
                    if (++at == STAGES) {
                        at = 0;
                        parity ^= 1;
                    }
                }
            }
        }
    } else {
        auto release = [&](int stage) {
            if (CLUSTER == 1) {
                barrier_arrive(empty + stage * 8);
            } else {
                barrier_arrive_at(empty + stage * 8, 0);
                barrier_arrive_at(empty + stage * 8, 1);
            }
        };
        registers_take<232>();
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        const bool leader = threadIdx.x % 128 == 0;
        int at = 0, parity = 0, previous = -1;
        float logit[TILE_TOKENS / 2];
        for (int tile = blockIdx.x / CLUSTER; tile < n_tiles; tile += gridDim.x / CLUSTER) {
            for (int step = 0; step < n_steps; step++) {
                barrier_wait(full + at * 8, parity);
                const uint32_t rows = ring + at * STAGE_BYTES + (group - 1) * ROW_BYTES / 2;
                const uint64_t a = operand_rows(rows);
                const uint64_t b = operand_rows(ring + at * STAGE_BYTES + ROW_BYTES);
                wgmma_begin();
#pragma unroll
                for (int k = 0; k < TILE_CHANNELS / 16; k++) {
                    wgmma_m64k16<TILE_TOKENS>(logit, a + k * 2, b + k * 2, step > 0 || k > 0);
                }
                wgmma_commit();
                wgmma_wait<1>(); /* the products of the step before this one are done */
                if (previous >= 0 && leader) {
                    release(previous);
                }
                previous = at;
                if (++at == STAGES) {
                    at = 0;
                    parity ^= 1;
                }
            }
            wgmma_wait<0>();
            if (leader) {
                release(previous);
            }
            previous = -1;
            const int token = tile / n_groups * TILE_TOKENS + lane % 4 * 2;
            const int n_tokens = n_vocab - token;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const struct head_summary<STATISTICS> summary =
                    row_summary<TILE_TOKENS, STATISTICS>(logit, half, token, n_tokens, rounded);
                const int row_tile = tile % n_groups * CLUSTER + rank;
                const int row = first_row(row_tile, n_rows) + (group - 1) * 64 + warp * 16 +
                                half * 8 + lane / 4;
                if (lane % 4 == 0 && row >= row_tile * TILE_ROWS && row < n_rows) {
                    summaries[(int64_t)row * n_token_tiles + tile / n_groups] = summary;
                }
            }
        }
    }
    if (CLUSTER > 1) { /* a block's memory must outlive its neighbour's copies and arrivals */
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" ::
                         : "memory");
    }
#endif
}

template <int CLUSTER, int TILE_TOKENS, bool STATISTICS>
static cudaError_t head_start(const CUtensorMap &x_map, const CUtensorMap &w_map, int n_row_tiles,
                              const struct call_head *call, int n_rows, int n_sms,
                              struct head_summary<STATISTICS> *summaries, cudaStream_t stream) {
    const int bytes = HEAD_RING_BYTES + RING_ALIGNMENT;
    const int n_token_tiles = (call->n_vocab + TILE_TOKENS - 1) / TILE_TOKENS;
    const int n_tiles = n_row_tiles * n_token_tiles;
    auto kernel = head_wgmma_kernel<CLUSTER, TILE_TOKENS, STATISTICS>;
    cudaError_t status = shared_allow(kernel, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    const dim3 grid((unsigned)((n_tiles < n_sms ? n_tiles : n_sms) / CLUSTER * CLUSTER));
    return launch_clusters(kernel, grid, dim3(HEAD_THREADS), CLUSTER, (size_t)bytes, stream, x_map,
                           w_map, n_row_tiles, n_token_tiles,
                           (call->n_channels + TILE_CHANNELS - 1) / TILE_CHANNELS, n_rows,
                           call->n_vocab, call->rounded, summaries);
}

/* Tokens a tile: the width whose waves of tiles waste less, the wider one when they differ little,
 * for it reads less from the L2 cache a product. */
static int head_tile_tokens(int n_row_tiles, int n_vocab, int n_sms) {
    const int64_t wide = (n_row_tiles * (int64_t)((n_vocab + 255) / 256) + n_sms - 1) / n_sms * 256;
    const int64_t narrow =
        (n_row_tiles * (int64_t)((n_vocab + 191) / 192) + n_sms - 1) / n_sms * 192;
    return wide <= narrow + narrow / 32 ? 256 : 192;
}

template <bool STATISTICS>
static cudaError_t head_run(const struct call_head *call, int64_t scratch_bytes,
                            cudaStream_t stream) {
    struct head_summary<STATISTICS> *summaries =
        static_cast<struct head_summary<STATISTICS> *>(call->scratch);
    int n_sms;
    cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess) {
        return status;
    }
    /* 16 tiles of rows at a time: their inputs stay in the L2 cache while the weights pass. */
    const int most_parts = (call->n_vocab + 191) / 192;
    const int64_t fit = scratch_bytes / (most_parts * (int64_t)sizeof *summaries);
    const int chunk = fit >= 2048 ? 2048 : (int)(fit / 256 * 256);
    if (chunk == 0) {
        return cudaErrorInvalidValue;
    }
    for (int row = 0; row < call->n_rows; row += chunk) {
        const int n_rows = call->n_rows - row < chunk ? call->n_rows - row : chunk;
        const char *x = static_cast<const char *>(call->x) + (int64_t)row * call->n_channels * 2;
        /* An odd count pays a whole idle tile for the cluster: not worth it below nine. */
        int n_row_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
        const bool pair = n_row_tiles % 2 == 0 || n_row_tiles > 8;
        n_row_tiles += pair ? n_row_tiles % 2 : 0;
        /* A tile's tokens are summed up together, so that the width shows in the last bits. */
        const int tile_tokens =
            call->invariant ? 256 : head_tile_tokens(n_row_tiles, call->n_vocab, n_sms);
        CUtensorMap x_map, w_map;
        if (!hopper_map(&x_map, x, call->n_channels, 1, call->n_channels, n_rows, call->n_channels,
                        n_rows < TILE_ROWS ? n_rows : TILE_ROWS) ||
            !hopper_map(&w_map, call->w, call->n_channels, 1, call->n_channels, call->n_vocab,
                        call->n_channels, tile_tokens / 2)) {
            return cudaErrorNotSupported;
        }
        const bool wide = tile_tokens == 256;
        auto start = pair
                         ? (wide ? head_start<2, 256, STATISTICS> : head_start<2, 192, STATISTICS>)
                         : (wide ? head_start<1, 256, STATISTICS> : head_start<1, 192, STATISTICS>);
        status = start(x_map, w_map, n_row_tiles, call, n_rows, n_sms, summaries, stream);
        if (status == cudaSuccess) {
            const int n_parts = (call->n_vocab + tile_tokens - 1) / tile_tokens;
            status = head_merge(summaries, n_parts, head_results_at(call, row), n_rows, stream);
        }
        if (status != cudaSuccess) {
            return status;
        }
    }
    return cudaSuccess;
}

cudaError_t head_wgmma(const struct call_head *call, int64_t scratch_bytes, cudaStream_t stream) {
    return call->margin ? head_run<true>(call, scratch_bytes, stream)
                        : head_run<false>(call, scratch_bytes, stream);
}
