/* The LM head without logits. A tile of logits (rows x part of the vocabulary, single precision)
 * that stays in the L2 cache is made by cuBLASLt and reduced at once to one triple a row and part:
 * largest logit, its token, sum of exponentials. The triples of a row are merged at the end. */
#include <cublasLt.h>
#include <new>

#include "kernels/linear/head.cuh"
#include "kernels/device.h"
#include "kernels/hopper.cuh"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/linear/fp8.cuh"

enum {
    REDUCE_FLOATS = 32, /* a thread, in registers */
    MAX_PART = HEAD_REDUCE_THREADS * REDUCE_FLOATS,
    MAX_CHOICES = 64,
    TILE_ROWS = 1024, /* at most */
};

static const int64_t TILE_BYTES = 36ll << 20, WORKSPACE_BYTES = 16ll << 20;
static const int64_t SUMMARY_BYTES = 8ll << 20;

/* A product's shape and the algorithm cuBLASLt proposed for it; invariant: for a whole tile of
 * rows, and one that sums each logit in one piece. */
struct head_choice {
    int32_t n_rows, n_channels, n_tokens;
    bool invariant;
    cublasLtMatrixLayout_t w, x, logits;
    cublasLtMatmulAlgo_t algorithm;
};

struct head {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    int n_choices;
    struct head_choice choices[MAX_CHOICES];
};

template <bool STATISTICS>
static __global__ void __launch_bounds__(HEAD_REDUCE_THREADS)
    head_reduce_kernel(const float *logits, int64_t row_stride, int part_tokens, int n_tokens,
                       int first_token, struct head_summary<STATISTICS> *summaries, int n_parts,
                       int first_part, bool rounded) {
    dependencies_wait();
    dependents_launch();
    __shared__ struct head_summary<STATISTICS> of_warp[HEAD_REDUCE_THREADS / 32];
    const int begin = blockIdx.x * part_tokens;
    const int end = begin + part_tokens < n_tokens ? begin + part_tokens : n_tokens;
    const float *row = logits + blockIdx.y * row_stride;
    float x[REDUCE_FLOATS];
#pragma unroll
    for (int i = 0; i < REDUCE_FLOATS; i += 4) {
        const int at = begin + (i / 4 * HEAD_REDUCE_THREADS + (int)threadIdx.x) * 4;
        if (at + 4 <= end) {
            const float4 f = __ldcg(reinterpret_cast<const float4 *>(row + at));
            x[i] = f.x;
            x[i + 1] = f.y;
            x[i + 2] = f.z;
            x[i + 3] = f.w;
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[i + j] = at + j < end ? row[at + j] : -INFINITY;
            }
        }
    }
    struct head_summary<STATISTICS> mine = summary_none<STATISTICS>();
#pragma unroll
    for (int i = 0; i < REDUCE_FLOATS; i++) {
        if (rounded) {
            x[i] = __bfloat162float(__float2bfloat16_rn(x[i]));
        }
        if constexpr (STATISTICS) { /* of the two that were largest, the smaller one stays */
            mine.second = fmaxf(mine.second, fminf(mine.top, x[i]));
        }
        if (x[i] > mine.top) {
            mine.top = x[i];
            mine.token =
                first_token + begin + (i / 4 * HEAD_REDUCE_THREADS + (int)threadIdx.x) * 4 + i % 4;
        }
    }
#pragma unroll
    for (int i = 0; i < REDUCE_FLOATS; i++) {
        const float exponential = __expf(x[i] - mine.top);
        mine.sum += exponential;
        if constexpr (STATISTICS) {
            mine.weighted += head_weigh(x[i] - mine.top, exponential);
        }
    }
    mine = warp_merge(mine);
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = threadIdx.x < HEAD_REDUCE_THREADS / 32 ? of_warp[threadIdx.x]
                                                      : summary_none<STATISTICS>();
        mine = warp_merge(mine);
        if (threadIdx.x == 0) {
            summaries[(int64_t)blockIdx.y * n_parts + first_part + blockIdx.x] = mine;
        }
    }
}

template <bool STATISTICS>
static __global__ void head_merge_kernel(const struct head_summary<STATISTICS> *summaries,
                                         int n_parts, const struct head_results out, int n_rows) {
    dependencies_wait();
    dependents_launch();
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= n_rows) {
        return;
    }
    struct head_summary<STATISTICS> mine = summary_none<STATISTICS>();
    for (int i = threadIdx.x % 32; i < n_parts; i += 32) {
        mine = summary_merge(mine, summaries[(int64_t)row * n_parts + i]);
    }
    mine = warp_merge(mine);
    if (threadIdx.x % 32 == 0) {
        out.token[row] = mine.token;
        summary_store(mine, out, row);
    }
}

template <bool STATISTICS>
cudaError_t head_merge(const struct head_summary<STATISTICS> *summaries, int n_parts,
                       const struct head_results &out, int n_rows, cudaStream_t stream) {
    launch(head_merge_kernel<STATISTICS>, (unsigned)((n_rows - 1) / (HEAD_MERGE_THREADS / 32) + 1),
           HEAD_MERGE_THREADS, 0, stream, summaries, n_parts, out, n_rows);
    return cudaGetLastError();
}
template cudaError_t head_merge(const struct head_summary<false> *, int,
                                const struct head_results &, int, cudaStream_t);
template cudaError_t head_merge(const struct head_summary<true> *, int, const struct head_results &,
                                int, cudaStream_t);

static struct head_choice *head_choose(struct head *head, int n_rows, int n_channels, int n_tokens,
                                       bool invariant) {
    for (int i = 0; i < head->n_choices; i++) {
        struct head_choice *c = &head->choices[i];
        if (c->n_rows == n_rows && c->n_channels == n_channels && c->n_tokens == n_tokens &&
            c->invariant == invariant) {
            return c;
        }
    }
    if (head->n_choices == MAX_CHOICES) { /* start again rather than fail */
        head->n_choices = 0;
        for (int i = 0; i < MAX_CHOICES; i++) {
            cublasLtMatrixLayoutDestroy(head->choices[i].w);
            cublasLtMatrixLayoutDestroy(head->choices[i].x);
            cublasLtMatrixLayoutDestroy(head->choices[i].logits);
        }
    }
    struct head_choice *c = &head->choices[head->n_choices];
    c->n_rows = n_rows;
    c->n_channels = n_channels;
    c->n_tokens = n_tokens;
    c->invariant = invariant;
    c->w = c->x = c->logits = nullptr;
    const uint64_t channels = (uint64_t)n_channels, tokens = (uint64_t)n_tokens;
    const uint64_t rows = (uint64_t)n_rows, asked_rows = invariant ? (uint64_t)TILE_ROWS : rows;
    const uint64_t workspace = invariant ? 0 : (uint64_t)WORKSPACE_BYTES;
    const uint32_t reductions = invariant ? (uint32_t)CUBLASLT_REDUCTION_SCHEME_NONE
                                          : (uint32_t)CUBLASLT_REDUCTION_SCHEME_MASK;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t result;
    int n_results = 0;
    bool ok =
        cublasLtMatrixLayoutCreate(&c->w, CUDA_R_16BF, channels, tokens, n_channels) == 0 &&
        cublasLtMatrixLayoutCreate(&c->x, CUDA_R_16BF, channels, asked_rows, n_channels) == 0 &&
        cublasLtMatrixLayoutCreate(&c->logits, CUDA_R_32F, tokens, asked_rows,
                                   (n_tokens + 3) / 4 * 4) == 0 &&
        cublasLtMatmulPreferenceCreate(&preference) == 0 &&
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace) == 0 &&
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &reductions, sizeof reductions) == 0 &&
        cublasLtMatmulAlgoGetHeuristic(head->handle, head->product, c->w, c->x, c->logits,
                                       c->logits, preference, 1, &result, &n_results) == 0 &&
        n_results == 1 &&
        cublasLtMatrixLayoutSetAttribute(c->x, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows) ==
            0 &&
        cublasLtMatrixLayoutSetAttribute(c->logits, CUBLASLT_MATRIX_LAYOUT_COLS, &rows,
                                         sizeof rows) == 0;
    if (preference) {
        cublasLtMatmulPreferenceDestroy(preference);
    }
    if (!ok) {
        cublasLtMatrixLayoutDestroy(c->w);
        cublasLtMatrixLayoutDestroy(c->x);
        cublasLtMatrixLayoutDestroy(c->logits);
        return nullptr;
    }
    c->algorithm = result.algo;
    head->n_choices++;
    return c;
}

extern "C" void head_close(struct head *head) {
    if (!head) {
        return;
    }
    for (int i = 0; i < head->n_choices; i++) {
        cublasLtMatrixLayoutDestroy(head->choices[i].w);
        cublasLtMatrixLayoutDestroy(head->choices[i].x);
        cublasLtMatrixLayoutDestroy(head->choices[i].logits);
    }
    if (head->product) {
        cublasLtMatmulDescDestroy(head->product);
    }
    if (head->handle) {
        cublasLtDestroy(head->handle);
    }
    delete head;
}

extern "C" cudaError_t head_open(struct head **opened) {
    struct head *head = new (std::nothrow) struct head();
    if (!head) {
        return cudaErrorMemoryAllocation;
    }
    const cublasOperation_t transpose = CUBLAS_OP_T;
    if (cublasLtCreate(&head->handle) != 0 ||
        cublasLtMatmulDescCreate(&head->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) != 0 ||
        cublasLtMatmulDescSetAttribute(head->product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                       sizeof transpose) != 0) {
        head_close(head);
        return cudaErrorInitializationError;
    }
    *opened = head;
    return cudaSuccess;
}

extern "C" int64_t head_scratch_bytes(void) {
    static_assert(TILE_BYTES + WORKSPACE_BYTES + SUMMARY_BYTES == HEAD_SCRATCH_BYTES,
                  "what device.h promises");
    return HEAD_SCRATCH_BYTES;
}

/* Rows and tokens of a tile: as many tokens as fit, in equal multiples of 128. */
static void head_tile(int n_rows, int n_vocab, int *tile_rows, int *tile_tokens) {
    *tile_rows = n_rows < TILE_ROWS ? n_rows : TILE_ROWS;
    int64_t fit = TILE_BYTES / 4 / *tile_rows / 128 * 128;
    int64_t n_tiles = (n_vocab + fit - 1) / fit;
    int64_t even = ((n_vocab + n_tiles - 1) / n_tiles + 127) / 128 * 128;
    *tile_tokens = (int)(even < n_vocab ? even : n_vocab);
}

static bool head_valid(const struct call_head *call) {
    return call->dtype == KERNEL_BF16 && call->n_rows >= 0 && call->n_channels > 0 &&
           call->n_channels % 8 == 0 && call->n_vocab > 0;
}

extern "C" cudaError_t kernel_head_wgmma(const struct call_head *call, cudaStream_t stream) {
    if (!head_valid(call)) {
        return cudaErrorInvalidValue;
    }
    return hopper_device() && !call->fp8.w_scale ? head_wgmma(call, head_scratch_bytes(), stream)
                                                 : cudaErrorNotSupported;
}

/* Rows by part of the vocabulary. */
struct head_part {
    const char *x;
    float *logits;
    int n_rows, first, n_tokens;
};

/* Floats from a row of a part's logits to the next. */
static int logits_stride(int n_tokens) {
    return (n_tokens + 3) / 4 * 4;
}

static int64_t head_row_bytes(const struct call_head *call) {
    return call->fp8.x_too ? fp8_row_bytes(call->n_channels, call->fp8.w_columns)
                           : (int64_t)call->n_channels * 2;
}

static cudaError_t head_product(struct head *head, const struct call_head *call,
                                const struct head_part &part, void *workspace,
                                cudaStream_t stream) {
    const float one = 1, zero = 0;
    const char *w = static_cast<const char *>(call->w) + (int64_t)part.first * call->n_channels * 2;
    struct head_choice *c =
        head_choose(head, part.n_rows, call->n_channels, part.n_tokens, call->invariant);
    return c && cublasLtMatmul(head->handle, head->product, &one, w, c->w, part.x, c->x, &zero,
                               part.logits, c->logits, part.logits, c->logits, &c->algorithm,
                               workspace, (size_t)WORKSPACE_BYTES, stream) == 0
               ? cudaSuccess
               : cudaErrorUnknown;
}

static cudaError_t head_product_fp8(const struct call_head *call, const struct head_part &part,
                                    cudaStream_t stream) {
    struct call_linear rounded = {};
    struct fp8_product product;
    rounded.x = part.x;
    rounded.w = static_cast<const char *>(call->w) + (int64_t)part.first * call->n_channels;
    rounded.x_stride = call->fp8.x_too ? head_row_bytes(call) : call->n_channels;
    rounded.n_tokens = part.n_rows;
    rounded.n_outputs = part.n_tokens;
    rounded.n_inputs = call->n_channels;
    rounded.outputs_before = part.first;
    rounded.fp8 = call->fp8;
    if (!fp8_product_of(&rounded, &product)) {
        return cudaErrorInvalidValue;
    }
    product.y = part.logits;
    product.y_stride = logits_stride(part.n_tokens);
    product.outcome = FP8_SINGLE;
    return fp8_run(&product, call->invariant, stream);
}

/* Many rows on sm_90a: no logits, as head_wgmma. */
static cudaError_t head_fp8(const struct call_head *call, cudaStream_t stream) {
    struct call_linear rounded = {};
    struct fp8_product product;
    rounded.x = call->x;
    rounded.w = call->w;
    rounded.x_stride = head_row_bytes(call);
    rounded.n_outputs = call->n_vocab;
    rounded.n_inputs = call->n_channels;
    rounded.fp8 = call->fp8;
    if (!fp8_product_of(&rounded, &product)) {
        return cudaErrorInvalidValue;
    }
    product.y = call->scratch;
    product.outcome = FP8_SUMMED;
    product.statistics = call->margin;
    product.rounded = call->rounded;
    const int n_parts = (call->n_vocab + FP8_SUMMED_OUTPUTS - 1) / FP8_SUMMED_OUTPUTS;
    const int64_t bytes = n_parts * (int64_t)(call->margin ? sizeof(struct head_summary<true>)
                                                           : sizeof(struct head_summary<false>));
    const int64_t fit = head_scratch_bytes() / bytes;
    /* Their inputs stay in the L2 cache while the weights pass. */
    const int chunk = fit >= 4096 ? 4096 : (int)(fit / 256 * 256);
    if (chunk == 0) {
        return cudaErrorNotSupported;
    }
    for (int row = 0; row < call->n_rows; row += chunk) {
        product.x = static_cast<const char *>(call->x) + row * head_row_bytes(call);
        product.n_tokens = call->n_rows - row < chunk ? call->n_rows - row : chunk;
        cudaError_t status = fp8_run_tiles(&product, stream);
        if (status == cudaSuccess) {
            const struct head_results out = head_results_at(call, row);
            status = call->margin
                         ? head_merge(static_cast<const struct head_summary<true> *>(product.y),
                                      n_parts, out, product.n_tokens, stream)
                         : head_merge(static_cast<const struct head_summary<false> *>(product.y),
                                      n_parts, out, product.n_tokens, stream);
        }
        if (status != cudaSuccess) {
            return status;
        }
    }
    return cudaSuccess;
}

template <bool STATISTICS>
static cudaError_t head_tiles(struct head *head, const struct call_head *call,
                              cudaStream_t stream) {
    char *scratch = static_cast<char *>(call->scratch);
    float *logits = reinterpret_cast<float *>(scratch);
    char *workspace = scratch + TILE_BYTES;
    struct head_summary<STATISTICS> *summaries =
        reinterpret_cast<struct head_summary<STATISTICS> *>(workspace + WORKSPACE_BYTES);
    int tile_rows, tile_tokens;
    head_tile(call->invariant ? TILE_ROWS : call->n_rows, call->n_vocab, &tile_rows, &tile_tokens);
    const int n_tiles = (call->n_vocab + tile_tokens - 1) / tile_tokens;
    const int tile_parts = (tile_tokens + MAX_PART - 1) / MAX_PART;
    const int part_tokens = ((tile_tokens + tile_parts - 1) / tile_parts + 3) / 4 * 4;
    const int n_parts = n_tiles * tile_parts;
    if ((int64_t)tile_rows * n_parts * (int64_t)sizeof *summaries > SUMMARY_BYTES) {
        return cudaErrorInvalidValue;
    }
    for (int row = 0; row < call->n_rows; row += tile_rows) {
        const int n_rows = call->n_rows - row < tile_rows ? call->n_rows - row : tile_rows;
        const char *x = static_cast<const char *>(call->x) + row * head_row_bytes(call);
        for (int tile = 0; tile < n_tiles; tile++) {
            const int first = tile * tile_tokens;
            const int n_tokens =
                call->n_vocab - first < tile_tokens ? call->n_vocab - first : tile_tokens;
            const struct head_part part = {x, logits, n_rows, first, n_tokens};
            cudaError_t status = call->fp8.w_scale
                                     ? head_product_fp8(call, part, stream)
                                     : head_product(head, call, part, workspace, stream);
            if (status != cudaSuccess) {
                return status;
            }
            const dim3 grid((unsigned)tile_parts, (unsigned)n_rows);
            launch(head_reduce_kernel<STATISTICS>, grid, HEAD_REDUCE_THREADS, 0, stream, logits,
                   logits_stride(n_tokens), part_tokens, n_tokens, first, summaries, n_parts,
                   tile * tile_parts, call->rounded);
            status = cudaGetLastError();
            if (status != cudaSuccess) {
                return status;
            }
        }
        const cudaError_t status =
            head_merge(summaries, n_parts, head_results_at(call, row), n_rows, stream);
        if (status != cudaSuccess) {
            return status;
        }
    }
    return cudaSuccess;
}

extern "C" cudaError_t kernel_head_tiles(struct head *head, const struct call_head *call,
                                         cudaStream_t stream) {
    if (!head_valid(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows == 0) {
        return cudaSuccess;
    }
    return call->margin ? head_tiles<true>(head, call, stream)
                        : head_tiles<false>(head, call, stream);
}

extern "C" cudaError_t kernel_head(struct head *head, const struct call_head *call,
                                   cudaStream_t stream) {
    if (!call->fp8.w_scale) {
        return hopper_device() ? kernel_head_wgmma(call, stream)
                               : kernel_head_tiles(head, call, stream);
    }
    if (!head_valid(call)) {
        return cudaErrorInvalidValue;
    }
    /* Few rows read the weights faster than a tile of 128 does. */
    const cudaError_t status =
        call->invariant || call->n_rows > 64 ? head_fp8(call, stream) : cudaErrorNotSupported;
    return status == cudaErrorNotSupported ? kernel_head_tiles(head, call, stream) : status;
}
