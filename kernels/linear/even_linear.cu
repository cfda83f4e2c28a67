/* Products with large weights [N, C] of few tokens (sm_90a), y = x w' + add or
 * y = silu(x g') * (x u'): as few_linear.cu a stream of weights, each read once, but dealt evenly.
 * Each multiprocessor has one block with all of its memory, and each block, or each cluster of two
 * that share the channels, has as many rows of weights as any other, whatever of the tensor cores'
 * 64 stays empty. One thread feeds a ring of stages by tensor copies; it begins with the weights,
 * which need not wait for the kernel before. The two warpgroups share a stage's channels, and sums
 * come together in shared memory. How an output is summed depends on the weights' shape alone. */
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/wgmma.cuh"

enum {
    CHANNELS = 64, /* of a box: 128 bytes, a swizzled row */
    PLANES = 2,    /* boxes of a step, one a warpgroup: 256 bytes of a row are asked for at once */
    STEP = PLANES * CHANNELS,
    WORKERS = FEW_LINEAR_WORKERS, /* two warpgroups */
    THREADS = FEW_LINEAR_THREADS,
    MAX_STAGES = 16,
    LEAST_STAGES = 2,
    MOST_TOKENS = 64,
    MOST_ROWS = 192,  /* of a block: sums of 64 tokens then fill 96 registers */
    PAIRED_ROWS = 64, /* of a multiprocessor, below which two share the channels of both's rows */
};

struct even_product {
    void *y;
    const void *add; /* NULL: nothing is added */
    int64_t y_stride;
    int n_tokens, n_outputs;
    int n_steps;                   /* that the channels fill */
    int tile_outputs, half_rows;   /* outputs of a tile; rows from its first gate to its first up */
    int weight_bytes, input_bytes; /* that a step's copies bring */
    int plane_bytes, stage_bytes, n_stages;
};

#if HOPPER_DEVICE
/* As tensor_copy, of what no one reads again. */
static __device__ __forceinline__ void copy_once(uint32_t to, const CUtensorMap *map,
                                                 uint32_t barrier, int column, int row) {
    asm volatile("{\n.reg .b64 once;\ncreatepolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
                 "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], once;\n}\n" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(0), "r"(row)
                 : "memory");
}

/* A block's stages and their barriers, its tile and its steps. */
struct even_place {
    uint32_t stages, full, empty;
    int tile, begin, end;
};

/* By one thread: a step's weights. */
template <bool GATED>
static __device__ __forceinline__ void
even_weights(const struct even_place &at, const CUtensorMap *w_map, const struct even_product &p,
             int step, int stage) {
    const uint32_t barrier = at.full + stage * 8, to = at.stages + stage * p.stage_bytes;
    const int row = at.tile * p.tile_outputs;
    barrier_expect(barrier, p.weight_bytes);
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++) {
        const int column = step * STEP + plane * CHANNELS;
        copy_once(to + plane * p.plane_bytes, w_map, barrier, column, row);
        if (GATED) {
            copy_once(to + plane * p.plane_bytes + p.half_rows * 128, w_map, barrier, column,
                      p.n_outputs + row);
        }
    }
}

/* By one thread: steps from `early` on, whose weights are not there yet, and all inputs. */
template <bool GATED, int WIDTH>
static __device__ __forceinline__ void even_feed(const struct even_place &at,
                                                 const CUtensorMap *x_map, const CUtensorMap *w_map,
                                                 const struct even_product &p, int early) {
    int stage = 0, parity = 1;
    for (int step = at.begin; step < at.end; step++) {
        const uint32_t barrier = at.full + stage * 8;
        if (step >= early) {
            barrier_wait(at.empty + stage * 8, parity);
            even_weights<GATED>(at, w_map, p, step, stage);
        }
        barrier_expect(barrier, p.input_bytes);
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++) {
            tensor_copy(at.stages + stage * p.stage_bytes + PLANES * p.plane_bytes +
                            plane * WIDTH * 128,
                        x_map, barrier, step * STEP + plane * CHANNELS, 0, 0);
        }
        if (++stage == p.n_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
}

/* By a warpgroup: the sums of all rows over its plane of each step. Both visit every stage: with
 * stages by turns, and an odd number of them, one could wait for a barrier whose turn before had
 * not come yet, which passes at once. */
template <int WIDTH, int BLOCKS_M>
static __device__ __forceinline__ void even_sum(const struct even_place &at,
                                                const struct even_product &p, int plane,
                                                float (&sum)[BLOCKS_M][WIDTH / 2]) {
    const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
    for (int m = 0; m < BLOCKS_M; m++) {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) {
            sum[m][i] = 0;
        }
    }
    int stage = 0, parity = 0;
    for (int step = at.begin; step < at.end; step++) {
        const uint32_t from = at.stages + stage * p.stage_bytes;
        barrier_wait(at.full + stage * 8, parity);
        const uint64_t b = operand_rows(from + PLANES * p.plane_bytes + plane * WIDTH * 128);
        wgmma_begin();
#pragma unroll
        for (int m = 0; m < BLOCKS_M; m++) {
            const uint64_t a = operand_rows(from + plane * p.plane_bytes + m * 64 * 128);
#pragma unroll
            for (int k = 0; k < CHANNELS / 16; k++) {
                wgmma_m64k16<WIDTH>(sum[m], a + k * 2, b + k * 2, true);
            }
        }
        wgmma_commit();
        wgmma_wait<0>();
        if (leader) {
            barrier_arrive(at.empty + stage * 8);
        }
        if (++stage == p.n_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
}

/* A warpgroup's sums by token. */
template <int WIDTH, int BLOCKS_M>
static __device__ __forceinline__ void even_leave(float *sums,
                                                  const float (&sum)[BLOCKS_M][WIDTH / 2]) {
    constexpr int STRIDE = BLOCKS_M * 64 + 4;
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int m = 0; m < BLOCKS_M; m++) {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) {
            const int token = i / 4 * 8 + lane % 4 * 2 + (i & 1);
            sums[token * STRIDE + m * 64 + row + i / 2 % 2 * 8] = sum[m][i];
        }
    }
}

/* Two neighbouring sums of both warpgroups of all blocks, in this order. */
template <int BLOCKS>
static __device__ __forceinline__ float2 even_total(uint32_t at, int group_bytes) {
    float2 total = make_float2(0, 0);
#pragma unroll
    for (int part = 0; part < 2 * BLOCKS; part++) {
        const uint32_t from = at + part % 2 * group_bytes;
        const float2 f =
            BLOCKS > 1 ? cluster_load2(cluster_address(from, part / 2)) : shared_float2(from);
        total.x += f.x, total.y += f.y;
    }
    return total;
}

template <bool GATED, int WIDTH, int BLOCKS_M, int BLOCKS>
static __device__ __forceinline__ void even_finish(uint32_t sums, const struct even_product &p,
                                                   int tile, int rank) {
    constexpr int STRIDE = BLOCKS_M * 64 + 4, GROUP = WIDTH * STRIDE * 4;
    const int pairs = p.tile_outputs / 2;
    const int begin = p.n_tokens * rank / BLOCKS * pairs;
    const int end = p.n_tokens * (rank + 1) / BLOCKS * pairs;
    for (int i = begin + threadIdx.x; i < end; i += WORKERS) {
        const int token = i / pairs, row = i % pairs * 2, output = tile * p.tile_outputs + row;
        if (output >= p.n_outputs) {
            continue;
        }
        const uint32_t from = sums + (token * STRIDE + row) * 4;
        float2 y = even_total<BLOCKS>(from, GROUP);
        const int64_t to = token * p.y_stride + output;
        if (GATED) {
            const float2 up = even_total<BLOCKS>(from + p.half_rows * 4, GROUP);
            y.x = swiglu(y.x, up.x), y.y = swiglu(y.y, up.y);
        } else if (p.add) {
            const float2 add = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(
                static_cast<const __nv_bfloat16 *>(p.add) + to));
            y.x += add.x, y.y += add.y;
        }
        *reinterpret_cast<uint32_t *>(static_cast<__nv_bfloat16 *>(p.y) + to) = bf16_pack(y.x, y.y);
    }
}

#endif

template <bool GATED, int WIDTH, int BLOCKS_M, int BLOCKS>
static __global__ void __launch_bounds__(THREADS, 1)
    even_linear_kernel(const __grid_constant__ CUtensorMap x_map,
                       const __grid_constant__ CUtensorMap w_map, const struct even_product p) {
#if HOPPER_DEVICE
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 * MAX_STAGES];
    const int rank = BLOCKS > 1 ? cluster_rank() : 0;
    struct even_place at;
    at.stages = (shared_address(shared) + 1023) / 1024 * 1024;
    at.full = shared_address(barriers);
    at.empty = at.full + MAX_STAGES * 8;
    at.tile = blockIdx.x / BLOCKS;
    at.begin = p.n_steps * rank / BLOCKS;
    at.end = p.n_steps * (rank + 1) / BLOCKS;
    const int early = min(at.end, at.begin + p.n_stages);
    if (threadIdx.x == WORKERS) {
        asm volatile("prefetch.tensormap [%0];\n" ::"l"(&w_map) : "memory");
        asm volatile("prefetch.tensormap [%0];\n" ::"l"(&x_map) : "memory");
        for (int i = 0; i < p.n_stages; i++) {
            barrier_init(at.full + i * 8, 2);
            barrier_init(at.empty + i * 8, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
        for (int step = at.begin; step < early; step++) {
            even_weights<GATED>(at, &w_map, p, step, step - at.begin);
        }
    }
    __syncwarp();
    __syncthreads();
    dependencies_wait();
    float *sums = reinterpret_cast<float *>(shared + (at.stages - shared_address(shared)));
    if (threadIdx.x == WORKERS) {
        even_feed<GATED, WIDTH>(at, &x_map, &w_map, p, early);
    } else if (threadIdx.x < WORKERS) {
        dependents_launch();
        float sum[BLOCKS_M][WIDTH / 2];
        const int group = threadIdx.x / 128;
        even_sum<WIDTH, BLOCKS_M>(at, p, group, sum);
        named_barrier_sync(1, WORKERS); /* the stages are no longer read */
        even_leave<WIDTH, BLOCKS_M>(sums + group * WIDTH * (BLOCKS_M * 64 + 4), sum);
    }
    __syncwarp();
    if (BLOCKS > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }
    if (threadIdx.x < WORKERS) {
        even_finish<GATED, WIDTH, BLOCKS_M, BLOCKS>(at.stages, p, at.tile, rank);
    }
    if (BLOCKS > 1) {
        __syncwarp();
        cluster_sync(); /* a block's memory must outlive what the others read of it */
    }
#endif
}

template <bool GATED, int WIDTH, int BLOCKS_M, int BLOCKS>
static cudaError_t start(const CUtensorMap &x_map, const CUtensorMap &w_map, struct even_product *p,
                         int n_tiles, cudaStream_t stream) {
    auto kernel = even_linear_kernel<GATED, WIDTH, BLOCKS_M, BLOCKS>;
    p->stage_bytes = PLANES * (p->plane_bytes + WIDTH * 128);
    /* The tensor cores read as many rows as they take, past those that there are. */
    const int past = BLOCKS_M * 64 * 128 - p->plane_bytes;
    const int fit = (EVEN_LINEAR_BYTES - RING_ALIGNMENT - past) / p->stage_bytes;
    p->n_stages = fit < MAX_STAGES ? fit : (int)MAX_STAGES;
    const cudaError_t status = shared_allow(kernel, EVEN_LINEAR_BYTES);
    if (status != cudaSuccess || p->n_stages < LEAST_STAGES) {
        return status != cudaSuccess ? status : cudaErrorNotSupported;
    }
    return launch_clusters(kernel, dim3((unsigned)(n_tiles * BLOCKS)), dim3(THREADS), BLOCKS,
                           (size_t)EVEN_LINEAR_BYTES, stream, x_map, w_map, *p);
}

template <bool GATED, int BLOCKS_M, int BLOCKS>
static cudaError_t start_rows(const CUtensorMap &x_map, const CUtensorMap &w_map,
                              struct even_product *p, int n_tiles, cudaStream_t stream) {
    auto run = p->n_tokens <= 8    ? start<GATED, 8, BLOCKS_M, BLOCKS>
               : p->n_tokens <= 16 ? start<GATED, 16, BLOCKS_M, BLOCKS>
               : p->n_tokens <= 32 ? start<GATED, 32, BLOCKS_M, BLOCKS>
                                   : start<GATED, 64, BLOCKS_M, BLOCKS>;
    return run(x_map, w_map, p, n_tiles, stream);
}

/* Deals the outputs to as many workers: blocks or clusters. */
template <bool GATED, int BLOCKS>
static cudaError_t even_deal(struct even_product *p, const void *x, int64_t x_stride, const void *w,
                             int n_channels, int n_workers, cudaStream_t stream) {
    const int n = p->n_outputs, halves = GATED ? 2 : 1;
    const int turns = (n - 1) / (n_workers * (MOST_ROWS / halves)) + 1;
    const int even = (n - 1) / (n_workers * turns) + 1;
    p->tile_outputs = (even + 1) / 2 * 2;
    p->half_rows = (p->tile_outputs + 7) / 8 * 8;
    p->n_steps = (n_channels - 1) / STEP + 1;
    p->plane_bytes = halves * p->half_rows * 128;
    p->weight_bytes = PLANES * halves * p->tile_outputs * 128;
    p->input_bytes = PLANES * p->n_tokens * 128;
    CUtensorMap x_map, w_map;
    if (!hopper_map(&w_map, w, n_channels, 1, n_channels, (int64_t)n * halves, n_channels,
                    p->tile_outputs) ||
        !hopper_map(&x_map, x, n_channels, 1, x_stride, p->n_tokens, x_stride, p->n_tokens)) {
        return cudaErrorNotSupported;
    }
    const int rows = halves * p->half_rows, n_tiles = (n - 1) / p->tile_outputs + 1;
    auto run = rows <= 64    ? start_rows<GATED, 1, BLOCKS>
               : rows <= 128 ? start_rows<GATED, 2, BLOCKS>
                             : start_rows<GATED, 3, BLOCKS>;
    return run(x_map, w_map, p, n_tiles, stream);
}

template <bool GATED>
static cudaError_t even_run(struct even_product *p, const void *x, int64_t x_stride, const void *w,
                            int n_channels, cudaStream_t stream) {
    if (p->n_tokens == 0) {
        return cudaSuccess;
    }
    if (!hopper_device() || p->n_tokens > MOST_TOKENS) {
        return cudaErrorNotSupported;
    }
    int n_sms;
    const cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess) {
        return status;
    }
    /* Few rows a block: their sums want as many bytes of inputs as of weights. */
    const bool paired = (int64_t)p->n_outputs * (GATED ? 2 : 1) < (int64_t)PAIRED_ROWS * n_sms;
    auto run = paired ? even_deal<GATED, 2> : even_deal<GATED, 1>;
    return run(p, x, x_stride, w, n_channels, paired ? n_sms / 2 : n_sms, stream);
}

extern "C" cudaError_t kernel_gate_up_even(const struct call_gate_up *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0 || call->n_hidden <= 0 || call->n_hidden % 8 != 0 ||
        call->n_hidden > INT32_MAX / 2 || call->x_stride % 8 != 0 || call->y_stride % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    struct even_product product = {};
    product.y = call->y;
    product.y_stride = call->y_stride;
    product.n_tokens = call->n_tokens;
    product.n_outputs = call->n_hidden;
    return even_run<true>(&product, call->x, call->x_stride, call->w, call->n_channels, stream);
}

extern "C" cudaError_t kernel_linear_even(const struct call_linear *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_inputs <= 0 ||
        call->n_inputs % 8 != 0 || call->n_outputs <= 0 || call->n_outputs % 8 != 0 ||
        call->x_stride % 8 != 0 || call->y_stride % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    struct even_product product = {};
    product.y = call->y;
    product.add = call->add;
    product.y_stride = call->y_stride;
    product.n_tokens = call->n_tokens;
    product.n_outputs = call->n_outputs;
    return even_run<false>(&product, call->x, call->x_stride, call->w, call->n_inputs, stream);
}
