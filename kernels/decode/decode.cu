/* Which rows of each request are committed this step: one block a request. Takes and thresholds are
 * a choice of the k candidates that rank first; a threshold first counts its k, and where it is
 * joined by one for edits looks at the other rows as well. The other rules look at every
 * candidate's place among the others, which few rows leave cheap. */
#include "kernels/decode/top.cuh"
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"
#include "kernels/launches.h"
#include "kernels/rules/decide.h"
#include "kernels/rules/place.h"

static __device__ __forceinline__ float rank_of(const struct call_decode &call, int row) {
    uint64_t key = 0, position = 0;
    if (decide_draws(call.rank, call.temperature)) {
        key = call.key[blockIdx.x];
        position = call.position ? call.position[row] - call.canvas_start[blockIdx.x] : row;
    }
    return decide_rank(call.rank, call.temperature, call.confidence, call.margin, call.entropy, row,
                       key, position);
}

static __device__ __forceinline__ bool is_candidate(const struct call_decode &call, int row) {
    return !call.canvas || call.canvas[call.position[row]] == call.mask_token;
}

/* A candidate's place among the others. */
static __device__ __forceinline__ float place_of(const struct call_decode &call, int row,
                                                 float rank) {
    return call.canvas ? decide_place(rank, call.token[row], call.mask_token) : rank;
}

static __device__ __forceinline__ void commit(const struct call_decode &call, int row) {
    call.committed[row] = 1;
    if (call.canvas) {
        call.canvas[call.position[row]] = call.token[row];
    }
}

static __device__ __forceinline__ void say_committed(const struct call_decode &call, int n) {
    if (call.n_committed) {
        call.n_committed[blockIdx.x] = n;
    }
}

/* A row that is no candidate. */
static __device__ __forceinline__ bool revises(const struct call_decode &call, int row) {
    return decide_revises(call.edit, call.confidence[row], call.token[row],
                          call.canvas[call.position[row]], call.mask_token);
}

/* Those of a thread's rows of which `revised` has a bit are given their tokens. */
template <int KEYS>
static __device__ __forceinline__ void revise(const struct call_decode &call, int first,
                                              uint64_t revised) {
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        if (revised >> i & 1) {
            commit(call, first + top_index<KEYS>(i));
            call.committed[first + top_index<KEYS>(i)] = DECIDE_REVISE;
        }
    }
}

/* The largest of all threads' values, for every thread. */
template <int THREADS> static __device__ __forceinline__ float block_max(float x) {
    __shared__ float of_warp[32];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = x;
    }
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; warp++) {
        x = fmaxf(x, of_warp[warp]);
    }
    return x;
}

/* How many rows a take is, or a threshold, below which there may be a least number; it is said. */
static __device__ __forceinline__ uint32_t count_of(const struct call_decode &call, uint32_t n_sure,
                                                    uint32_t n_candidates) {
    uint32_t k = n_sure > 0 ? n_sure : 1;
    if (call.rule == DECODE_COUNT) {
        k = (uint32_t)max(call.take[blockIdx.x], 0);
    } else if (call.rule == DECODE_JOINT && call.take) {
        k = max(k, (uint32_t)max(call.take[blockIdx.x], 0));
    }
    k = min(k, n_candidates);
    if (threadIdx.x == 0) {
        say_committed(call, (int)k);
    }
    return k;
}

template <int THREADS, int KEYS, bool JOINT>
static __global__ void __launch_bounds__(THREADS) decode_kernel(const struct call_decode call) {
    dependencies_wait();
    dependents_launch();
    __shared__ uint32_t buffer[2][3][32];
    const int first = call.first_row[blockIdx.x], n_rows = call.n_rows[blockIdx.x];
    uint32_t key[KEYS];
    float best = -INFINITY;
    /* Counted: candidates that are sure; candidates; those that are no numbers. */
    uint32_t n[3] = {0, 0, 0};
    float least = JOINT || call.rule == DECODE_THRESHOLD ? call.threshold[blockIdx.x] : INFINITY;
    uint64_t revised = 0; /* bit i: row top_index(i) */
    const uint32_t none = 0;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const int row = top_index<KEYS>(i);
        key[i] = none;
        if (row < n_rows) {
            call.committed[first + row] = 0;
            if (is_candidate(call, first + row)) {
                const float rank = rank_of(call, first + row);
                const float place = place_of(call, first + row, rank);
                const float confidence = call.confidence[first + row];
                key[i] = top_key(place);
                best = fmaxf(best, place);
                n[1]++;
                n[2] += rank != rank || confidence != confidence;
            } else if (JOINT) {
                const float confidence = call.confidence[first + row];
                n[2] += confidence != confidence;
                revised |= (uint64_t)(call.canvas && revises(call, first + row)) << i;
            }
        }
    }
    if (call.slack > 0 && call.rule == DECODE_THRESHOLD) {
        least = decide_least(least, call.slack, block_max<THREADS>(best));
    }
    const uint32_t least_key = top_key(least);
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        n[0] += key[i] != none && (JOINT ? key[i] > least_key : key[i] >= least_key);
    }
    block_sum<THREADS, KEYS>(n, buffer, 0);
    if (n[2] > 0) {
        if (threadIdx.x == 0) {
            say_committed(call, DECODE_NOT_NUMBERS);
        }
        return;
    }
    if (JOINT) {
        revise<KEYS>(call, first, revised);
    }
    const uint32_t k = count_of(call, n[0], n[1]);
    if (k == 0) {
        return;
    }
    const uint32_t threshold = top_threshold<THREADS>(key, k, buffer);
    top_visit<THREADS>(key, k, threshold, buffer,
                       [&](int i, uint32_t) { commit(call, first + top_index<KEYS>(i)); });
}

/* What the ranked rules hold of a request's rows, in shared memory. */
struct ranked {
    float *value, *in_order;
    uint8_t *candidate;
};

/* Of each array. Loads of four values at once stay in the array that they begin in. */
/* Candidates of the rows begin .. end that are taken before this one. */
static __device__ __forceinline__ int n_before(const struct ranked &rows, int begin, int end,
                                               int row) {
    const float mine = rows.value[row];
    int n = 0;
    for (int other = begin; other < end; other++) {
        const float its = rows.value[other];
        n += rows.candidate[other] && (its > mine || (its == mine && other < row));
    }
    return n;
}

/* Whether rows `row` and `row` + 1 are neighbours in a run. */
static __device__ __forceinline__ bool neighbours(const struct call_decode &call,
                                                  const struct ranked &rows, int first, int row) {
    return rows.candidate[row] && rows.candidate[row + 1] &&
           (!call.position || call.position[first + row + 1] == call.position[first + row] + 1);
}

static __device__ __forceinline__ bool leads_run(const struct call_decode &call,
                                                 const struct ranked &rows, int first, int n_rows,
                                                 int row) {
    int begin = row, end = row + 1;
    while (begin > 0 && neighbours(call, rows, first, begin - 1)) {
        begin--;
    }
    while (end < n_rows && neighbours(call, rows, first, end - 1)) {
        end++;
    }
    return n_before(rows, begin, end, row) == 0;
}

/* Of the values in order, how many go by factor or bound; one thread's work. */
static __device__ int n_that_go(const struct call_decode &call, const float *in_order, int n) {
    float sum = 0;
    int i = 0;
    while (i < n && decide_goes(call.rule, call.factor, call.bound, i, in_order[i], &sum)) {
        i++;
    }
    return i;
}

template <int THREADS>
static __global__ void __launch_bounds__(THREADS) ranked_kernel(const struct call_decode call) {
    dependencies_wait();
    dependents_launch();
    extern __shared__ float values[];
    __shared__ int n_taken, n_committed;
    const int room = ranked_room(call.max_rows);
    const struct ranked rows = {values, values + room,
                                reinterpret_cast<uint8_t *>(values + 2 * room)};
    const int first = call.first_row[blockIdx.x], n_rows = call.n_rows[blockIdx.x];
    bool is_number = true, any = false;
    for (int row = threadIdx.x; row < n_rows; row += THREADS) {
        const float rank = rank_of(call, first + row), confidence = call.confidence[first + row];
        rows.value[row] = place_of(call, first + row, rank);
        rows.candidate[row] = is_candidate(call, first + row);
        call.committed[first + row] = 0;
        any = any || rows.candidate[row];
        is_number =
            is_number && (!rows.candidate[row] || (rank == rank && confidence == confidence));
    }
    n_committed = 0;
    const bool all_numbers = __syncthreads_and(is_number);
    if (!__syncthreads_or(any) || !all_numbers) {
        if (threadIdx.x == 0) {
            say_committed(call, all_numbers ? 0 : DECODE_NOT_NUMBERS);
        }
        return;
    }
    const bool in_runs = call.rule == DECODE_HIERARCHICAL;
    for (int row = threadIdx.x; !in_runs && row < n_rows; row += THREADS) {
        if (rows.candidate[row]) {
            rows.in_order[n_before(rows, 0, n_rows, row)] = rows.value[row];
            atomicAdd(&n_committed, 1); /* candidates, until they are counted */
        }
    }
    __syncthreads();
    if (!in_runs && threadIdx.x == 0) {
        n_taken = n_that_go(call, rows.in_order, n_committed);
    }
    __syncthreads();
    n_committed = 0;
    __syncthreads();
    for (int row = threadIdx.x; row < n_rows; row += THREADS) {
        if (!rows.candidate[row]) {
            continue;
        }
        const int place = n_before(rows, 0, n_rows, row);
        const float value = rows.value[row];
        bool goes = place < n_taken;
        if (in_runs) { /* whom a run is led by is looked up only where it matters */
            const float threshold = call.threshold[blockIdx.x];
            goes = place == 0 || decide_in_run(threshold, call.low, value, false) ||
                   (decide_in_run(threshold, call.low, value, true) &&
                    leads_run(call, rows, first, n_rows, row));
        }
        if (goes) {
            commit(call, first + row);
            atomicAdd(&n_committed, 1);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        say_committed(call, n_committed);
    }
}

static cudaError_t decode_ranked(const struct call_decode *call, cudaStream_t stream) {
    if (call->max_rows > DECODE_MAX_RANKED) {
        return cudaErrorInvalidValue;
    }
    const unsigned n = (unsigned)call->n_requests;
    const int threads = ranked_threads(call->max_rows);
    auto kernel = threads == RANKED_THREADS ? ranked_kernel<RANKED_THREADS>
                                            : ranked_kernel<RANKED_FEW_THREADS>;
    launch(kernel, n, (unsigned)threads, (size_t)ranked_bytes(call->max_rows), stream, *call);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_decode(const struct call_decode *call, cudaStream_t stream) {
    if (call->n_requests < 0 || call->max_rows < 0 || call->max_rows > 65536) {
        return cudaErrorInvalidValue;
    }
    const unsigned n = (unsigned)call->n_requests;
    if (n == 0) {
        return cudaSuccess;
    }
    const bool joint = call->rule == DECODE_JOINT;
    if (call->rule != DECODE_COUNT && call->rule != DECODE_THRESHOLD && !joint) {
        return decode_ranked(call, stream);
    }
    const struct block_shape shape = decode_shape_of(call->max_rows);
    auto kernel = shape.threads == 32 ? decode_kernel<32, 4, false>
                  : shape.each == 4   ? decode_kernel<1024, 4, false>
                                      : decode_kernel<1024, 64, false>;
    auto joint_kernel = shape.threads == 32 ? decode_kernel<32, 4, true>
                        : shape.each == 4   ? decode_kernel<1024, 4, true>
                                            : decode_kernel<1024, 64, true>;
    launch(joint ? joint_kernel : kernel, n, (unsigned)shape.threads, 0, stream, *call);
    return cudaGetLastError();
}

/* A thread a row. */
static __global__ void __launch_bounds__(PENALISE_THREADS)
    penalise_kernel(const struct call_penalise call) {
    const int i = blockIdx.x * PENALISE_THREADS + threadIdx.x, row = call.first_row + i;
    if (i >= call.n_rows || row == 0 || call.position[row] != call.position[row - 1] + 1) {
        return;
    }
    const int token = call.canvas[call.position[row - 1]] - call.first_token;
    if (token >= 0 && token < call.n_vocab) {
        const int64_t at = (int64_t)i * call.n_vocab + token;
        __nv_bfloat16 *logit = static_cast<__nv_bfloat16 *>(call.logits) + at;
        *logit = __float2bfloat16_rn(RULE_ADD(__bfloat162float(*logit), -call.penalty));
    }
}

extern "C" cudaError_t kernel_penalise(const struct call_penalise *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->first_row < 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        const unsigned n = (unsigned)(call->n_rows + PENALISE_THREADS - 1) / PENALISE_THREADS;
        penalise_kernel<<<n, PENALISE_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}
