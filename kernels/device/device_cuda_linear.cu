/* Products through cuBLASLt, or through a kernel of ours where that is faster. How fast an
 * algorithm is depends on the number of tokens T, and T is ragged: a plan serves a range of T,
 * exact up to 64 tokens, then 64, 256 and 1024 wide. A plan is found by timing the library's first
 * proposals and our kernels, once; while a graph is captured nothing can be timed, and its first
 * proposal is taken until the next time. */
#include <new>
#include <stdio.h>
#include <string.h>

#include "kernels/device/device_cuda.cuh"
#include "kernels/kernels.h"
#include "kernels/linear/fp8.cuh"

enum {
    MAX_PLANS = 4096, /* a power of two */
    PROPOSALS = 8,
    MAX_ROUNDS = 3,   /* timings of a proposal */
    ALIGN_BYTES = 16, /* of all operands: rows are multiples of 8 elements apart */
    INVARIANT_TOKENS = 8192,
    OWN_LEAST_TOKENS = 256, /* below, our kernel of tiles has too few of them to win */
    FEW_TOKENS = 64,        /* up to here ours are others */
    TIMED_TOKENS = 16384,   /* proposals for more are timed on this many */
    WIDE_TOKENS = 1024,     /* up to here a range is wide for its numbers of tokens: */
    RANGE_TOKENS = 64,
    MOST_SIZES = 3, /* that a proposal is timed on */
    MOST_OWN = 2,   /* kernels of ours for a number of tokens */
};

/* Who runs a product: the library, or a kernel of ours. */
enum runner { RUN_LIBRARY, RUN_TILES, RUN_FEW, RUN_EVEN };

static const int64_t WORKSPACE_BYTES = 32ll << 20;
/* Proposals for longer products are timed once: the noise of a timing is a few microseconds. */
static const double LONG_PRODUCT_FLOPS = 2e11;
/* Of weights that our kernel of even shares may be timed with: of 33 MB it takes 0.75 of the
 * clusters' time, of 2 to 13 MB 0.89 to 1.46 (H200, 2026-11-30, lab/README.md). */
static const int64_t EVEN_LEAST_BYTES = 16ll << 20;
/* What a later proposal must save before the library's own order is overruled. */
static const float MARGIN = 0.98f;
/* What our kernels for few tokens may seem to lose: in a step they begin before the kernel before
 * ends, in a timed run they do not. */
static const float FEW_MARGIN = 1.1f;

struct plan {
    int32_t last_token; /* of the range; 0: an empty place */
    int32_t n_outputs, n_inputs;
    bool adds, by_inputs, timed;
    enum runner runner;
    cublasLtMatmulAlgo_t algorithm;
};

struct linears {
    cublasLtHandle_t handle;
    void *workspace;
    cudaEvent_t events[PROPOSALS + MOST_OWN][MOST_SIZES * MAX_ROUNDS][2]; /* around timed runs */
    bool invariant;                                                       /* one plan for all T */
    int n_plans;
    struct plan plans[MAX_PLANS];
};

/* One product as cuBLASLt sees it: column-major, so y' = w x' + add', where w is what its memory
 * says transposed, but by_inputs as it says. */
struct product {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t w, x, y;
};

static bool product_init(struct product *product, const struct call_linear *call,
                         int64_t y_stride) {
    const cublasOperation_t transpose = call->by_inputs ? CUBLAS_OP_N : CUBLAS_OP_T;
    const uint64_t inputs = (uint64_t)call->n_inputs, outputs = (uint64_t)call->n_outputs;
    const uint64_t tokens = (uint64_t)call->n_tokens;
    return cublasLtMatmulDescInit(&product->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
           cublasLtMatmulDescSetAttribute(&product->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                          &transpose, sizeof transpose) == 0 &&
           cublasLtMatrixLayoutInit(&product->w, CUDA_R_16BF, call->by_inputs ? outputs : inputs,
                                    call->by_inputs ? inputs : outputs,
                                    call->by_inputs ? call->n_outputs : call->n_inputs) == 0 &&
           cublasLtMatrixLayoutInit(&product->x, CUDA_R_16BF, inputs, tokens, call->x_stride) ==
               0 &&
           cublasLtMatrixLayoutInit(&product->y, CUDA_R_16BF, outputs, tokens, y_stride) == 0;
}

/* At most `wanted` algorithms, the library's favourite first. `invariant`: only such as sum each
 * output in one piece, whatever rows are computed with it: without splitting the sum, and without
 * workspace. */
static int propose(struct linears *linears, struct product *product, bool invariant, int wanted,
                   cublasLtMatmulHeuristicResult_t *results) {
    const uint64_t workspace = invariant ? 0 : (uint64_t)WORKSPACE_BYTES;
    const uint32_t alignment = ALIGN_BYTES, no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreferenceOpaque_t preference;
    int n_results = 0;
    bool ok =
        cublasLtMatmulPreferenceInit(&preference) == 0 &&
        cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace) == 0;
    for (int i = 0; ok && i < 4; i++) {
        ok = cublasLtMatmulPreferenceSetAttribute(&preference, aligned[i], &alignment,
                                                  sizeof alignment) == 0;
    }
    if (ok && invariant) {
        ok = cublasLtMatmulPreferenceSetAttribute(&preference,
                                                  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &no_reduction, sizeof no_reduction) == 0;
    }
    ok = ok && cublasLtMatmulAlgoGetHeuristic(linears->handle, &product->operation, &product->w,
                                              &product->x, &product->y, &product->y, &preference,
                                              wanted, results, &n_results) == 0;
    return ok ? n_results : 0;
}

static cublasStatus_t product_run(struct linears *linears, struct product *product,
                                  const struct call_linear *call, void *y,
                                  const cublasLtMatmulAlgo_t *algorithm, cudaStream_t stream) {
    const float one = 1, add = call->add ? 1 : 0;
    return cublasLtMatmul(linears->handle, &product->operation, &one, call->w, &product->w, call->x,
                          &product->x, &add, call->add ? call->add : y, &product->y, y, &product->y,
                          algorithm, linears->workspace, (size_t)WORKSPACE_BYTES, stream);
}

/* The last T of the range that T lies in. */
static int32_t plan_range(int32_t n_tokens) {
    const int32_t width = n_tokens <= 64            ? 1
                          : n_tokens <= WIDE_TOKENS ? RANGE_TOKENS
                          : n_tokens <= 8192        ? 256
                                                    : 1024;
    const int64_t last = ((int64_t)n_tokens + width - 1) / width * width;
    return last < INT32_MAX ? (int32_t)last : INT32_MAX;
}

/* The plan's place, whether it is there already or empty; NULL when the table is full. */
static struct plan *plan_find(struct linears *linears, int32_t last_token,
                              const struct call_linear *call) {
    const bool adds = call->add != nullptr;
    uint64_t hash = (uint64_t)last_token;
    hash = hash * 0x9e3779b97f4a7c15u + (uint64_t)call->n_outputs;
    hash = hash * 0x9e3779b97f4a7c15u + (uint64_t)call->n_inputs * 4 + 2 * call->by_inputs + adds;
    hash *= 0x9e3779b97f4a7c15u;
    for (uint64_t i = hash >> 32;; i++) {
        struct plan *plan = &linears->plans[i % MAX_PLANS];
        if (plan->last_token == 0) {
            return linears->n_plans < MAX_PLANS * 3 / 4 ? plan : nullptr;
        }
        if (plan->last_token == last_token && plan->n_outputs == call->n_outputs &&
            plan->n_inputs == call->n_inputs && plan->adds == adds &&
            plan->by_inputs == call->by_inputs) {
            return plan;
        }
    }
}

/* The kernels of ours that may be fastest for this many tokens of a call. */
static int runners_of(const struct call_linear *call, int32_t n_tokens,
                      enum runner runners[MOST_OWN]) {
    if (n_tokens > FEW_TOKENS) {
        runners[0] = RUN_TILES; /* below OWN_LEAST_TOKENS it has too few of them */
        return n_tokens >= OWN_LEAST_TOKENS;
    }
    runners[0] = RUN_FEW;
    runners[1] = RUN_EVEN;
    return 2 * (int64_t)call->n_outputs * call->n_inputs >= EVEN_LEAST_BYTES ? 2 : 1;
}

static bool own_run(enum runner runner, const struct call_linear *call, void *y,
                    cudaStream_t stream) {
    auto kernel = runner == RUN_TILES ? kernel_linear_wgmma
                  : runner == RUN_FEW ? kernel_linear_few
                                      : kernel_linear_even;
    struct call_linear own = *call;
    own.y = y;
    if (kernel(&own, stream) == cudaSuccess) {
        return true;
    }
    cudaGetLastError();
    return false;
}

/* A way to run a product that is timed. */
struct candidate {
    enum runner runner;
    const cublasLtMatmulAlgo_t *algorithm; /* the library's */
};

/* Queues one run that finds other memory in the L2 cache, between two events where there are some.
 */
static bool queue_run(struct device *device, struct product *product,
                      const struct call_linear *call, void *y, const struct candidate *candidate,
                      const cudaEvent_t *events) {
    int64_t spare_bytes;
    void *spare = device_spare(device, &spare_bytes);
    return cudaMemsetAsync(spare, 0, (size_t)spare_bytes, device->stream) == cudaSuccess &&
           (!events || cudaEventRecord(events[0], device->stream) == cudaSuccess) &&
           (candidate->runner == RUN_LIBRARY
                ? product_run(device->linears, product, call, y, candidate->algorithm,
                              device->stream) == CUBLAS_STATUS_SUCCESS
                : own_run(candidate->runner, call, y, device->stream)) &&
           (!events || cudaEventRecord(events[1], device->stream) == cudaSuccess);
}

static int timed_rounds(const struct call_linear *call, int32_t n_tokens) {
    const double flops = 2.0 * n_tokens * call->n_outputs * call->n_inputs;
    return flops > LONG_PRODUCT_FLOPS ? 1 : MAX_ROUNDS;
}

/* What a plan's proposals are timed on: the call's tokens, and where a range is wide for them its
 * middle and its first. Algorithms that are as fast at its end differ by a half elsewhere in it
 * (H200, 2026-11-23: 33 or 47 us for 129 tokens), and which of them one process took another did
 * not. */
static int timed_sizes(int32_t n_tokens, int32_t last_token, int32_t sizes[MOST_SIZES]) {
    int n = 0;
    sizes[n++] = n_tokens;
    if (n_tokens > FEW_TOKENS && last_token <= WIDE_TOKENS) {
        const int32_t others[] = {last_token - RANGE_TOKENS / 2, last_token - RANGE_TOKENS + 1};
        for (int32_t other : others) {
            if (other < n_tokens) {
                sizes[n++] = other;
            }
        }
    }
    return n;
}

/* What a choice is timed on: a call whose output is `y`, over several numbers of tokens. */
struct timed {
    struct call_linear call;
    void *y;
    int32_t sizes[MOST_SIZES];
    int n_sizes;
};

/* Queues all runs of a proposal, and waits for none: on a card that other programs fill each wait
 * is a turn of theirs, and a choice has up to 108 runs. The first run, which loads its code, is not
 * timed. False when one cannot be queued. */
static bool queue_proposal(struct device *device, const struct timed *timed,
                           const struct candidate *candidate, cudaEvent_t (*events)[2]) {
    for (int i = 0; i < timed->n_sizes; i++) {
        struct call_linear call = timed->call;
        struct product product;
        call.n_tokens = timed->sizes[i];
        bool ok = product_init(&product, &call, call.y_stride);
        for (int round = 0; ok && round <= timed_rounds(&call, call.n_tokens); round++) {
            ok = queue_run(device, &product, &call, timed->y, candidate,
                           round > 0 ? events[i * MAX_ROUNDS + round - 1] : nullptr);
        }
        if (!ok) {
            return false;
        }
    }
    return true;
}

/* Microseconds: of each number of tokens the fastest run, summed; negative when one failed. */
static float proposal_us(const struct timed *timed, cudaEvent_t (*events)[2]) {
    float sum = 0;
    for (int i = 0; i < timed->n_sizes; i++) {
        float best = -1;
        for (int round = 0; round < timed_rounds(&timed->call, timed->sizes[i]); round++) {
            const cudaEvent_t *pair = events[i * MAX_ROUNDS + round];
            float ms;
            if (cudaEventElapsedTime(&ms, pair[0], pair[1]) != cudaSuccess) {
                return -1;
            }
            best = best < 0 || ms < best ? ms : best;
        }
        if (best <= 0) {
            return -1;
        }
        sum += best * 1000;
    }
    return sum;
}

/* us[i]: of the i-th of n candidates. */
static void time_all(struct device *device, const struct timed *timed,
                     const struct candidate *candidates, int n, float *us) {
    struct linears *linears = device->linears;
    bool queued[PROPOSALS + MOST_OWN] = {};
    for (int i = 0; i < n; i++) {
        queued[i] = queue_proposal(device, timed, &candidates[i], linears->events[i]);
    }
    const bool done = cudaStreamSynchronize(device->stream) == cudaSuccess;
    for (int i = 0; i < n; i++) {
        us[i] = done && queued[i] ? proposal_us(timed, linears->events[i]) : -1;
    }
}

/* The fastest of the library's n proposals, which come first, unless one of our n_own kernels beats
 * it: then the fastest of these. */
static const struct candidate *fastest(const struct candidate *candidates, int n, int n_own,
                                       float margin, const float *us) {
    const struct candidate *best = candidates, *own = nullptr;
    float best_us = 0, own_us = 0;
    for (int i = 0; i < n; i++) {
        if (us[i] > 0 && (best_us == 0 || us[i] < best_us * MARGIN)) {
            best = &candidates[i];
            best_us = us[i];
        }
    }
    for (int i = n; i < n + n_own; i++) {
        if (us[i] > 0 && (own_us == 0 || us[i] < own_us)) {
            own = &candidates[i];
            own_us = us[i];
        }
    }
    return own && (best_us == 0 || own_us < best_us * margin) ? own : best;
}

/* Moves the fastest of n proposals to the front; says who runs the product. Timed runs write y,
 * which the product itself overwrites later; where y is added to, spare memory takes their place,
 * and as many tokens as it has room for. */
static enum runner choose(struct device *device, const struct call_linear *call, int32_t last_token,
                          cublasLtMatmulHeuristicResult_t *results, int n) {
    struct timed timed = {.call = *call, .y = call->y};
    int32_t n_tokens = call->n_tokens;
    if (call->add == call->y) {
        int64_t spare_bytes;
        timed.y = device_spare(device, &spare_bytes);
        timed.call.y_stride = ((int64_t)call->n_outputs + 7) / 8 * 8;
        const int64_t most = spare_bytes / (2 * timed.call.y_stride);
        n_tokens = most < n_tokens ? (int32_t)most : n_tokens;
        timed.call.add = timed.y; /* of the same cost, whatever it holds */
    }
    n_tokens = n_tokens < TIMED_TOKENS ? n_tokens : TIMED_TOKENS;
    if (n_tokens == 0) {
        return RUN_LIBRARY;
    }
    timed.n_sizes = timed_sizes(n_tokens, last_token, timed.sizes);
    enum runner runners[MOST_OWN];
    struct candidate candidates[PROPOSALS + MOST_OWN] = {};
    for (int i = 0; i < n; i++) {
        candidates[i].algorithm = &results[i].algo;
    }
    const bool ours = call->n_outputs % 8 == 0 && !call->by_inputs;
    const int n_own = ours ? runners_of(call, n_tokens, runners) : 0;
    for (int i = 0; i < n_own; i++) {
        candidates[n + i].runner = runners[i];
    }
    float us[PROPOSALS + MOST_OWN];
    time_all(device, &timed, candidates, n + n_own, us);
    const struct candidate *best =
        fastest(candidates, n, n_own, n_tokens <= FEW_TOKENS ? FEW_MARGIN : MARGIN, us);
    if (best->runner == RUN_LIBRARY) {
        results[0].algo = *best->algorithm;
    }
    return best->runner;
}

/* The plan for a call in `plan`; false when cuBLASLt proposes none. */
static bool plan_make(struct device *device, const struct call_linear *call, int32_t last_token,
                      bool time, struct plan *plan) {
    struct linears *linears = device->linears;
    cublasLtMatmulHeuristicResult_t results[PROPOSALS];
    struct product product;
    struct call_linear shape = *call;
    if (linears->invariant) {
        shape.n_tokens = INVARIANT_TOKENS;
    }
    const int n =
        product_init(&product, &shape, call->y_stride)
            ? propose(linears, &product, linears->invariant, time ? PROPOSALS : 1, results)
            : 0;
    if (n == 0) {
        return false;
    }
    plan->runner = time ? choose(device, call, last_token, results, n) : RUN_LIBRARY;
    plan->last_token = last_token;
    plan->n_outputs = call->n_outputs;
    plan->n_inputs = call->n_inputs;
    plan->adds = call->add != nullptr;
    plan->by_inputs = call->by_inputs;
    plan->timed = time || linears->invariant || call->deterministic;
    plan->algorithm = results[0].algo;
    return true;
}

static int linear_status(struct device *device, cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) {
        return DEVICE_OK;
    }
    if (!device->failed) {
        snprintf(device->trouble, sizeof device->trouble, "cublasLtMatmul: %s",
                 cublasLtGetStatusString(status));
    }
    device->failed = true;
    return DEVICE_FAILED;
}

/* ---- weights in fp8 ---- */

enum { FP8_APART_ROWS = 128 };

/* Rows of expanded weights that there is room for, in whole tiles. */
static int32_t apart_rows(int64_t n_inputs, int64_t rows_an_output) {
    const int64_t fit = WORKSPACE_BYTES / (2 * n_inputs * rows_an_output);
    return (int32_t)(fit / FP8_APART_ROWS * FP8_APART_ROWS);
}

static bool is_apart(const struct device *device, const struct call_fp8 *fp8, int32_t n_tokens) {
    return !fp8->x_too && (n_tokens > FP8_WIDE_MOST || device->linears->invariant);
}

static const uint8_t *weights_from(const void *w, int64_t row, int64_t n_inputs) {
    return static_cast<const uint8_t *>(w) + row * n_inputs;
}

static void *outputs_from(const void *y, int64_t first) {
    const int64_t bytes = 2 * first;
    return y ? const_cast<char *>(static_cast<const char *>(y)) + bytes : nullptr;
}

/* By pieces of the outputs, whose weights are expanded before each. */
static cudaError_t linear_fp8_apart(struct device *device, const struct call_linear *call) {
    void *room = device->linears->workspace;
    const int32_t most = apart_rows(call->n_inputs, 1);
    cudaError_t status = most > 0 && call->n_outputs % 8 == 0 ? cudaSuccess : cudaErrorNotSupported;
    for (int32_t first = 0; status == cudaSuccess && first < call->n_outputs; first += most) {
        struct call_linear piece = *call;
        const int32_t left = call->n_outputs - first;
        piece.fp8 = {};
        piece.w = room;
        piece.y = outputs_from(call->y, first);
        piece.add = outputs_from(call->add, first);
        piece.n_outputs = left < most ? left : most;
        status = fp8_expand(weights_from(call->w, first, call->n_inputs), &call->fp8,
                            call->outputs_before + first, piece.n_outputs, call->n_inputs, room,
                            device->stream);
        status = status == cudaSuccess ? kernel_linear_wgmma(&piece, device->stream) : status;
    }
    return status;
}

static cudaError_t linear_fp8(struct device *device, const struct call_linear *call) {
    cudaError_t status = cudaErrorNotSupported;
    if (is_apart(device, &call->fp8, call->n_tokens)) {
        status = linear_fp8_apart(device, call);
    }
    if (status == cudaErrorNotSupported) {
        cudaGetLastError();
        status = kernel_linear_fp8(call, device->linears->invariant, device->stream);
    }
    return status;
}

static cudaError_t gate_up_fp8_apart(struct device *device, const struct call_gate_up *call) {
    void *room = device->linears->workspace;
    const int32_t most = apart_rows(call->n_channels, 2);
    cudaError_t status = most > 0 ? cudaSuccess : cudaErrorNotSupported;
    for (int32_t first = 0; status == cudaSuccess && first < call->n_hidden; first += most) {
        struct call_gate_up piece = *call;
        const int32_t left = call->n_hidden - first;
        piece.fp8 = {};
        piece.w = room;
        piece.y = outputs_from(call->y, first);
        piece.n_hidden = left < most ? left : most;
        for (int32_t half = 0; half < 2 && status == cudaSuccess; half++) {
            const int32_t row = half * call->n_hidden + first;
            const int64_t before = (int64_t)half * piece.n_hidden * call->n_channels;
            status = fp8_expand(weights_from(call->w, row, call->n_channels), &call->fp8, row,
                                piece.n_hidden, call->n_channels, outputs_from(room, before),
                                device->stream);
        }
        status = status == cudaSuccess ? kernel_gate_up(&piece, device->stream) : status;
    }
    return status;
}

cudaError_t device_gate_up_fp8(struct device *device, const struct call_gate_up *call) {
    cudaError_t status = cudaErrorNotSupported;
    if (is_apart(device, &call->fp8, call->n_tokens)) {
        status = gate_up_fp8_apart(device, call);
    }
    if (status == cudaErrorNotSupported) {
        cudaGetLastError();
        status = kernel_gate_up_fp8(call, device->linears->invariant, device->stream);
    }
    return status;
}

/* ---- the call ---- */

static bool linear_valid(const struct call_linear *call) {
    return call->dtype == KERNEL_BF16 && call->n_tokens >= 0 && call->n_outputs > 0 &&
           call->n_inputs > 0 && call->n_inputs % 8 == 0 && call->x_stride % 8 == 0 &&
           call->y_stride % 8 == 0 && call->x_stride >= call->n_inputs &&
           call->y_stride >= call->n_outputs && (!call->by_inputs || call->n_outputs % 8 == 0) &&
           !call->fp8.w_scale;
}

/* Where the table is full nothing is tried, nor for weights in fp8. */
bool device_linear_chosen(const struct device *device, const struct call_linear *call) {
    if (call->fp8.w_scale) {
        return true;
    }
    struct linears *linears = device->linears;
    const int32_t last_token = linears->invariant ? INT32_MAX : plan_range(call->n_tokens);
    const struct plan *plan = plan_find(linears, last_token, call);
    return !plan || (plan->last_token != 0 && plan->timed);
}

int device_linear(struct device *device, const struct call_linear *call) {
    struct linears *linears = device->linears;
    struct product product;
    if (call->fp8.w_scale) {
        const cudaError_t status = linear_fp8(device, call);
        return status == cudaErrorInvalidValue
                   ? device_refuse(device,
                                   "a product in fp8 of a shape that calls.h does not promise")
                   : device_status(device, status, "linear in fp8");
    }
    if (!linear_valid(call)) {
        return device_refuse(device, "a product of a shape that calls.h does not promise");
    }
    if (call->n_tokens == 0) {
        return DEVICE_OK;
    }
    const int32_t last_token = linears->invariant ? INT32_MAX : plan_range(call->n_tokens);
    struct plan own = {}, *found = plan_find(linears, last_token, call);
    struct plan *plan = found ? found : &own;
    const bool is_new = plan->last_token == 0;
    if (is_new || (!plan->timed && !device->capturing)) {
        const bool time =
            found && !device->capturing && !linears->invariant && !call->deterministic;
        if (!plan_make(device, call, last_token, time, plan)) {
            return linear_status(device, CUBLAS_STATUS_NOT_SUPPORTED);
        }
        linears->n_plans += found && is_new;
    }
    if (!product_init(&product, call, call->y_stride)) {
        return linear_status(device, CUBLAS_STATUS_INVALID_VALUE);
    }
    if (plan->runner != RUN_LIBRARY && own_run(plan->runner, call, call->y, device->stream)) {
        return DEVICE_OK;
    }
    cublasStatus_t status =
        product_run(linears, &product, call, call->y, &plan->algorithm, device->stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED && !linears->invariant) {
        /* The range's plan does not do for this T: the library's first proposal for it does. */
        cublasLtMatmulHeuristicResult_t result;
        if (propose(linears, &product, false, 1, &result) == 1) {
            status = product_run(linears, &product, call, call->y, &result.algo, device->stream);
        }
    }
    return linear_status(device, status);
}

void linears_set_invariant(struct linears *linears, bool invariant) {
    if (linears->invariant != invariant) {
        linears->invariant = invariant;
        linears->n_plans = 0;
        memset(linears->plans, 0, sizeof linears->plans);
    }
}

static bool open_events(struct linears *linears) {
    cudaEvent_t *events = &linears->events[0][0][0];
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof linears->events / sizeof *events; i++) {
        ok = cudaEventCreate(&events[i]) == cudaSuccess;
    }
    return ok;
}

struct linears *linears_open(const char **trouble) {
    struct linears *linears = new (std::nothrow) struct linears();
    *trouble = "no host memory";
    if (linears && cublasLtCreate(&linears->handle) != 0) {
        linears->handle = nullptr;
        *trouble = "cuBLASLt does not start";
    } else if (linears && cudaMalloc(&linears->workspace, (size_t)WORKSPACE_BYTES) == cudaSuccess &&
               open_events(linears)) {
        return linears;
    } else if (linears) {
        *trouble = "no device memory for cuBLASLt";
    }
    linears_close(linears);
    return nullptr;
}

void linears_close(struct linears *linears) {
    if (!linears) {
        return;
    }
    cudaEvent_t *events = &linears->events[0][0][0];
    for (size_t i = 0; i < sizeof linears->events / sizeof *events && events[i]; i++) {
        cudaEventDestroy(events[i]);
    }
    cudaFree(linears->workspace);
    if (linears->handle) {
        cublasLtDestroy(linears->handle);
    }
    delete linears;
}

int64_t linears_bytes(const struct linears *linears) {
    return linears ? WORKSPACE_BYTES : 0;
}
