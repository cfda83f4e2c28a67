/* Credit: one warp a row, over the few tokens that have earned any at its position. Logits of other
 * tokens are not read: what their exponentials add up to is in the confidence. */
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/rules/credit.h"

enum { WARPS = CREDIT_THREADS / 32 };

static __device__ __forceinline__ double logit_at(const struct call_credit &call, int64_t i) {
    return (double)__bfloat162float(static_cast<const __nv_bfloat16 *>(call.logits)[i]);
}

/* The entry of `token` among n, or -1; every lane has it. */
static __device__ __forceinline__ int find_entry(const int32_t *tokens, int n, int token) {
    for (int base = 0; base < n; base += 32) {
        const int e = base + threadIdx.x % 32;
        const uint32_t found = __ballot_sync(~0u, e < n && tokens[e] == token);
        if (found) {
            return base + __ffs(found) - 1;
        }
    }
    return -1;
}

/* The entry that has earned least, the first of equals. */
static __device__ __forceinline__ int least_entry(const float *earned, int n) {
    float least = INFINITY;
    int entry = INT32_MAX;
    for (int e = threadIdx.x % 32; e < n; e += 32) {
        if (earned[e] < least) {
            least = earned[e];
            entry = e;
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const float its = __shfl_xor_sync(~0u, least, step);
        const int at = __shfl_xor_sync(~0u, entry, step);
        if (its < least || (its == least && at < entry)) {
            least = its;
            entry = at;
        }
    }
    return entry;
}

/* The row's list, or NULL where nothing is earned. */
static __device__ __forceinline__ int32_t *list_of(const struct call_credit &call, int row) {
    const float confidence = call.confidence[row];
    const bool is_counted = call.lists[row] >= 0 && confidence == confidence &&
                            (!call.canvas || call.canvas[call.position[row]] == call.mask_token);
    return is_counted ? call.state + (int64_t)call.lists[row] * (2 * call.n_slots + 2) : nullptr;
}

/* What a pass earns, by a warp; how many entries the list has then. */
static __device__ __forceinline__ int earn(const struct call_credit &call, int row, int32_t *list) {
    const int lane = threadIdx.x % 32;
    int32_t *tokens = list + 2;
    float *earned = reinterpret_cast<float *>(tokens + call.n_slots);
    const int was = list[0], token = call.token[row];
    for (int e = lane; e < was; e += 32) {
        earned[e] = credit_faded(earned[e], call.beta);
    }
    __syncwarp();
    int n = was, mine = find_entry(tokens, was, token);
    if (mine < 0) {
        mine = was < call.n_slots ? n++ : least_entry(earned, was);
        __syncwarp();
        if (lane == 0) {
            tokens[mine] = token;
            earned[mine] = 0;
            list[0] = n;
        }
        __syncwarp();
    }
    if (lane == 0) {
        earned[mine] = credit_earned(earned[mine], call.confidence[row], call.gamma);
    }
    __syncwarp();
    return n;
}

/* The logit of an entry's token; 0 where it is another rank's. */
static __device__ __forceinline__ double entry_logit(const struct call_credit &call, int64_t row,
                                                     const int32_t *tokens, int e) {
    if (call.part == KERNEL_CREDIT_DECIDE) {
        return (double)call.entries[row * call.n_slots + e];
    }
    const int token = tokens[e] - call.first_token;
    return token >= 0 && token < call.n_vocab ? logit_at(call, row * call.n_vocab + token) : 0;
}

static __device__ __forceinline__ void decide(const struct call_credit &call, int row,
                                              const int32_t *list, int n) {
    const int lane = threadIdx.x % 32;
    const int32_t *tokens = list + 2;
    const float *earned = reinterpret_cast<const float *>(tokens + call.n_slots);
    const double p = (double)call.confidence[row];
    const double top = entry_logit(call, row, tokens, find_entry(tokens, n, call.token[row]));
    double added = 0, best = -INFINITY;
    int32_t chosen = INT32_MAX;
    for (int e = lane; e < n; e += 32) {
        const double x = entry_logit(call, row, tokens, e) - top;
        const double raised = x + credit_bonus(earned[e], call.alpha);
        added += exp(raised) - exp(x);
        if (raised > best || (raised == best && tokens[e] < chosen)) {
            best = raised;
            chosen = tokens[e];
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        added += __shfl_xor_sync(~0u, added, step);
        const double its = __shfl_xor_sync(~0u, best, step);
        const int32_t at = __shfl_xor_sync(~0u, chosen, step);
        if (its > best || (its == best && at < chosen)) {
            best = its;
            chosen = at;
        }
    }
    if (lane == 0) {
        call.token[row] = chosen;
        call.confidence[row] = (float)(exp(best) / (1 / p + added));
    }
}

static __global__ void __launch_bounds__(CREDIT_THREADS)
    credit_kernel(const struct call_credit call) {
    dependencies_wait();
    dependents_launch();
    const int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= call.n_rows) {
        return;
    }
    int32_t *list = list_of(call, row);
    int n = 0;
    if (list) {
        n = call.part == KERNEL_CREDIT_DECIDE ? list[0] : earn(call, row, list);
    }
    for (int e = lane; call.part == KERNEL_CREDIT_EARN && e < call.n_slots; e += 32) {
        call.entries[(int64_t)row * call.n_slots + e] =
            e < n ? (float)entry_logit(call, row, list + 2, e) : 0;
    }
    if (list && call.part != KERNEL_CREDIT_EARN) {
        decide(call, row, list, n);
    }
}

extern "C" cudaError_t kernel_credit(const struct call_credit *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_vocab <= 0 ||
        call->n_slots <= 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        launch(credit_kernel, (unsigned)(call->n_rows + WARPS - 1) / WARPS, CREDIT_THREADS, 0,
               stream, *call);
    }
    return cudaGetLastError();
}
