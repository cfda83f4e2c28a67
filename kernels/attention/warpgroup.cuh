/* Attention by warpgroup products (sm_90a), whatever the source of keys, of heads of D channels. A
 * block holds 128 query rows, 64 for each of two warpgroups; a third warpgroup's warp or thread
 * fetches keys and values, STAGES stages of TILE_N each. Each warpgroup starts the next tile's
 * scores before it adds up this tile's values, so that the tensor cores work through the
 * exponentials; the two take turns to issue, so that one's exponentials run under the other's
 * products (Shah et al., FlashAttention-3, arXiv 2407.08608, sections 3.1 and 3.2). */
#ifndef UNMASK_KERNELS_ATTENTION_WARPGROUP_CUH
#define UNMASK_KERNELS_ATTENTION_WARPGROUP_CUH

#include "kernels/attention/fragments.cuh"
#include "kernels/launches.h"
#include "kernels/linear/wgmma.cuh"

enum {
    TILE_M = 128,
    /* Named barriers: the warpgroups' turns, both together, and each by itself. */
    TURN = 1,
    BOTH = 3,
    ALONE = 4,
};

/* A tile of keys or values, and that of queries, in planes of 64 columns; what a plane has past the
 * head is zeros. */
template <int D> struct warpgroup_tile {
    static constexpr int TILE_N = WARPGROUP_TILE_KEYS(D), PLANES = WARPGROUP_PLANES(D);
    static constexpr int COLUMNS = PLANES * 64;
    static constexpr int PLANE_BYTES = TILE_N * 128, BYTES = PLANES * PLANE_BYTES;
    static constexpr int Q_PLANE_BYTES = TILE_M * 128, Q_BYTES = PLANES * Q_PLANE_BYTES;
};

#if HOPPER_DEVICE

/* Where queries, keys and values are in shared memory, and the barriers that say when. */
template <int STAGES> struct attention_ring {
    uint32_t q_tile, k_ring, v_ring, q_full, q_empty, k_full, v_full, k_empty, v_empty;
};

template <int STAGES> constexpr int ring_barriers = 2 + 4 * STAGES;

/* By all threads of the block; barriers are ready afterwards. */
template <int D, int STAGES>
static __device__ __forceinline__ struct attention_ring<STAGES>
ring_open(const unsigned char *shared, const uint64_t *barriers) {
    struct attention_ring<STAGES> ring;
    ring.q_tile = (shared_address(shared) + 1023) / 1024 * 1024;
    ring.k_ring = ring.q_tile + warpgroup_tile<D>::Q_BYTES;
    ring.v_ring = ring.k_ring + STAGES * warpgroup_tile<D>::BYTES;
    ring.q_full = shared_address(barriers);
    ring.q_empty = ring.q_full + 8;
    ring.k_full = ring.q_full + 16;
    ring.v_full = ring.k_full + STAGES * 8;
    ring.k_empty = ring.v_full + STAGES * 8;
    ring.v_empty = ring.k_empty + STAGES * 8;
    if (threadIdx.x == 0) {
        barrier_init(ring.q_full, 1);
        barrier_init(ring.q_empty, 2);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(ring.k_full + i * 8, 1);
            barrier_init(ring.v_full + i * 8, 1);
            barrier_init(ring.k_empty + i * 8, 2);
            barrier_init(ring.v_empty + i * 8, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    return ring;
}

/* With two stages waits that fail at first are common: spun in place dense attention takes 0.95 of
 * the time (one H100, 2026-11-22). */
template <int STAGES>
static __device__ __forceinline__ void ring_wait(uint32_t barrier, int parity) {
    if constexpr (STAGES == 2) {
        barrier_spin(barrier, parity);
    } else {
        barrier_wait(barrier, parity);
    }
}

/* A place in the ring, and the parity of the barriers' phase there. */
template <int STAGES> struct ring_place {
    int at, parity;

    __device__ __forceinline__ void next() {
        if (++at == STAGES) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* N planes of a tile of a head, from token `row` on, by one thread. */
template <int N, int PLANE_BYTES>
static __device__ __forceinline__ void tile_fetch(uint32_t to, const CUtensorMap *map,
                                                  uint32_t full, int head, int row) {
    barrier_expect(full, N * PLANE_BYTES);
    for (int plane = 0; plane < N; plane++) {
        tensor_copy(to + plane * PLANE_BYTES, map, full, plane * 64, head, row);
    }
}

/* A tile of keys and one of values into the ring's next place, by one thread. */
template <int D, int STAGES>
static __device__ __forceinline__ void
tile_fetch_keys(const struct attention_ring<STAGES> &ring, struct ring_place<STAGES> &place,
                const CUtensorMap *k_map, const CUtensorMap *v_map, int kv_head, int row) {
    typedef struct warpgroup_tile<D> tile;
    const int at = place.at;
    ring_wait<STAGES>(ring.k_empty + at * 8, place.parity);
    tile_fetch<tile::PLANES, tile::PLANE_BYTES>(ring.k_ring + at * tile::BYTES, k_map,
                                                ring.k_full + at * 8, kv_head, row);
    ring_wait<STAGES>(ring.v_empty + at * 8, place.parity);
    tile_fetch<tile::PLANES, tile::PLANE_BYTES>(ring.v_ring + at * tile::BYTES, v_map,
                                                ring.v_full + at * 8, kv_head, row);
    place.next();
}

/* One of the two warpgroups that attend. */
template <int D, int STAGES> struct attender {
    typedef struct warpgroup_tile<D> tile;
    static constexpr int TILE_N = tile::TILE_N;
    struct attention_ring<STAGES> ring;
    struct ring_place<STAGES> k, v;
    int number, q_parity; /* number: 0 or 1 */
    bool leader;
    float s[TILE_N / 2], out[tile::COLUMNS / 2], top[2], sum[2], shrink[2];
    uint32_t p[TILE_N / 16][4];

    /* This lane's first row of the 128; the other is 8 further down. */
    __device__ __forceinline__ int row() const {
        return number * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    }
    __device__ __forceinline__ void open(const struct attention_ring<STAGES> &with) {
        ring = with;
        k = v = {0, 0};
        number = threadIdx.x / 128 - 1;
        q_parity = 0;
        leader = threadIdx.x % 128 == 0;
        if (number == 1) { /* the first turn is the first warpgroup's */
            pass_turn();
        }
    }
    __device__ __forceinline__ void close() {
        if (number == 0) { /* takes the turn that is left over */
            take_turn();
        }
    }
    __device__ __forceinline__ void take_turn() const {
        named_barrier_sync(TURN + number, 256);
    }
    __device__ __forceinline__ void pass_turn() const {
        named_barrier_arrive(TURN + 1 - number, 256);
    }
    __device__ __forceinline__ void issue_scores() {
        ring_wait<STAGES>(ring.k_full + k.at * 8, k.parity);
        const uint64_t a = operand_rows(ring.q_tile + number * 64 * 128);
        const uint64_t b = operand_rows(ring.k_ring + k.at * tile::BYTES);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const int from = i % 4 * 2;
            wgmma_m64k16<TILE_N>(s, a + i / 4 * (tile::Q_PLANE_BYTES / 16) + from,
                                 b + i / 4 * (tile::PLANE_BYTES / 16) + from, i > 0);
        }
        wgmma_commit();
    }
    /* Values past n_keys become zeros: 0 times a NaN would count. */
    __device__ __forceinline__ void clean_values(int n_keys) {
        if (n_keys < TILE_N) { /* both warpgroups write the same zeros */
            for (int i = n_keys * 8 + threadIdx.x % 128; i < TILE_N * 8; i += 128) {
                const uint32_t to = ring.v_ring + v.at * tile::BYTES + i * 16;
#pragma unroll
                for (int plane = 0; plane < tile::PLANES; plane++) {
                    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};\n" ::"r"(
                                     to + plane * tile::PLANE_BYTES),
                                 "r"(0)
                                 : "memory");
                }
            }
            fence_copied();
            named_barrier_sync(ALONE + number, 128);
        }
    }
    template <bool CLEAN>
    __device__ __forceinline__ void issue_values(int n_keys, bool accumulate) {
        ring_wait<STAGES>(ring.v_full + v.at * 8, v.parity);
        if constexpr (CLEAN) {
            clean_values(n_keys);
        }
        const uint64_t b = operand_columns(ring.v_ring + v.at * tile::BYTES, tile::PLANE_BYTES);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < TILE_N / 16; i++) {
            wgmma_m64k16_registers(out, p[i], b + i * (2048 / 16), accumulate || i > 0);
        }
        wgmma_commit();
    }
    __device__ __forceinline__ void keys_done() {
        if (leader) {
            barrier_arrive(ring.k_empty + k.at * 8);
        }
        k.next();
    }
    __device__ __forceinline__ void values_done() {
        if (leader) {
            barrier_arrive(ring.v_empty + v.at * 8);
        }
        v.next();
    }
    /* s becomes probabilities of the keys from first_key on, of which the lane's rows attend to
     * those below extent[half]; RAGGED: maybe to none. */
    template <bool RAGGED>
    __device__ __forceinline__ void exponentials(int first_key, const int (&extent)[2],
                                                 float scale_log2) {
        if (first_key + TILE_N > min(extent[0], extent[1])) {
#pragma unroll
            for (int i = 0; i < TILE_N / 2; i++) {
                const int key = first_key + i / 4 * 8 + threadIdx.x % 4 * 2 + (i & 1);
                s[i] = key < extent[i / 2 % 2] ? s[i] : ATTENTION_NEVER;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float peak = ATTENTION_NEVER;
#pragma unroll
            for (int i = 0; i < TILE_N / 8; i++) {
                peak = fmaxf(peak, fmaxf(s[i * 4 + half * 2], s[i * 4 + half * 2 + 1]));
            }
            peak = fmaxf(top[half], quad_max(peak));
            shrink[half] = exp2_fast((top[half] - peak) * scale_log2);
            top[half] = peak;
            const float shift = !RAGGED || peak > ATTENTION_NEVER ? peak * scale_log2 : 0;
            float added = 0;
#pragma unroll
            for (int i = 0; i < TILE_N / 8; i++) {
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float &x = s[i * 4 + half * 2 + j];
                    x = exp2_fast(x * scale_log2 - shift);
                    added += x;
                }
            }
            sum[half] = sum[half] * shrink[half] + added;
        }
    }
    __device__ __forceinline__ void pack() {
#pragma unroll
        for (int k = 0; k < TILE_N / 16; k++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[k][i] = bf16_pack(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
            }
        }
    }
    /* n_tiles of an item from first_key on, whose queries are fetched anew. The lane's rows attend
     * to the keys below extent[half]: all to the same ones, at least one a tile, unless RAGGED,
     * where values from end_key on may be anything, too. Afterwards out, top and sum are the rows',
     * sum whole. */
    template <bool RAGGED>
    __device__ __forceinline__ void run(int n_tiles, int first_key, const int (&extent)[2],
                                        int end_key, float scale_log2) {
        top[0] = top[1] = ATTENTION_NEVER;
        sum[0] = sum[1] = 0;
        ring_wait<STAGES>(ring.q_full, q_parity);
        q_parity ^= 1;
        take_turn();
        issue_scores();
        pass_turn();
        wgmma_wait<0>();
        keys_done();
        if (n_tiles == 1 && leader) {
            barrier_arrive(ring.q_empty);
        }
        exponentials<RAGGED>(first_key, extent, scale_log2);
        pack();
        for (int tile = 1; tile < n_tiles; tile++) {
            take_turn();
            issue_scores();
            issue_values<false>(TILE_N, tile > 1);
            pass_turn();
            first_key += TILE_N;
            wgmma_wait<1>();
            keys_done();
            if (tile == n_tiles - 1 && leader) {
                barrier_arrive(ring.q_empty);
            }
            exponentials<RAGGED>(first_key, extent, scale_log2);
            wgmma_wait<0>();
            values_done();
            pack();
#pragma unroll
            for (int i = 0; i < tile::COLUMNS / 2; i++) {
                out[i] *= shrink[i / 2 % 2];
            }
        }
        issue_values<RAGGED>(end_key - first_key, n_tiles > 1);
        sum[0] = quad_sum(sum[0]);
        sum[1] = quad_sum(sum[1]);
        wgmma_wait<0>();
        values_done();
    }
    /* Writes one of the lane's two rows, finished, where it is one. */
    __device__ __forceinline__ void store(int half, __nv_bfloat16 *row, bool valid) const {
        const int lane = threadIdx.x % 32;
        const float scale = 1.0f / sum[half];
        uint4 *to = reinterpret_cast<uint4 *>(row);
#pragma unroll
        for (int i = 0; i < D / 32; i++) { /* neighbours exchange pairs for 16-byte stores */
            uint32_t word[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int at = (i * 4 + j) * 4 + half * 2;
                word[j] = bf16_pack(out[at] * scale, out[at + 1] * scale);
            }
            quad_transpose(word, lane);
            if (valid) {
                to[i * 4 + lane % 4] = make_uint4(word[0], word[1], word[2], word[3]);
            }
        }
    }
    /* Leaves it for the block that puts its item together. */
    __device__ __forceinline__ void leave(int half, float *row) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            *reinterpret_cast<float2 *>(row + i * 8 + lane % 4 * 2) =
                make_float2(out[i * 4 + half * 2], out[i * 4 + half * 2 + 1]);
        }
        if (lane % 4 == 0) {
            row[D] = top[half];
            row[D + 1] = sum[half];
        }
    }
};

#endif
#endif
