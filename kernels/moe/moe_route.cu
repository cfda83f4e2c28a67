/* Who goes where in a mixture of experts, and what comes back: routing, one warp a token; a
 * counting sort in one launch; the weighted sum of what experts made of a token. */
#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"
#include "kernels/rules/exponential.h"

enum {
    EACH = MOE_MAX_EXPERTS / 32, /* experts a lane: lane, lane + 32, ... */
    CLOSED = 0,                  /* below the key of any rank */
};

/* ---- routing ---- */

/* Keys are ordered as ranks are, a NaN as minus infinity. */
static __device__ __forceinline__ uint32_t key_of(float rank) {
    rank = rank != rank ? -INFINITY : rank == 0 ? 0.0f : rank; /* no negative zero */
    const uint32_t bits = __float_as_uint(rank);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ float rank_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* The lowest number whose key is the largest; that key, closed afterwards. Numbers are
 * lane + 32 i. */
template <int N>
static __device__ __forceinline__ int take_best(uint32_t (&key)[N], uint32_t *best) {
    const int lane = threadIdx.x % 32;
    uint32_t mine = CLOSED;
#pragma unroll
    for (int i = 0; i < N; i++) {
        mine = max(mine, key[i]);
    }
    *best = __reduce_max_sync(~0u, mine);
    int number = INT32_MAX;
#pragma unroll
    for (int i = N - 1; i >= 0; i--) {
        number = key[i] == *best ? lane + 32 * i : number;
    }
    number = __reduce_min_sync(~0u, number);
#pragma unroll
    for (int i = 0; i < N; i++) {
        key[i] = number == lane + 32 * i ? (uint32_t)CLOSED : key[i];
    }
    return number;
}

/* Closes the experts of the groups that do not stay. */
static __device__ __forceinline__ void close_groups(const struct call_moe_route &call,
                                                    uint32_t (&key)[EACH]) {
    const int lane = threadIdx.x % 32, size = call.n_experts / call.n_groups;
    uint32_t group_key[1] = {CLOSED};
#pragma unroll 4 /* each is a chain of reductions */
    for (int g = 0; g < call.n_groups; g++) {
        uint32_t first = CLOSED, second = CLOSED; /* of the group, the lane's and then all lanes' */
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int e = lane + 32 * i;
            const uint32_t of_group =
                e >= g * size && e < (g + 1) * size ? key[i] : (uint32_t)CLOSED;
            second = max(second, min(first, of_group));
            first = max(first, of_group);
        }
        const uint32_t best = __reduce_max_sync(~0u, first);
        const int holder = __ffs(__ballot_sync(~0u, first == best)) - 1;
        second = __reduce_max_sync(~0u, lane == holder ? second : first);
        first = best;
        const float rank = size > 1 ? __fadd_rn(rank_of(first), rank_of(second)) : rank_of(first);
        group_key[0] = lane == g ? key_of(rank) : group_key[0];
    }
    uint32_t staying = 0, unused;
    for (int i = 0; i < call.n_groups_active; i++) {
        staying |= 1u << take_best(group_key, &unused);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int e = lane + 32 * i;
        key[i] = e < call.n_experts && staying >> e / size & 1 ? key[i] : (uint32_t)CLOSED;
    }
}

template <bool SOFTMAX>
static __global__ void __launch_bounds__(ROUTE_THREADS)
    route_kernel(const struct call_moe_route call) {
    dependencies_wait();
    dependents_launch();
    const int64_t token = (int64_t)blockIdx.x * (ROUTE_THREADS / 32) + threadIdx.x / 32;
    if (token >= call.n_tokens) {
        return;
    }
    const int lane = threadIdx.x % 32;
    const __nv_bfloat16 *logits =
        static_cast<const __nv_bfloat16 *>(call.logits) + token * call.logit_stride;
    float score[EACH];
    uint32_t key[EACH];
    float top = -INFINITY, all = SOFTMAX ? 0 : 1;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int e = lane + 32 * i;
        score[i] = e < call.n_experts ? __bfloat162float(logits[e]) : -INFINITY;
        top = fmaxf(top, score[i]);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int e = lane + 32 * i;
        float rank = score[i];
        if (!SOFTMAX) {
            score[i] = sigmoid_single(score[i]);
            rank = __fadd_rn(score[i], call.bias && e < call.n_experts ? call.bias[e] : 0.0f);
        }
        key[i] = e < call.n_experts ? key_of(rank) : (uint32_t)CLOSED;
    }
    if (SOFTMAX) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            score[i] = lane + 32 * i < call.n_experts ? expf(score[i] - top) : 0;
            all += score[i];
        }
        all = warp_sum(all);
    } else if (call.n_groups > 1) {
        close_groups(call, key);
    }
    int my_expert = 0;
    float my_score = 0, sum = SOFTMAX ? 0 : 1e-20f;
    for (int a = 0; a < call.n_active; a++) {
        uint32_t unused;
        const int expert = take_best(key, &unused);
        float chosen = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            chosen = expert / 32 == i ? score[i] : chosen;
        }
        chosen = __shfl_sync(~0u, chosen, expert % 32) / all;
        sum += chosen;
        my_expert = lane == a ? expert : my_expert;
        my_score = lane == a ? chosen : my_score;
    }
    if (lane < call.n_active) {
        call.expert[token * call.n_active + lane] = my_expert;
        call.weight[token * call.n_active + lane] =
            (call.normalised ? my_score / sum : my_score) * call.scale;
    }
}

extern "C" cudaError_t kernel_moe_route(const struct call_moe_route *call, cudaStream_t stream) {
    const bool grouped = call->router == KERNEL_ROUTER_SIGMOID;
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_experts < 1 ||
        call->n_experts > MOE_MAX_EXPERTS || call->n_active < 1 ||
        call->n_active > MOE_MAX_ACTIVE || call->n_active > call->n_experts ||
        (!grouped && call->router != KERNEL_ROUTER_SOFTMAX) ||
        (grouped && (call->n_groups < 1 || call->n_groups > MOE_MAX_GROUPS ||
                     call->n_experts % call->n_groups != 0 || call->n_groups_active < 1 ||
                     call->n_groups_active > call->n_groups ||
                     call->n_experts / call->n_groups * call->n_groups_active < call->n_active))) {
        return cudaErrorInvalidValue;
    }
    if (call->n_tokens > 0) {
        const int each = ROUTE_THREADS / 32;
        auto kernel = grouped ? route_kernel<false> : route_kernel<true>;
        launch(kernel, (unsigned)((call->n_tokens + each - 1) / each), ROUTE_THREADS, 0, stream,
               *call);
    }
    return cudaGetLastError();
}

/* ---- sorting ---- */

enum {
    SORT_PAIRS = SORT_WARPS * 32 * SORT_TURNS,
};
static_assert(SORT_FEW_WARPS * 32 >= MOE_MAX_EXPERTS, "a thread for every expert");

/* Pair p's expert among ours, or one that is none of them. */
static __device__ __forceinline__ unsigned sort_expert(const struct call_moe_sort &call, int p,
                                                       int end) {
    return p < end ? (unsigned)(call.expert[p] - call.first_expert) : ~0u;
}

/* Counts the pairs from first to end. */
template <int WARPS>
static __device__ __forceinline__ void sort_count(const struct call_moe_sort &call, int first,
                                                  int end, int *count) {
    for (int p = first + (int)threadIdx.x; p < end; p += 32 * WARPS * SORT_TURNS) {
        unsigned expert[SORT_TURNS];
#pragma unroll
        for (int i = 0; i < SORT_TURNS; i++) {
            expert[i] = sort_expert(call, p + i * (32 * WARPS), end);
        }
#pragma unroll
        for (int i = 0; i < SORT_TURNS; i++) {
            if (expert[i] < (unsigned)call.n_experts) {
                atomicAdd(&count[expert[i]], 1);
            }
        }
    }
}

/* A block places up to 32 WARPS SORT_TURNS pairs, its warps a stretch of them each, in turns of 32.
 * Each block counts all pairs by itself: that is less than waiting for one another. */
template <int WARPS>
static __global__ void __launch_bounds__(32 * WARPS) sort_kernel(const struct call_moe_sort call) {
    constexpr int THREADS = 32 * WARPS;
    dependencies_wait();
    __shared__ int before[MOE_MAX_EXPERTS], after[MOE_MAX_EXPERTS]; /* pairs of other blocks */
    __shared__ int next[WARPS][MOE_MAX_EXPERTS]; /* counts of a warp's, then their places */
    __shared__ int warp_total[MOE_MAX_EXPERTS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int n_pairs = call.n_tokens * call.n_active, first = blockIdx.x * THREADS * SORT_TURNS;
    const int end = min(first + THREADS * SORT_TURNS, n_pairs);
    const int n_turns = (end - first + THREADS - 1) / THREADS;
    const int from = first + warp * n_turns * 32 + lane;
    unsigned expert[SORT_TURNS];
#pragma unroll
    for (int i = 0; i < SORT_TURNS; i++) {
        expert[i] = i < n_turns ? sort_expert(call, from + i * 32, end) : ~0u;
    }
    for (int i = threadIdx.x; i < WARPS * MOE_MAX_EXPERTS; i += THREADS) {
        next[0][i] = 0;
    }
    if (threadIdx.x < MOE_MAX_EXPERTS) {
        before[threadIdx.x] = after[threadIdx.x] = 0;
    }
    __syncthreads();
    sort_count<WARPS>(call, 0, first, before);
    sort_count<WARPS>(call, end, n_pairs, after);
    int rank[SORT_TURNS]; /* among the warp's pairs of the expert */
#pragma unroll
    for (int i = 0; i < SORT_TURNS; i++) {
        if (i < n_turns) {
            const bool ours = expert[i] < (unsigned)call.n_experts;
            const unsigned same = __match_any_sync(~0u, ours ? expert[i] : ~0u);
            const int earlier = __popc(same & ((1u << lane) - 1));
            rank[i] = ours ? next[warp][expert[i]] + earlier : 0;
            __syncwarp();
            if (ours && earlier == 0) {
                next[warp][expert[i]] = rank[i] + __popc(same);
            }
            __syncwarp();
        }
    }
    __syncthreads();
    int own = 0, total = 0, sum = 0;
    if (threadIdx.x < MOE_MAX_EXPERTS) {
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            own += next[w][threadIdx.x];
        }
        total = before[threadIdx.x] + own + after[threadIdx.x];
        sum = total;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(~0u, sum, step);
            sum += lane >= step ? other : 0;
        }
        if (lane == 31) {
            warp_total[warp] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < MOE_MAX_EXPERTS) {
        for (int w = 0; w < warp; w++) {
            sum += warp_total[w];
        }
        if (blockIdx.x == 0 && (int)threadIdx.x < call.n_experts) {
            call.start[threadIdx.x + 1] = sum;
            if (threadIdx.x == 0) {
                call.start[0] = 0;
            }
        }
        int place = sum - total + before[threadIdx.x];
#pragma unroll 8
        for (int w = 0; w < WARPS; w++) {
            const int count = next[w][threadIdx.x];
            next[w][threadIdx.x] = place;
            place += count;
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SORT_TURNS; i++) {
        const int p = from + i * 32;
        if (i < n_turns && p < end) {
            const bool ours = expert[i] < (unsigned)call.n_experts;
            const int place = ours ? next[warp][expert[i]] + rank[i] : -1;
            call.place[p] = place;
            if (ours) {
                call.order[place] = p;
            }
        }
    }
    __threadfence(); /* moe_down's blocks read the starts when these have ended, not waiting */
}

extern "C" cudaError_t kernel_moe_sort(const struct call_moe_sort *call, cudaStream_t stream) {
    const int64_t n_pairs = (int64_t)call->n_tokens * call->n_active;
    if (call->n_tokens < 0 || call->n_active < 1 || call->n_active > MOE_MAX_ACTIVE ||
        call->n_experts < 1 || call->n_experts > MOE_MAX_EXPERTS || n_pairs > INT32_MAX / 2) {
        return cudaErrorInvalidValue;
    }
    /* Without pairs a block still writes the starts. */
    const int64_t n_blocks = n_pairs > 0 ? (n_pairs + SORT_PAIRS - 1) / SORT_PAIRS : 1;
    return sort_warps(n_pairs) == SORT_FEW_WARPS
               ? launch(sort_kernel<SORT_FEW_WARPS>, 1, 32 * SORT_FEW_WARPS, 0, stream, *call)
               : launch(sort_kernel<SORT_WARPS>, (unsigned)n_blocks, 32 * SORT_WARPS, 0, stream,
                        *call);
}

/* ---- combining ---- */

enum { COMBINE_THREADS = MOE_COMBINE_THREADS, COMBINE_AT_ONCE = 8 };

static __global__ void __launch_bounds__(COMBINE_THREADS)
    combine_kernel(const struct call_moe_combine call, int blocks_per_token) {
    dependencies_wait();
    dependents_launch();
    const int64_t token = blockIdx.x / blocks_per_token;
    const int channel = (blockIdx.x % blocks_per_token * COMBINE_THREADS + (int)threadIdx.x) * 8;
    if (channel >= call.n_channels) {
        return;
    }
    const int32_t *places = call.place + token * call.n_active;
    const float *weights = call.weight + token * call.n_active;
    const int64_t at = token * call.n_channels + channel;
    float sum[8] = {};
    if (call.add) {
        bf16x8_to_float(bf16x8_load(call.add, at), sum);
    }
    for (int first = 0; first < call.n_active; first += COMBINE_AT_ONCE) {
        struct bf16x8 x[COMBINE_AT_ONCE];
        float weight[COMBINE_AT_ONCE];
#pragma unroll
        for (int i = 0; i < COMBINE_AT_ONCE; i++) {
            const int place = first + i < call.n_active ? places[first + i] : -1;
            weight[i] = 0;
            if (place >= 0) {
                weight[i] = weights[first + i];
                x[i] = bf16x8_load(call.x, (int64_t)place * call.n_channels + channel);
            } else {
                x[i] = {};
            }
        }
#pragma unroll
        for (int i = 0; i < COMBINE_AT_ONCE; i++) {
            float part[8];
            bf16x8_to_float(x[i], part);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                sum[j] += weight[i] * part[j];
            }
        }
    }
    bf16x8_store(call.y, at, bf16x8_from_float(sum));
}

extern "C" cudaError_t kernel_moe_combine(const struct call_moe_combine *call,
                                          cudaStream_t stream) {
    const int per_block = COMBINE_THREADS * 8;
    if (call->dtype != KERNEL_BF16 || call->n_tokens < 0 || call->n_active < 1 ||
        call->n_active > MOE_MAX_ACTIVE || call->n_channels < 8 || call->n_channels % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    const int per_token = (call->n_channels + per_block - 1) / per_block;
    const int64_t n_blocks = (int64_t)call->n_tokens * per_token;
    if (n_blocks > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    if (n_blocks > 0) {
        launch(combine_kernel, (unsigned)n_blocks, COMBINE_THREADS, 0, stream, *call, per_token);
    }
    return cudaGetLastError();
}
