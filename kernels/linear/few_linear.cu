/* Products with weights [N, C] of few tokens (sm_90a), y = x w' + add or y = silu(x g') * (x u'): a
 * stream of weights, each read once. A tile is 128 rows of weights, which are the rows of the
 * tensor cores' products, by all the tokens. Where tiles are fewer than the GPU has room for, the
 * blocks of a cluster sum up a share of a tile's channels each, and then add up a share of the
 * tokens out of everyone's shared memory. One thread feeds a ring of stages by tensor copies; it
 * begins with the weights, which need not wait for the kernel before. For SwiGLU a tile's rows are
 * gates and ups in turns of eight. How many share the sum of an output depends on the weights'
 * shape alone. */
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/few.cuh"
#include "kernels/linear/wgmma.cuh"

enum {
    TILE_CHANNELS = 64,
    WEIGHT_BYTES = TILE_ROWS * TILE_CHANNELS * 2,
    MAX_STAGES = 6,
    WORKERS = FEW_LINEAR_WORKERS, /* two warpgroups of 64 rows of weights each */
    THREADS = FEW_LINEAR_THREADS,
    MOST_BLOCKS = 8,  /* of a cluster that any device grants */
    MOST_OF_MANY = 4, /* where 8 would be more blocks than multiprocessors (lab/README.md) */
    LEAST_STEPS = 2,  /* a block: else putting the sums together costs more than sharing saves */
    MOST_TOKENS = 64,
};

struct few_product {
    void *y;
    const void *add; /* NULL: nothing is added */
    int64_t y_stride;
    int n_tokens, n_outputs, n_steps; /* steps of TILE_CHANNELS */
    int weight_bytes, input_bytes;    /* that a step's copies bring */
    int n_blocks;                     /* of a cluster */
};

#if HOPPER_DEVICE
template <int WIDTH> struct few_ring {
    static constexpr int STAGE_BYTES = WEIGHT_BYTES + WIDTH * TILE_CHANNELS * 2;
    static constexpr int FIT = FEW_LINEAR_RING_BYTES / STAGE_BYTES;
    static constexpr int STAGES = FIT < MAX_STAGES ? FIT : MAX_STAGES;
};

static __device__ __forceinline__ void map_prefetch(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

/* By one thread: the steps [begin, end). A stage is full when weights and inputs are there. */
template <bool GATED, int WIDTH>
static __device__ __forceinline__ void few_feed(uint32_t stages, uint32_t full, uint32_t empty,
                                                const CUtensorMap *x_map, const CUtensorMap *w_map,
                                                const struct few_product &product, int tile,
                                                int begin, int end) {
    using R = few_ring<WIDTH>;
    auto weights = [&](int step) {
        const int at = (step - begin) % R::STAGES;
        const uint32_t to = stages + at * R::STAGE_BYTES, barrier = full + at * 8;
        barrier_expect(barrier, product.weight_bytes);
        if (GATED) {
            copy_groups(to, w_map, barrier, step * TILE_CHANNELS, tile * (TILE_ROWS / 16));
        } else {
            tensor_copy(to, w_map, barrier, step * TILE_CHANNELS, 0, tile * TILE_ROWS);
        }
    };
    const int early = min(end, begin + R::STAGES);
    for (int step = begin; step < early; step++) {
        weights(step);
    }
    dependencies_wait();
    for (int step = begin; step < end; step++) {
        const int at = (step - begin) % R::STAGES, turn = (step - begin) / R::STAGES;
        if (step >= early) {
            barrier_wait(empty + at * 8, (turn & 1) ^ 1);
            weights(step);
        }
        barrier_expect(full + at * 8, product.input_bytes);
        tensor_copy(stages + at * R::STAGE_BYTES + WEIGHT_BYTES, x_map, full + at * 8,
                    step * TILE_CHANNELS, 0, 0);
    }
}

/* By the workers: a warpgroup's sums of 64 rows by WIDTH tokens. */
template <int WIDTH>
static __device__ __forceinline__ void few_sum(uint32_t stages, uint32_t full, uint32_t empty,
                                               int n_steps, float (&sum)[WIDTH / 2]) {
    using R = few_ring<WIDTH>;
    const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        sum[i] = 0;
    }
    for (int step = 0; step < n_steps; step++) {
        const int at = step % R::STAGES;
        const uint32_t stage = stages + at * R::STAGE_BYTES;
        barrier_wait(full + at * 8, step / R::STAGES & 1);
        const uint64_t a = operand_rows(stage + threadIdx.x / 128 * (WEIGHT_BYTES / 2));
        const uint64_t b = operand_rows(stage + WEIGHT_BYTES);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < TILE_CHANNELS / 16; k++) {
            wgmma_m64k16<WIDTH>(sum, a + k * 2, b + k * 2, true);
        }
        wgmma_commit();
        wgmma_wait<1>(); /* the products of the step before this one are done */
        if (step > 0 && leader) {
            barrier_arrive(empty + (step - 1) % R::STAGES * 8);
        }
    }
    wgmma_wait<0>();
}

/* By the workers: finishes this block's share of the tokens. */
template <bool GATED>
static __device__ __forceinline__ void few_finish(uint32_t sums, const struct few_product &product,
                                                  int tile, int rank) {
    constexpr int OUTPUTS = GATED ? TILE_ROWS / 2 : TILE_ROWS, PER_TOKEN = OUTPUTS / 4;
    const int begin = product.n_tokens * rank / product.n_blocks;
    const int end = product.n_tokens * (rank + 1) / product.n_blocks;
    for (int at = begin * PER_TOKEN + threadIdx.x; at < end * PER_TOKEN; at += WORKERS) {
        const int token = at / PER_TOKEN, own = at % PER_TOKEN * 4, output = tile * OUTPUTS + own;
        const int row = GATED ? own / 8 * 16 + own % 8 : own;
        const uint32_t from = sums + (token * SUM_STRIDE + row) * 4;
        if (output >= product.n_outputs) {
            continue;
        }
        float4 y = few_total(from, product.n_blocks);
        const int64_t to = token * product.y_stride + output;
        if (GATED) {
            const float4 up = few_total(from + 8 * 4, product.n_blocks);
            y.x = swiglu(y.x, up.x), y.y = swiglu(y.y, up.y);
            y.z = swiglu(y.z, up.z), y.w = swiglu(y.w, up.w);
        } else if (product.add) {
            few_add(&y, product.add, to);
        }
        *reinterpret_cast<uint2 *>(static_cast<__nv_bfloat16 *>(product.y) + to) =
            make_uint2(bf16_pack(y.x, y.y), bf16_pack(y.z, y.w));
    }
}
#endif

template <bool GATED, int WIDTH>
static __global__ void __launch_bounds__(THREADS, 2)
    few_linear_kernel(const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap w_map, const struct few_product product) {
#if HOPPER_DEVICE
    using R = few_ring<WIDTH>;
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t barriers[2 * R::STAGES];
    const uint32_t stages = (shared_address(shared) + 1023) / 1024 * 1024;
    const uint32_t full = shared_address(barriers), empty = full + R::STAGES * 8;
    const int rank = cluster_rank(), tile = blockIdx.x / product.n_blocks;
    const int begin = product.n_steps * rank / product.n_blocks;
    const int end = product.n_steps * (rank + 1) / product.n_blocks;
    float sum[WIDTH / 2];
    if (threadIdx.x == WORKERS) {
        map_prefetch(&w_map);
        map_prefetch(&x_map);
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < R::STAGES; i++) {
            barrier_init(full + i * 8, 2);
            barrier_init(empty + i * 8, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == WORKERS) {
        few_feed<GATED, WIDTH>(stages, full, empty, &x_map, &w_map, product, tile, begin, end);
    } else if (threadIdx.x < WORKERS) {
        dependencies_wait();
        dependents_launch();
        few_sum<WIDTH>(stages, full, empty, end - begin, sum);
        named_barrier_sync(1, WORKERS); /* the stages are no longer read */
        few_leave<WIDTH>(reinterpret_cast<float *>(shared + (stages - shared_address(shared))),
                         sum);
    }
    __syncwarp();
    cluster_sync();
    if (threadIdx.x < WORKERS) {
        few_finish<GATED>(stages, product, tile, rank);
    }
    __syncwarp();
    cluster_sync(); /* a block's memory must outlive what the others read of it */
#endif
}

template <bool GATED, int WIDTH>
static cudaError_t start(const CUtensorMap &x_map, const CUtensorMap &w_map,
                         const struct few_product &product, int n_tiles, cudaStream_t stream) {
    auto kernel = few_linear_kernel<GATED, WIDTH>;
    const int bytes = FEW_LINEAR_RING_BYTES + RING_ALIGNMENT;
    const cudaError_t status = shared_allow(kernel, bytes);
    if (status != cudaSuccess) {
        return status;
    }
    return launch_clusters(kernel, dim3((unsigned)(n_tiles * product.n_blocks)), dim3(THREADS),
                           product.n_blocks, (size_t)bytes, stream, x_map, w_map, product);
}

/* least_blocks: to a tile, where the GPU has room for two blocks a multiprocessor. */
template <bool GATED>
static cudaError_t few_product_run(struct few_product *product, const void *x, int64_t x_stride,
                                   const void *w, int n_channels, int least_blocks,
                                   cudaStream_t stream) {
    if (product->n_tokens == 0) {
        return cudaSuccess;
    }
    if (!hopper_device() || product->n_tokens > MOST_TOKENS) {
        return cudaErrorNotSupported;
    }
    int n_sms;
    cudaError_t status = multiprocessors(&n_sms);
    if (status != cudaSuccess) {
        return status;
    }
    const int outputs = GATED ? TILE_ROWS / 2 : TILE_ROWS, n = product->n_outputs;
    const int n_tiles = (n - 1) / outputs + 1, room = 2 * n_sms;
    product->n_steps = (n_channels + TILE_CHANNELS - 1) / TILE_CHANNELS;
    product->n_blocks = n_tiles * (int64_t)MOST_BLOCKS <= n_sms ? MOST_BLOCKS : MOST_OF_MANY;
    while (product->n_blocks > 1 && ((int64_t)n_tiles * product->n_blocks > room ||
                                     product->n_blocks * LEAST_STEPS > product->n_steps)) {
        product->n_blocks /= 2;
    }
    if ((int64_t)n_tiles * least_blocks > room) {
        return cudaErrorNotSupported;
    }
    const int box_rows = GATED || n > TILE_ROWS ? (int)TILE_ROWS : n;
    product->weight_bytes = box_rows * TILE_CHANNELS * 2;
    product->input_bytes = product->n_tokens * TILE_CHANNELS * 2;
    CUtensorMap x_map, w_map;
    const bool mapped =
        GATED ? hopper_map_groups(&w_map, w, n_channels, n / 8, 1)
              : hopper_map(&w_map, w, n_channels, 1, n_channels, n, n_channels, box_rows);
    if (!mapped || !hopper_map(&x_map, x, n_channels, 1, x_stride, product->n_tokens, x_stride,
                               product->n_tokens)) {
        return cudaErrorNotSupported;
    }
    auto run = product->n_tokens <= 8    ? start<GATED, 8>
               : product->n_tokens <= 16 ? start<GATED, 16>
               : product->n_tokens <= 32 ? start<GATED, 32>
                                         : start<GATED, 64>;
    return run(x_map, w_map, *product, n_tiles, stream);
}

extern "C" cudaError_t kernel_gate_up_few(const struct call_gate_up *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0 || call->n_hidden <= 0 || call->n_hidden % 8 != 0 ||
        call->n_hidden > INT32_MAX / 2 || call->x_stride % 8 != 0 || call->y_stride % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    struct few_product product = {};
    product.y = call->y;
    product.y_stride = call->y_stride;
    product.n_tokens = call->n_tokens;
    product.n_outputs = call->n_hidden;
    return few_product_run<true>(&product, call->x, call->x_stride, call->w, call->n_channels, 2,
                                 stream);
}

extern "C" cudaError_t kernel_linear_few(const struct call_linear *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_inputs <= 0 ||
        call->n_inputs % 8 != 0 || call->n_outputs <= 0 || call->n_outputs % 8 != 0 ||
        call->x_stride % 8 != 0 || call->y_stride % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    struct few_product product = {};
    product.y = call->y;
    product.add = call->add;
    product.y_stride = call->y_stride;
    product.n_tokens = call->n_tokens;
    product.n_outputs = call->n_outputs;
    return few_product_run<false>(&product, call->x, call->x_stride, call->w, call->n_inputs, 1,
                                  stream);
}
