/* The k largest of up to 64 K floats by one thread block, the lower index on a tie. Keys are all
 * 32 bits of the float: truncated keys change selections. Each thread holds KEYS of them in
 * registers, those of top_index; key 0 stands for no element. */
#ifndef UNMASK_KERNELS_DECODE_TOP_CUH
#define UNMASK_KERNELS_DECODE_TOP_CUH

#include <stdint.h>

/* Maps a float to an unsigned number of the same order; no number maps to 0. */
static __device__ __forceinline__ uint32_t top_key(float x) {
    const uint32_t bits = __float_as_uint(x + 0.0f); /* -0 and 0 are a tie */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The sums of three counts over the block, for every thread; no thread counts more than KEYS.
 * buffer alternates between two halves from call to call, which saves the second barrier. */
template <int THREADS, int KEYS>
static __device__ __forceinline__ void block_sum(uint32_t (&n)[3], uint32_t (*buffer)[3][32],
                                                 int round) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool held = lane < THREADS / 32;
    if constexpr (KEYS * 32 < 1024 &&
                  THREADS * KEYS < 65536) { /* a warp's counts in 10 bits each */
        const uint32_t packed = __reduce_add_sync(~0u, n[0] | n[1] << 10 | n[2] << 20);
        if (lane == 0) {
            buffer[round & 1][0][warp] = packed;
        }
        __syncthreads();
        const uint32_t its = held ? buffer[round & 1][0][lane] : 0;
        const uint32_t two = __reduce_add_sync(~0u, (its & 1023) | (its >> 10 & 1023) << 16);
        n[0] = two & 65535;
        n[1] = two >> 16;
        n[2] = __reduce_add_sync(~0u, its >> 20);
    } else {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            n[i] = __reduce_add_sync(~0u, n[i]);
            if (lane == 0) {
                buffer[round & 1][i][warp] = n[i];
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 3; i++) {
            n[i] = __reduce_add_sync(~0u, held ? buffer[round & 1][i][lane] : 0);
        }
    }
}

/* The k-th largest key, two bits a round; 1 <= k <= elements. */
template <int THREADS, int KEYS>
static __device__ __forceinline__ uint32_t top_threshold(const uint32_t (&key)[KEYS], uint32_t k,
                                                         uint32_t (*buffer)[3][32]) {
    /* How many of this thread's keys are above the range still searched, and how many inside it; a
     * warp with none inside has nothing left to compare. */
    uint32_t threshold = 0, above = 0, inside = KEYS;
    for (int bit = 30; bit >= 0; bit -= 2) {
        uint32_t mine[4] = {above + inside, above, above, above};
        if (__any_sync(~0u, inside > 0)) {
            mine[1] = mine[2] = mine[3] = 0;
#pragma unroll
            for (int i = 0; i < KEYS; i++) {
#pragma unroll
                for (uint32_t step = 1; step < 4; step++) {
                    mine[step] += key[i] >= (threshold | step << bit);
                }
            }
        }
        uint32_t all[3] = {mine[1], mine[2], mine[3]};
        block_sum<THREADS, KEYS>(all, buffer, bit / 2);
        const uint32_t steps = (all[0] >= k) + (all[1] >= k) + (all[2] >= k);
        threshold |= steps << bit;
        const uint32_t from = steps == 0   ? mine[0]
                              : steps == 1 ? mine[1]
                              : steps == 2 ? mine[2]
                                           : mine[3];
        above = steps == 0 ? mine[1] : steps == 1 ? mine[2] : steps == 2 ? mine[3] : above;
        inside = from - above;
    }
    return threshold;
}

/* Which element a thread's i-th key is: a warp has 32 KEYS neighbours, a lane every 32nd. */
template <int KEYS> static __device__ __forceinline__ int top_index(int i) {
    return threadIdx.x / 32 * (32 * KEYS) + i * 32 + threadIdx.x % 32;
}

/* Calls chosen(i, place) for the i-th key of this thread when it is among the k largest;
 * place is its rank in index order among the chosen. */
template <int THREADS, int KEYS, class CHOSEN>
static __device__ __forceinline__ void top_visit(const uint32_t (&key)[KEYS], uint32_t k,
                                                 uint32_t threshold, uint32_t (*buffer)[3][32],
                                                 CHOSEN chosen) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t lower_lanes = (1u << lane) - 1;
    uint32_t above = 0, equal = 0;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        above += __popc(__ballot_sync(~0u, key[i] > threshold));
        equal += __popc(__ballot_sync(~0u, key[i] == threshold));
    }
    __syncthreads();
    if (lane == 0) {
        buffer[0][0][warp] = above;
        buffer[0][1][warp] = equal;
    }
    __syncthreads();
    const bool earlier = lane < warp && lane < THREADS / 32, held = lane < THREADS / 32;
    const uint32_t all_above = __reduce_add_sync(~0u, held ? buffer[0][0][lane] : 0);
    uint32_t n_above = __reduce_add_sync(~0u, earlier ? buffer[0][0][lane] : 0);
    uint32_t n_equal = __reduce_add_sync(~0u, earlier ? buffer[0][1][lane] : 0);
    const uint32_t wanted = k - all_above; /* taken from the first equal to the threshold */
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const bool is_above = key[i] > threshold, is_equal = key[i] == threshold;
        const uint32_t aboves = __ballot_sync(~0u, is_above);
        const uint32_t equals = __ballot_sync(~0u, is_equal);
        const uint32_t my_equal = n_equal + __popc(equals & lower_lanes);
        if (is_above || (is_equal && my_equal < wanted)) {
            chosen(i, n_above + __popc(aboves & lower_lanes) + min(my_equal, wanted));
        }
        n_above += __popc(aboves);
        n_equal += __popc(equals);
    }
}

#endif
