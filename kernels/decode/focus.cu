/* Which tokens go on: a block a request chooses, then one block lists. The arithmetic is its
 * twin's, operation by operation, so that the choice is the same. And what goes with it: the
 * tokens of a block that a step processes, gathered rows, the running mean. */
#include "kernels/device.cuh"
#include "kernels/decode/focus.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"

enum { CHOOSE_THREADS = FOCUS_MAX_BLOCK, LIST_THREADS = 1024, COMPACT_THREADS = 128 };

/* ---- the choice ---- */

/* Sets the flags of a request, moves its frontier, and leaves at each token's own place, in
 * kept_extent, what its extent becomes and, in kept_rows, whether it has a logit row if kept. */
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_kernel(const struct call_focus_select call) {
    dependencies_wait();
    dependents_launch();
    __shared__ int list[FOCUS_MAX_BLOCK], counts[CHOOSE_THREADS / 32], position[FOCUS_MAX_BLOCK];
    __shared__ float delta[FOCUS_MAX_BLOCK];
    __shared__ bool taken[FOCUS_MAX_BLOCK], closed[FOCUS_MAX_BLOCK];
    __shared__ int last_taken, last;
    const int r = blockIdx.x, me = threadIdx.x;
    const int first = call.start[r], n_tokens = call.start[r + 1] - first;
    const int frontier = call.frontier[r];
    if (me == 0) {
        last_taken = last = -1;
    }
    const int n = list_masked<CHOOSE_THREADS>(call.masked, first, n_tokens, list, counts);
    const float most = ceilf(__fmul_rn(fmaxf(call.mean[r], 1.0f), call.alpha));
    const int k = most < (float)n ? most > 1 ? (int)most : 1 : n;
    const bool evicts = n <= FOCUS_MAX_BLOCK && n > k;
    if (evicts && me < n) {
        delta[me] = call.after[list[me]] - call.before[list[me]];
        position[me] = call.positions[list[me]];
    }
    __syncthreads();
    bool mine = false;
    if (evicts) {
        double mean = 0, variance = 0;
        for (int i = 0; i < n; i++) {
            mean = __dadd_rn(mean, (double)delta[i]);
        }
        mean = __ddiv_rn(mean, (double)n);
        for (int i = 0; i < n; i++) {
            const double off = __dsub_rn((double)delta[i], mean);
            variance = __dadd_rn(variance, __dmul_rn(off, off));
        }
        const double deviation = __dsqrt_rn(__ddiv_rn(variance, (double)n));
        const double threshold = call.above_deviation ? deviation : __dadd_rn(mean, deviation);
        mine = me < n && (double)delta[me] >= threshold;
        if (__syncthreads_count(mine) < k && me < n) {
            int n_before = 0;
            for (int i = 0; i < n; i++) {
                n_before += delta[i] > delta[me] || (delta[i] == delta[me] && i < me);
            }
            mine = n_before < k;
        }
        if (me < n) {
            taken[me] = mine;
        }
        __syncthreads();
        if (me + 1 < n && position[me + 1] - position[me] == 1) {
            mine = mine || taken[me + 1];
        }
        if (mine) {
            atomicMax(&last_taken, me);
        }
        __syncthreads();
        if (me < n) {
            closed[me] = mine || (me < last_taken && position[me] > frontier);
        }
        __syncthreads();
    }
    int furthest = -1;
    for (int i = me; i < n_tokens; i += CHOOSE_THREADS) {
        const int t = first + i;
        if (!evicts || !call.masked[t]) {
            call.keep[t] = 1;
            furthest = max(furthest, call.positions[t]);
        }
    }
    if (evicts && me < n) {
        call.keep[list[me]] = closed[me];
        furthest = closed[me] ? max(furthest, position[me]) : furthest;
    }
    atomicMax(&last, furthest);
    __syncthreads();
    if (me == 0) {
        call.frontier[r] = max(frontier, last);
    }
    const int logits = call.logits ? call.logits[r] : 0;
    const bool all = logits & (n > 0 ? KERNEL_LOGITS_DENOISING : KERNEL_LOGITS_COMMIT);
    for (int i = me; i < n_tokens; i += CHOOSE_THREADS) {
        const int extent = call.extent[first + i];
        call.kept_extent[first + i] = n > 0 ? min(extent, last + 1) : extent;
        call.kept_rows[first + i] = all || call.masked[first + i];
    }
}

/* How many of the flags are set in the threads before, for two flags at once, and in all: counted
 * by a whole block of LIST_THREADS. */
static __device__ __forceinline__ void count_before(bool a, bool b, int &a_before, int &b_before,
                                                    int &a_all, int &b_all, int2 *counts) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned as = __ballot_sync(~0u, a), bs = __ballot_sync(~0u, b);
    const unsigned lower = (1u << lane) - 1;
    if (lane == 0) {
        counts[warp] = make_int2(__popc(as), __popc(bs));
    }
    __syncthreads();
    const int2 its = counts[lane];
    a_before = __reduce_add_sync(~0u, lane < warp ? its.x : 0) + __popc(as & lower);
    b_before = __reduce_add_sync(~0u, lane < warp ? its.y : 0) + __popc(bs & lower);
    a_all = __reduce_add_sync(~0u, its.x);
    b_all = __reduce_add_sync(~0u, its.y);
}

static __global__ void __launch_bounds__(LIST_THREADS)
    list_kernel(const struct call_focus_select call) {
    dependencies_wait();
    dependents_launch();
    __shared__ int2 counts[LIST_THREADS / 32], before[LIST_THREADS];
    const int me = threadIdx.x, n_tokens = call.start[call.n_requests];
    int n_kept = 0, n_logits = 0;
    for (int base = 0; base < n_tokens; base += LIST_THREADS) {
        const int t = base + me;
        /* Lists never run ahead of the tokens: what stands in front of them may be read. */
        const bool keep = t < n_tokens && call.keep[t], logit = keep && call.kept_rows[t];
        const int extent = keep ? call.kept_extent[t] : 0;
        int kept_before, logits_before, kept_all, logits_all;
        count_before(keep, logit, kept_before, logits_before, kept_all, logits_all, counts);
        const int row = n_kept + kept_before, logit_row = n_logits + logits_before;
        before[me] = make_int2(row, logit_row);
        __syncthreads();
        if (keep) {
            call.kept[row] = t;
            call.kept_positions[row] = call.positions[t];
            call.kept_rows[row] = call.kv_rows[t];
            call.kept_extent[row] = extent;
        }
        if (logit) {
            call.logit_rows[logit_row] = row;
            call.targets[logit_row] = call.at[t] - (call.masked[t] ? 0 : call.positions[t]);
        }
        for (int r = me; r < call.n_requests; r += LIST_THREADS) {
            const int at = call.start[r] - base;
            if (at >= 0 && at < LIST_THREADS && call.start[r] < n_tokens) {
                call.kept_start[r] = before[at].x;
                call.first_row[r] = before[at].y;
            }
        }
        n_kept += kept_all;
        n_logits += logits_all;
        __syncthreads();
    }
    for (int r = me; r <= call.n_requests; r += LIST_THREADS) {
        if (call.start[r] >= n_tokens) { /* the end, and requests without tokens before it */
            call.kept_start[r] = n_kept;
            call.first_row[r] = n_logits;
        }
    }
    __syncthreads();
    for (int r = me; r < call.n_requests; r += LIST_THREADS) {
        call.n_rows[r] = call.first_row[r + 1] - call.first_row[r];
    }
    for (int i = n_kept + me; i < call.n_tokens; i += LIST_THREADS) {
        call.kept[i] = 0;
        call.kept_positions[i] = 0;
        call.kept_rows[i] = call.spare_row;
        call.kept_extent[i] = 1;
    }
    for (int i = n_logits + me; i < call.n_tokens; i += LIST_THREADS) {
        call.logit_rows[i] = 0;
        call.targets[i] = 0;
    }
}

extern "C" cudaError_t kernel_focus_select(const struct call_focus_select *call,
                                           cudaStream_t stream) {
    if (call->n_requests < 0 || call->n_tokens < 0 || call->max_masked < 0 ||
        call->max_masked > FOCUS_MAX_BLOCK) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests > 0) {
        launch(choose_kernel, (unsigned)call->n_requests, CHOOSE_THREADS, 0, stream, *call);
        const cudaError_t status = cudaGetLastError();
        if (status != cudaSuccess) {
            return status;
        }
        launch(list_kernel, 1, LIST_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}

/* ---- the tokens a step processes ---- */

static __device__ __forceinline__ bool is_decoded(const struct call_block_list &call,
                                                  int64_t request, const int32_t *block, int i) {
    return call.decoded ? call.decoded[request * call.max_block + i] != 0
                        : block[i] != call.mask_token;
}

/* A warp a request: first they count, then, when it is known where each one's list begins, they
 * write. */
static __global__ void __launch_bounds__(LIST_THREADS)
    block_list_kernel(const struct call_block_list call, int page_shift) {
    dependencies_wait();
    dependents_launch();
    __shared__ int counts[LIST_THREADS], sums[LIST_THREADS / 32];
    constexpr int WARPS = LIST_THREADS / 32;
    const int me = threadIdx.x, warp = me / 32, lane = me % 32;
    int n_listed = 0;
    for (int base = 0; base < call.n_requests; base += LIST_THREADS) {
        const int n_requests = min(LIST_THREADS, call.n_requests - base);
        for (int r = warp; r < n_requests; r += WARPS) {
            const uint8_t *final = call.final + (int64_t)(base + r) * call.max_block;
            const int n = call.block_tokens[base + r];
            int n_open = 0;
            for (int i = lane; i < n; i += 32) {
                n_open += !final[i];
            }
            n_open = __reduce_add_sync(~0u, n_open);
            if (lane == 0) {
                counts[r] = n_open;
            }
        }
        __syncthreads();
        /* counts[r] becomes where request base + r begins. */
        const int mine = me < n_requests ? counts[me] : 0;
        int upto = mine;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int lower = __shfl_up_sync(~0u, upto, step);
            upto += lane >= step ? lower : 0;
        }
        if (lane == 31) {
            sums[warp] = upto;
        }
        __syncthreads();
        const int its = sums[lane];
        const int begin = n_listed + upto - mine + __reduce_add_sync(~0u, lane < warp ? its : 0);
        n_listed += __reduce_add_sync(~0u, its);
        if (me < n_requests) {
            counts[me] = begin;
            call.start[base + me] = begin;
        }
        __syncthreads();
        for (int r = warp; r < n_requests; r += WARPS) {
            const int64_t request = base + r, canvas_start = call.canvas_start[request];
            const int first = call.block_start[request], n = call.block_tokens[request];
            uint8_t *final = call.final + request * call.max_block;
            const int32_t *block = call.canvas + canvas_start + first;
            const int32_t *pages = call.pages + request * call.max_pages;
            int at = counts[r], last = 0;
            for (int i0 = 0; i0 < n; i0 += 32) {
                const int i = i0 + lane;
                const bool open = i < n && !final[i];
                const unsigned all = __ballot_sync(~0u, open);
                if (open) {
                    const int to = at + __popc(all & ((1u << lane) - 1)), position = first + i;
                    const bool decoded = is_decoded(call, request, block, i);
                    const bool followed = i + 1 == n || is_decoded(call, request, block, i + 1);
                    call.positions[to] = position;
                    call.kv_rows[to] = (pages[position >> page_shift] << page_shift) +
                                       (position & ((1 << page_shift) - 1));
                    call.extent[to] = first + n;
                    call.at[to] = canvas_start + position;
                    call.masked[to] = !decoded;
                    final[i] = call.cache != KERNEL_BLOCK_WHOLE && decoded &&
                               (followed || call.cache == KERNEL_BLOCK_DELAYED);
                }
                at += __popc(all);
                last = all ? first + i0 + 32 - __clz(all) : last; /* one past the last listed */
            }
            if (call.ends_at_last) {
                __syncwarp();
                for (int t = counts[r] + lane; t < at; t += 32) {
                    call.extent[t] = last;
                }
            }
        }
        __syncthreads();
    }
    if (me == 0) {
        call.start[call.n_requests] = n_listed;
    }
    for (int t = n_listed + me; t < call.n_tokens; t += LIST_THREADS) {
        call.positions[t] = 0;
        call.kv_rows[t] = call.spare_row;
        call.extent[t] = 1;
        call.at[t] = 0;
        call.masked[t] = 0;
    }
}

extern "C" cudaError_t kernel_block_list(const struct call_block_list *call, cudaStream_t stream) {
    const int rows = call->page_rows;
    if (call->n_requests < 0 || call->n_tokens < 0 || call->max_block < 0 ||
        call->max_block > FOCUS_MAX_BLOCK || rows < 1 || (rows & (rows - 1)) != 0) {
        return cudaErrorInvalidValue;
    }
    int page_shift = 0;
    while (1 << page_shift < rows) {
        page_shift++;
    }
    if (call->n_requests > 0) {
        launch(block_list_kernel, 1, LIST_THREADS, 0, stream, *call, page_shift);
    }
    return cudaGetLastError();
}

/* ---- what goes with it ---- */

static __global__ void __launch_bounds__(COMPACT_THREADS)
    compact_kernel(const struct call_compact call) {
    dependencies_wait();
    dependents_launch();
    const int64_t i = blockIdx.x;
    const int a = blockIdx.y;
    if (call.n_rows && i >= *call.n_rows) {
        return;
    }
    const int64_t from = call.rows[i] * call.from_stride[a], to = i * call.to_stride[a];
#pragma unroll 4
    for (int c = threadIdx.x * 8; c < call.width[a]; c += COMPACT_THREADS * 8) {
        bf16x8_store(call.to[a], to + c, bf16x8_load(call.from[a], from + c));
    }
}

extern "C" cudaError_t kernel_compact(const struct call_compact *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_arrays < 0 || call->n_arrays > COMPACT_ARRAYS ||
        call->max_rows < 0) {
        return cudaErrorInvalidValue;
    }
    for (int a = 0; a < call->n_arrays; a++) {
        if (call->width[a] < 0 || call->width[a] % 8 != 0 || call->from_stride[a] % 8 != 0 ||
            call->to_stride[a] % 8 != 0) {
            return cudaErrorInvalidValue;
        }
    }
    if (call->max_rows > 0 && call->n_arrays > 0) {
        launch(compact_kernel, dim3((unsigned)call->max_rows, (unsigned)call->n_arrays),
               COMPACT_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}

static __global__ void bucket_kernel(const struct call_bucket call) {
    dependencies_wait();
    dependents_launch();
    const int n = *call.n;
    int place = 0;
    while (place + 1 < call.n_sizes && call.sizes[place] < n) {
        place++;
    }
    *call.place = n > 0 ? place : -1;
}

extern "C" cudaError_t kernel_bucket(const struct call_bucket *call, cudaStream_t stream) {
    if (call->n_sizes < 1 || call->n_sizes > BUCKET_SIZES) {
        return cudaErrorInvalidValue;
    }
    launch(bucket_kernel, 1, 1, 0, stream, *call);
    return cudaGetLastError();
}

/* A block a request, which alone writes to its places in the log. */
static __global__ void __launch_bounds__(COMPACT_THREADS)
    block_log_kernel(const struct call_block_log call) {
    dependencies_wait();
    dependents_launch();
    const int r = blockIdx.x, me = threadIdx.x, begin = call.block_start[r];
    const int64_t step = call.step ? *call.step : 0, at = (int64_t)r * call.max_block;
    uint8_t *log = call.log + step * call.n_requests * call.max_block + at;
    for (int i = me; i < call.max_block; i += COMPACT_THREADS) {
        log[i] = 0;
    }
    __syncthreads();
    for (int t = call.start[r] + me; t < call.start[r + 1]; t += COMPACT_THREADS) {
        log[call.positions[t] - begin] = KERNEL_LOG_RAN | (call.keep[t] ? KERNEL_LOG_KEPT : 0);
    }
    __syncthreads();
    const int first = call.first_row[r];
    for (int row = first + me; row < first + call.n_rows[r]; row += COMPACT_THREADS) {
        if (call.committed[row]) {
            const int i = call.kept_positions[call.logit_rows[row]] - begin;
            log[i] |= KERNEL_LOG_COMMITTED;
            call.decoded[at + i] = 1;
        }
    }
}

extern "C" cudaError_t kernel_block_log(const struct call_block_log *call, cudaStream_t stream) {
    if (call->n_requests < 0 || call->max_block < 0 || call->max_block > FOCUS_MAX_BLOCK) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests > 0) {
        launch(block_log_kernel, (unsigned)call->n_requests, COMPACT_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}

static __global__ void __launch_bounds__(LIST_THREADS)
    block_next_kernel(const struct call_block_next call) {
    dependencies_wait();
    dependents_launch();
    const int me = threadIdx.x, step = *call.step + 1, most = *call.most;
    bool over = false;
    for (int r = me; r < call.n_requests; r += LIST_THREADS) {
        const int n = call.block_tokens[r];
        const int64_t at = (int64_t)r * call.max_block;
        const uint8_t *flags = (call.ends_early[r] ? call.decoded : call.final) + at;
        bool all = n > 0;
        for (int i = 0; i < n; i++) {
            all = all && flags[i];
        }
        over = over || all;
        if (step < most) {
            call.take[r] = call.takes[(int64_t)step * call.n_requests + r];
        }
    }
    over = __syncthreads_or(over);
    if (me == 0) {
        *call.step = step;
        *call.again = step < most && !over;
    }
}

extern "C" cudaError_t kernel_block_next(const struct call_block_next *call, cudaStream_t stream) {
    if (call->n_requests < 0 || call->max_block < 0 || call->max_block > FOCUS_MAX_BLOCK) {
        return cudaErrorInvalidValue;
    }
    launch(block_next_kernel, 1, LIST_THREADS, 0, stream, *call);
    return cudaGetLastError();
}

static __global__ void __launch_bounds__(COMPACT_THREADS)
    decode_mean_kernel(const struct call_decode_mean call) {
    dependencies_wait();
    dependents_launch();
    const int r = blockIdx.x * COMPACT_THREADS + threadIdx.x;
    if (r >= call.n_requests) {
        return;
    }
    const int n = call.n_decoded[r];
    if (call.restart && call.restart[r]) {
        call.sum[r] = call.steps[r] = 0;
        call.mean[r] = 1;
    } else if (n > 0) {
        const double before = call.steps[r] > 0 ? (double)call.mean[r] : 1;
        const int sum = call.sum[r] + n, steps = call.steps[r] + 1;
        call.sum[r] = sum;
        call.steps[r] = steps;
        call.mean[r] = call.weight > 0
                           ? (float)__dadd_rn(before, __dmul_rn((double)call.weight,
                                                                __dsub_rn((double)n, before)))
                           : (float)__ddiv_rn((double)sum, (double)steps);
    }
}

extern "C" cudaError_t kernel_decode_mean(const struct call_decode_mean *call,
                                          cudaStream_t stream) {
    if (call->n_requests < 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_requests > 0) {
        const unsigned n_blocks =
            (unsigned)(call->n_requests + COMPACT_THREADS - 1) / COMPACT_THREADS;
        launch(decode_mean_kernel, n_blocks, COMPACT_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}
