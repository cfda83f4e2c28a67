/* Products of few tokens with weights in fp8 (sm_90a), after few_linear.cu: a stream of weights,
 * each read once, in tiles of 128 rows by all the tokens; the blocks of a cluster share a tile's
 * channels. The sums of a step's 128 channels leave the tensor cores for single precision, by
 * squares times what the step's weights and inputs are scaled by; scales of inputs travel in the
 * stages next to their codes. Where inputs are in bf16, codes become bf16 on their way into
 * registers, which is exact: scales come onto the sums there, too. Of such inputs more tokens are
 * taken, WIDE_TOKENS a tile. */
#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/few.cuh"
#include "kernels/linear/fp8.cuh"
#include "kernels/linear/fp8_wide.cuh"
#include "kernels/linear/wgmma.cuh"

enum {
    WEIGHT_BYTES = TILE_ROWS * FP8_STEP,
    MAX_STAGES = 6,
    WORKERS = FEW_LINEAR_WORKERS, /* two warpgroups of 64 rows of weights each */
    THREADS = FEW_LINEAR_THREADS,
    MOST_BLOCKS = 4, /* of a cluster: 8 took a quarter longer for 4096 outputs (lab/README.md) */
    LEAST_STEPS = 2, /* a block: else putting the sums together costs more than sharing saves */
    MOST_TOKENS = 64,
    WIDE_TOKENS = 128, /* of a tile that has a multiprocessor to itself */
};

/* What a block may have, by the tokens of its tile. */
static constexpr int blocks_of(int width) {
    return width <= MOST_TOKENS ? 2 : 1; /* a multiprocessor */
}

static constexpr int ring_bytes_of(int width) {
    return blocks_of(width) == 2 ? FEW_LINEAR_RING_BYTES : FP8_RING_BYTES;
}

/* How a product is cut. */
struct few_cut {
    int n_steps, weight_bytes, input_bytes; /* that a step's copies bring */
    int n_blocks;                           /* of a cluster */
    int n_token_tiles;
};

#if HOPPER_DEVICE
template <bool X_TOO, int WIDTH> struct few_ring {
    static constexpr int STAGE_BYTES = WEIGHT_BYTES + WIDTH * FP8_STEP * (X_TOO ? 1 : 2);
    static constexpr int FIT = ring_bytes_of(WIDTH) / STAGE_BYTES;
    static constexpr int STAGES = FIT < MAX_STAGES ? FIT : MAX_STAGES;
};

/* Where a block's stages, their barriers and their inputs' scales are, and its tokens. */
struct few_place {
    uint32_t stages, full, empty, scales;
    int token, n_tokens;
};

/* By one warp: the steps [begin, end). A stage is full when weights, inputs and scales are there.
 */
template <bool GATED, bool SQUARES, bool X_TOO, int WIDTH>
static __device__ __forceinline__ void
few_feed(const struct few_place &place, const CUtensorMap *x_map, const CUtensorMap *w_map,
         const struct fp8_product &p, const struct few_cut &cut, int tile, int begin, int end) {
    using R = few_ring<X_TOO, WIDTH>;
    const int lane = threadIdx.x % 32;
    auto weights = [&](int step) {
        const int at = (step - begin) % R::STAGES;
        const uint32_t to = place.stages + at * R::STAGE_BYTES, barrier = place.full + at * 8;
        barrier_expect(barrier, cut.weight_bytes);
        if (GATED) {
            copy_groups(to, w_map, barrier, step * FP8_STEP, tile * (TILE_ROWS / 16));
        } else {
            tensor_copy(to, w_map, barrier, step * FP8_STEP, 0, tile * TILE_ROWS);
        }
    };
    const int early = min(end, begin + R::STAGES);
    for (int step = begin; step < early && lane == 0; step++) {
        weights(step);
    }
    __syncwarp();
    dependencies_wait();
    for (int step = begin; step < end; step++) {
        const int at = (step - begin) % R::STAGES, turn = (step - begin) / R::STAGES;
        const uint32_t full = place.full + at * 8;
        if (step >= early) {
            barrier_wait(place.empty + at * 8, (turn & 1) ^ 1);
        }
        if (lane == 0) {
            if (step >= early) {
                weights(step);
            }
            barrier_expect(full, cut.input_bytes);
            const uint32_t inputs = place.stages + at * R::STAGE_BYTES + WEIGHT_BYTES;
            tensor_copy(inputs, x_map, full, step * FP8_STEP, 0, place.token);
            if (!X_TOO) { /* rows of 128 bytes are 64 channels here */
                tensor_copy(inputs + WIDTH * 128, x_map, full, step * FP8_STEP + 64, 0,
                            place.token);
            }
        }
        if (SQUARES && X_TOO) {
            for (int token = lane; token < place.n_tokens; token += 32) {
                copy_async_4(place.scales + (at * WIDTH + token) * 4,
                             fp8_scales_of_input(p, place.token + token) + step);
            }
            barrier_arrive_copied(full);
        }
        __syncwarp();
    }
}

/* The row of w that is a tile's row, the last one where there is none. */
template <bool GATED>
static __device__ __forceinline__ int64_t weight_row(const struct fp8_product &p, int tile,
                                                     int row) {
    const int64_t n = p.n_outputs;
    if (GATED) {
        const int64_t output = tile * (int64_t)(TILE_ROWS / 2) + row / 16 * 8 + row % 8;
        return row / 8 % 2 * n + min(output, n - 1);
    }
    return min(tile * (int64_t)TILE_ROWS + row, n - 1);
}

/* By the workers: a warpgroup's sums of 64 rows by WIDTH tokens, of n_steps steps from the scales
 * of its thread's two rows on. */
template <bool SQUARES, bool X_TOO, int WIDTH>
static __device__ __forceinline__ void few_sum(const struct few_place &place, int n_steps,
                                               const float *const (&scales)[2],
                                               float (&sum)[WIDTH / 2]) {
    using R = few_ring<X_TOO, WIDTH>;
    float part[WIDTH / 2];
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        sum[i] = 0;
    }
    for (int step = 0; step < n_steps; step++) {
        const int at = step % R::STAGES;
        const uint32_t stage = place.stages + at * R::STAGE_BYTES;
        float scale[2] = {1, 1};
        if (SQUARES) {
            scale[0] = __ldg(scales[0] + step);
            scale[1] = __ldg(scales[1] + step);
        }
        barrier_wait(place.full + at * 8, step / R::STAGES & 1);
        const uint32_t weights = stage + threadIdx.x / 128 * (WEIGHT_BYTES / 2);
        if constexpr (X_TOO) {
            wgmma_row_fp8<WIDTH>(part, weights, stage + WEIGHT_BYTES);
        } else {
            fp8_sum_wide<WIDTH, WIDTH <= MOST_TOKENS>(part, weights, stage + WEIGHT_BYTES,
                                                      WIDTH * 128);
        }
        float2 of_token[WIDTH / 8];
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++) {
            of_token[i] =
                SQUARES && X_TOO
                    ? shared_float2(place.scales + (at * WIDTH + i * 8 + threadIdx.x % 4 * 2) * 4)
                    : make_float2(1, 1);
        }
        wgmma_wait<0>();
        __syncwarp(); /* all lanes have read the inputs' scales */
        if (threadIdx.x % 32 == 0) {
            barrier_arrive(place.empty + at * 8);
        }
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) {
            const float2 t = of_token[i / 4];
            sum[i] = SQUARES ? fmaf(part[i], scale[i / 2 % 2] * (i % 2 ? t.y : t.x), sum[i])
                             : sum[i] + part[i];
        }
    }
}

/* Sums of rows of w from `row` on times their scales and their token's. */
template <bool X_TOO>
static __device__ __forceinline__ float4 few_scaled(const float4 &v, const struct fp8_product &p,
                                                    int64_t row, int token) {
    const float x = X_TOO ? *fp8_scales_of_input(p, token) : 1;
    return make_float4(v.x * (__ldg(fp8_scales_of<false>(p, row)) * x),
                       v.y * (__ldg(fp8_scales_of<false>(p, row + 1)) * x),
                       v.z * (__ldg(fp8_scales_of<false>(p, row + 2)) * x),
                       v.w * (__ldg(fp8_scales_of<false>(p, row + 3)) * x));
}

/* By the workers: finishes this block's share of the tokens. */
template <bool GATED, bool SQUARES, bool X_TOO>
static __device__ __forceinline__ void few_finish(const struct few_place &place,
                                                  const struct fp8_product &p,
                                                  const struct few_cut &cut, int tile, int rank) {
    constexpr int OUTPUTS = GATED ? TILE_ROWS / 2 : TILE_ROWS, PER_TOKEN = OUTPUTS / 4;
    const int begin = place.n_tokens * rank / cut.n_blocks;
    const int end = place.n_tokens * (rank + 1) / cut.n_blocks;
    for (int at = begin * PER_TOKEN + threadIdx.x; at < end * PER_TOKEN; at += WORKERS) {
        const int of_tile = at / PER_TOKEN, own = at % PER_TOKEN * 4, output = tile * OUTPUTS + own;
        const int row = GATED ? own / 8 * 16 + own % 8 : own, token = place.token + of_tile;
        const uint32_t from = place.stages + (of_tile * SUM_STRIDE + row) * 4;
        if (output >= p.n_outputs) {
            continue;
        }
        float4 y = few_total(from, cut.n_blocks);
        y = SQUARES ? y : few_scaled<X_TOO>(y, p, output, token);
        const int64_t to = token * p.y_stride + output;
        if (GATED) {
            float4 up = few_total(from + 8 * 4, cut.n_blocks);
            up = SQUARES ? up : few_scaled<X_TOO>(up, p, (int64_t)p.n_outputs + output, token);
            y.x = swiglu(y.x, up.x), y.y = swiglu(y.y, up.y);
            y.z = swiglu(y.z, up.z), y.w = swiglu(y.w, up.w);
        } else if (p.outcome == FP8_SINGLE) {
            *reinterpret_cast<float4 *>(static_cast<float *>(p.y) + to) = y;
            continue;
        } else if (p.add) {
            few_add(&y, p.add, to);
        }
        *reinterpret_cast<uint2 *>(static_cast<__nv_bfloat16 *>(p.y) + to) =
            make_uint2(bf16_pack(y.x, y.y), bf16_pack(y.z, y.w));
    }
}
#endif

template <bool GATED, bool SQUARES, bool X_TOO, int WIDTH>
static __global__ void __launch_bounds__(THREADS, blocks_of(WIDTH))
    fp8_few_kernel(const __grid_constant__ CUtensorMap x_map,
                   const __grid_constant__ CUtensorMap w_map,
                   const __grid_constant__ struct fp8_product p, const struct few_cut cut) {
#if HOPPER_DEVICE
    using R = few_ring<X_TOO, WIDTH>;
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 * R::STAGES];
    __shared__ __align__(8) float input_scales[SQUARES && X_TOO ? R::STAGES * WIDTH : 1];
    struct few_place place;
    place.stages = (shared_address(shared) + 1023) / 1024 * 1024;
    place.full = shared_address(barriers);
    place.empty = place.full + R::STAGES * 8;
    place.scales = shared_address(input_scales);
    const int rank = cluster_rank(), tile = blockIdx.x / cut.n_blocks / cut.n_token_tiles;
    place.token = blockIdx.x / cut.n_blocks % cut.n_token_tiles * WIDTH;
    place.n_tokens = min(p.n_tokens - place.token, WIDTH);
    const int begin = cut.n_steps * rank / cut.n_blocks;
    const int end = cut.n_steps * (rank + 1) / cut.n_blocks;
    float sum[WIDTH / 2];
    if (threadIdx.x == WORKERS) {
        asm volatile("prefetch.tensormap [%0];\n" ::"l"(&w_map) : "memory");
        asm volatile("prefetch.tensormap [%0];\n" ::"l"(&x_map) : "memory");
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < R::STAGES; i++) {
            barrier_init(place.full + i * 8, SQUARES && X_TOO ? 2 + 32 : 2);
            barrier_init(place.empty + i * 8, WORKERS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= WORKERS) {
        few_feed<GATED, SQUARES, X_TOO, WIDTH>(place, &x_map, &w_map, p, cut, tile, begin, end);
    } else {
        const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
        const float *scales[2];
        for (int half = 0; half < 2; half++) {
            scales[half] = fp8_scales_of<SQUARES>(p, weight_row<GATED>(p, tile, row + half * 8)) +
                           (SQUARES ? begin : 0);
        }
        dependencies_wait();
        dependents_launch();
        few_sum<SQUARES, X_TOO, WIDTH>(place, end - begin, scales, sum);
        named_barrier_sync(1, WORKERS); /* the stages are no longer read */
        few_leave<WIDTH>(
            reinterpret_cast<float *>(shared + (place.stages - shared_address(shared))), sum);
    }
    __syncwarp();
    cluster_sync();
    if (threadIdx.x < WORKERS) {
        few_finish<GATED, SQUARES, X_TOO>(place, p, cut, tile, rank);
    }
    __syncwarp();
    cluster_sync(); /* a block's memory must outlive what the others read of it */
#endif
}

template <bool GATED, bool SQUARES, bool X_TOO, int WIDTH>
static cudaError_t start(const CUtensorMap &x_map, const CUtensorMap &w_map,
                         const struct fp8_product &p, const struct few_cut &cut, int n_tiles,
                         cudaStream_t stream) {
    auto kernel = fp8_few_kernel<GATED, SQUARES, X_TOO, WIDTH>;
    const int bytes = ring_bytes_of(WIDTH) + RING_ALIGNMENT;
    const cudaError_t status = shared_allow(kernel, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    return launch_clusters(kernel, dim3((unsigned)(n_tiles * cut.n_blocks)), dim3(THREADS),
                           cut.n_blocks, (size_t)bytes, stream, x_map, w_map, p, cut);
}

template <bool GATED, bool SQUARES, bool X_TOO>
static cudaError_t start_of(const CUtensorMap &x_map, const CUtensorMap &w_map,
                            const struct fp8_product &p, const struct few_cut &cut, int n_tiles,
                            cudaStream_t stream) {
    if constexpr (!X_TOO) {
        if (p.n_tokens > MOST_TOKENS) {
            return start<GATED, SQUARES, false, WIDE_TOKENS>(x_map, w_map, p, cut, n_tiles, stream);
        }
    }
    auto run = p.n_tokens <= 8    ? start<GATED, SQUARES, X_TOO, 8>
               : p.n_tokens <= 16 ? start<GATED, SQUARES, X_TOO, 16>
               : p.n_tokens <= 32 ? start<GATED, SQUARES, X_TOO, 32>
                                  : start<GATED, SQUARES, X_TOO, 64>;
    return run(x_map, w_map, p, cut, n_tiles, stream);
}

template <bool GATED>
static decltype(&start_of<GATED, true, true>) start_of_form(const struct fp8_product &p) {
    return p.x_too ? (p.squares ? start_of<GATED, true, true> : start_of<GATED, false, true>)
                   : (p.squares ? start_of<GATED, true, false> : start_of<GATED, false, false>);
}

cudaError_t fp8_run_few(const struct fp8_product *p, cudaStream_t stream) {
    const bool gated = p->outcome == FP8_GATED;
    const int n = p->n_outputs, outputs = gated ? TILE_ROWS / 2 : TILE_ROWS;
    const int most = p->x_too ? (int)MOST_TOKENS : (int)FP8_WIDE_MOST;
    if (!hopper_device() || p->n_tokens > most || p->n_inputs % 16 != 0 || n % 8 != 0 ||
        p->y_stride % 4 != 0 || p->w_rows != (p->squares ? (int)FP8_STEP : 1)) {
        return cudaErrorNotSupported;
    }
    if (p->n_tokens == 0) {
        return cudaSuccess;
    }
    int n_sms;
    const cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess) {
        return status;
    }
    const bool wide = p->n_tokens > MOST_TOKENS;
    const int width = wide ? (int)WIDE_TOKENS : p->n_tokens;
    struct few_cut cut;
    cut.n_token_tiles = (p->n_tokens - 1) / width + 1;
    const int n_tiles = ((n - 1) / outputs + 1) * cut.n_token_tiles, room = (wide ? 1 : 2) * n_sms;
    cut.n_steps = (p->n_inputs + FP8_STEP - 1) / FP8_STEP;
    cut.n_blocks = MOST_BLOCKS;
    while (cut.n_blocks > 1 &&
           ((int64_t)n_tiles * cut.n_blocks > room || cut.n_blocks * LEAST_STEPS > cut.n_steps)) {
        cut.n_blocks /= 2;
    }
    const int box_rows = gated || n > TILE_ROWS ? (int)TILE_ROWS : n;
    cut.weight_bytes = box_rows * FP8_STEP;
    cut.input_bytes = width * FP8_STEP * (p->x_too ? 1 : 2);
    CUtensorMap x_map, w_map;
    const bool mapped = gated ? hopper_map_groups_fp8(&w_map, p->w, p->n_inputs, n / 8, 1)
                              : hopper_map_fp8(&w_map, p->w, p->n_inputs, n, p->n_inputs, box_rows);
    const bool inputs_mapped =
        p->x_too ? hopper_map_fp8(&x_map, p->x, p->n_inputs, p->n_tokens, p->x_stride, width)
                 : hopper_map(&x_map, p->x, p->n_inputs, 1, p->x_stride, p->n_tokens, p->x_stride,
                              width);
    if (!mapped || !inputs_mapped) {
        return cudaErrorNotSupported;
    }
    auto run = gated ? start_of_form<true>(*p) : start_of_form<false>(*p);
    const cudaError_t started = run(x_map, w_map, *p, cut, n_tiles, stream);
    return started == cudaSuccess ? fp8_codes(p, stream) : started;
}
