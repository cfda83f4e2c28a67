/* Bidirectional attention on sm_90a. A block holds 128 query rows of a head, 64 for each of two
 * warpgroups; a third warpgroup's one thread fetches keys and values, two stages of 128 each.
 * Each warpgroup starts the next tile's scores before it adds up this tile's values, so that the
 * tensor cores work through the exponentials; the two take turns to issue, so that one's
 * exponentials run under the other's products (Shah et al., FlashAttention-3, arXiv 2407.08608,
 * sections 3.1 and 3.2). Tiles reach into the next request; their scores are masked, so another
 * request's keys and values never count, provided they are finite. */
#include "kernels/attention/dense_attention.cuh"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/linear/wgmma.cuh"

enum {
    HEAD_SIZE = 128,
    TILE_M = 128,
    TILE_N = 128,
    STAGES = 2,
    HALF_BYTES = TILE_N * 128, /* a tile is two halves of 64 columns */
    TILE_BYTES = 2 * HALF_BYTES,
    THREADS = 384,
    TURN = 1, /* the first of the two named barriers by which the warpgroups take turns */
};

#if HOPPER_DEVICE
/* The request, head and first query of an item; false when it lies past the last of them. */
static __device__ __forceinline__ bool tile_of(const struct call_dense_attention &call, int item,
                                               int n_row_tiles, int &request, int &head, int &row0,
                                               struct query_rows &queries) {
    row0 = item % n_row_tiles * TILE_M;
    head = item / n_row_tiles % call.n_heads;
    request = item / n_row_tiles / call.n_heads;
    queries = query_rows_of(call, request);
    return row0 < queries.n;
}
#endif

static __global__ void __launch_bounds__(THREADS, 1)
    dense_attention_wgmma_kernel(const __grid_constant__ CUtensorMap q_map,
                                 const __grid_constant__ CUtensorMap k_map,
                                 const __grid_constant__ CUtensorMap v_map,
                                 const __grid_constant__ struct call_dense_attention call,
                                 int n_row_tiles, int n_items, float scale_log2) {
    dependencies_wait();
    dependents_launch();
#if HOPPER_DEVICE
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 + 4 * STAGES];
    constexpr float NEVER = -INFINITY;
    const uint32_t q_tile = (shared_address(shared) + 1023) / 1024 * 1024;
    const uint32_t k_ring = q_tile + TILE_BYTES, v_ring = k_ring + STAGES * TILE_BYTES;
    const uint32_t q_full = shared_address(barriers), q_empty = q_full + 8;
    const uint32_t k_full = q_full + 16, v_full = k_full + STAGES * 8;
    const uint32_t k_empty = v_full + STAGES * 8, v_empty = k_empty + STAGES * 8;
    const int group = threadIdx.x / 128;
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
    int request, head, row0;
    struct query_rows queries;
    if (group == 0) {
        registers_give<24>();
        if (threadIdx.x == 0) {
            int at = 0, parity = 1, q_parity = 1;
            for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
                if (!tile_of(call, item, n_row_tiles, request, head, row0, queries)) {
                    continue;
                }
                const int first = call.start[request], length = call.start[request + 1] - first;
                const int kv_head = head / (call.n_heads / call.n_kv_heads);
                barrier_wait(q_empty, q_parity);
                q_parity ^= 1;
                barrier_expect(q_full, TILE_BYTES);
                for (int half = 0; half < 2; half++) {
                    tensor_copy(q_tile + half * HALF_BYTES, &q_map, q_full, half * 64, head,
                                queries.first + row0);
                }
                for (int row = 0; row < length; row += TILE_N) {
                    const uint32_t k_to = k_ring + at * TILE_BYTES, v_to = v_ring + at * TILE_BYTES;
                    barrier_wait(k_empty + at * 8, parity);
                    barrier_expect(k_full + at * 8, TILE_BYTES);
                    for (int half = 0; half < 2; half++) {
                        tensor_copy(k_to + half * HALF_BYTES, &k_map, k_full + at * 8, half * 64,
                                    kv_head, first + row);
                    }
                    barrier_wait(v_empty + at * 8, parity);
                    barrier_expect(v_full + at * 8, TILE_BYTES);
                    for (int half = 0; half < 2; half++) {
                        tensor_copy(v_to + half * HALF_BYTES, &v_map, v_full + at * 8, half * 64,
                                    kv_head, first + row);
                    }
                    if (++at == STAGES) {
                        at = 0;
                        parity ^= 1;
                    }
                }
            }
        }
        return;
    }
    registers_take<240>();
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const bool leader = threadIdx.x % 128 == 0;
    const int my_turn = TURN + group - 1, its_turn = TURN + 2 - group;
    const uint32_t q_rows = q_tile + (group - 1) * 64 * 128;
    int k_at = 0, k_parity = 0, v_at = 0, v_parity = 0, q_parity = 0;
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
    auto issue_values = [&](bool accumulate) {
        barrier_wait(v_full + v_at * 8, v_parity);
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
    auto exponentials =
        [&](int n_keys) { /* s becomes probabilities */
                          if (n_keys < TILE_N) {
#pragma unroll
                              for (int i = 0; i < 64; i++) {
                                  s[i] = i / 4 * 8 + lane % 4 * 2 + (i & 1) < n_keys ? s[i] : NEVER;
                              }
                          }
#pragma unroll
                          for (int half = 0; half < 2; half++) {
                              float peak = NEVER;
#pragma unroll
                              for (int i = 0; i < 16; i++) {
                                  peak = fmaxf(peak,
                                               fmaxf(s[i * 4 + half * 2], s[i * 4 + half * 2 + 1]));
                              }
                              peak = fmaxf(top[half], quad_max(peak));
                              shrink[half] = exp2_fast((top[half] - peak) * scale_log2);
                              top[half] = peak;
                              const float shift = peak * scale_log2;
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

    if (group == 2) { /* the first turn is the first warpgroup's */
        named_barrier_arrive(its_turn, 256);
    }
    for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
        if (!tile_of(call, item, n_row_tiles, request, head, row0, queries)) {
            continue;
        }
        const int length = call.start[request + 1] - call.start[request];
        const int n_tiles = (length + TILE_N - 1) / TILE_N;
        top[0] = top[1] = NEVER;
        sum[0] = sum[1] = 0;
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
        exponentials(length);
        pack();
        for (int tile = 1; tile < n_tiles; tile++) {
            named_barrier_sync(my_turn, 256);
            issue_scores();
            issue_values(tile > 1);
            named_barrier_arrive(its_turn, 256);
            wgmma_wait<1>();
            keys_done();
            if (tile == n_tiles - 1 && leader) {
                barrier_arrive(q_empty);
            }
            exponentials(length - tile * TILE_N);
            wgmma_wait<0>();
            values_done();
            pack();
#pragma unroll
            for (int i = 0; i < 64; i++) {
                out[i] *= shrink[i / 2 % 2];
            }
        }
        issue_values(n_tiles > 1);
        sum[0] = 1.0f / quad_sum(sum[0]);
        sum[1] = 1.0f / quad_sum(sum[1]);
        wgmma_wait<0>();
        values_done();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row0 + (group - 1) * 64 + warp * 16 + half * 8 + lane / 4;
            struct bf16x8 *to = reinterpret_cast<struct bf16x8 *>(
                static_cast<__nv_bfloat16 *>(call.y) +
                (int64_t)(queries.first + row) * call.y_stride + head * HEAD_SIZE);
#pragma unroll
            for (int i = 0; i < 4; i++) { /* four neighbours exchange pairs for 16-byte stores */
                uint32_t word[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int at = (i * 4 + j) * 4 + half * 2;
                    word[j] = bf16_pack(out[at] * sum[half], out[at + 1] * sum[half]);
                }
                quad_transpose(word, lane);
                if (row < queries.n) {
                    *reinterpret_cast<uint4 *>(to + i * 4 + lane % 4) =
                        make_uint4(word[0], word[1], word[2], word[3]);
                }
            }
        }
    }
    if (group == 1) { /* takes the turn that is left over */
        named_barrier_sync(my_turn, 256);
    }
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
    int device, n_sms;
    const int bytes = (1 + 2 * STAGES) * TILE_BYTES + 1024;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(dense_attention_wgmma_kernel,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
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
    launch(dense_attention_wgmma_kernel, (unsigned)(n_items < n_sms ? n_items : n_sms), THREADS,
           bytes, stream, q_map, k_map, v_map, *call, n_row_tiles, (int)n_items, scale_log2);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_dense_attention(const struct call_dense_attention *call,
                                              cudaStream_t stream) {
    return hopper_device() ? kernel_dense_attention_wgmma(call, stream)
                           : kernel_dense_attention_mma(call, stream);
}
