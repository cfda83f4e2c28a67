/* Who goes where in a mixture of experts, and what comes back: routing, one warp a token, or by
 * blocks; a counting sort in one launch; the weighted sum of what experts made of a token. */
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

/* A group's key from the two largest of each lane's keys of it. */
static __device__ __forceinline__ uint32_t group_key_of(uint32_t first, uint32_t second, int size) {
    const uint32_t best = __reduce_max_sync(~0u, first);
    const int holder = __ffs(__ballot_sync(~0u, first == best)) - 1;
    second = __reduce_max_sync(~0u, (int)threadIdx.x % 32 == holder ? second : first);
    return key_of(size > 1 ? __fadd_rn(rank_of(best), rank_of(second)) : rank_of(best));
}

/* Closes the experts of the groups that do not stay. */
static __device__ __forceinline__ void close_groups(const struct call_moe_route &call,
                                                    uint32_t (&key)[EACH]) {
    const int lane = threadIdx.x % 32, size = call.n_experts / call.n_groups;
    uint32_t group_key[1] = {CLOSED};
    if (size == 32) { /* a lane has one of each group */
#pragma unroll
        for (int g = 0; g < EACH; g++) {
            const uint32_t of_group = group_key_of(key[g], CLOSED, size);
            group_key[0] = lane == g && g < call.n_groups ? of_group : group_key[0];
        }
    }
#pragma unroll 4 /* each is a chain of reductions */
    for (int g = 0; size != 32 && g < call.n_groups; g++) {
        uint32_t first = CLOSED, second = CLOSED;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int e = lane + 32 * i;
            const uint32_t of_group =
                e >= g * size && e < (g + 1) * size ? key[i] : (uint32_t)CLOSED;
            second = max(second, min(first, of_group));
            first = max(first, of_group);
        }
        const uint32_t of_group = group_key_of(first, second, size);
        group_key[0] = lane == g ? of_group : group_key[0];
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

/* A warp's token. admitted: by block, a bit of word i for expert 32 i + bit. */
template <bool SOFTMAX, bool BY_BLOCK>
static __device__ __forceinline__ void route_token(const struct call_moe_route &call, int64_t token,
                                                   const uint32_t *admitted) {
    const int lane = threadIdx.x % 32;
    const __nv_bfloat16 *logits =
        static_cast<const __nv_bfloat16 *>(call.logits) + token * call.logit_stride;
    float score[EACH];
    uint32_t key[EACH], left[EACH]; /* left: admitted, in whatever group, and not chosen yet */
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
        key[i] = e < call.n_experts && (!BY_BLOCK || admitted[i] >> lane & 1) ? key_of(rank)
                                                                              : (uint32_t)CLOSED;
        left[i] = key[i];
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
        uint32_t best;
        int expert = take_best(key, &best);
        if (BY_BLOCK && best == CLOSED) {
            expert = take_best(left, &best);
        }
        float chosen = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            chosen = expert / 32 == i ? score[i] : chosen;
            left[i] = expert == lane + 32 * i ? (uint32_t)CLOSED : left[i];
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

template <bool SOFTMAX>
static __global__ void __launch_bounds__(ROUTE_THREADS)
    route_kernel(const struct call_moe_route call) {
    dependencies_wait();
    dependents_launch();
    const int64_t token = (int64_t)blockIdx.x * (ROUTE_THREADS / 32) + threadIdx.x / 32;
    if (token < call.n_tokens) {
        route_token<SOFTMAX, false>(call, token, nullptr);
    }
}

/* ---- routing by blocks: a thread block each, a thread an expert ---- */

enum { BLOCK_WARPS = ROUTE_BLOCK_THREADS / 32 };
static_assert((int)ROUTE_BLOCK_THREADS == (int)MOE_MAX_EXPERTS, "a thread for every expert");

struct block_room {
    int first, end, keep;               /* of the request; experts that are admitted */
    uint32_t chosen[BLOCK_WARPS][EACH]; /* of a warp's token, as `admitted` */
    uint32_t admitted[EACH];
    float votes[MOE_MAX_EXPERTS], sorted[MOE_MAX_EXPERTS];
};

/* One past the last token of the block that `token` is the first of; `token` where it is not. */
static __device__ __forceinline__ int block_end(const struct call_moe_route &call, int token,
                                                struct block_room &room) {
    if (threadIdx.x == 0) {
        room.first = token;
        room.end = token + 1;
    }
    __syncthreads();
    for (int r = threadIdx.x; r < call.n_requests; r += ROUTE_BLOCK_THREADS) {
        const int first = call.start[r] - call.first_token;
        const int after = call.start[r + 1] - call.first_token;
        if (first <= token && token < after) {
            room.first = first;
            room.end = after;
        }
    }
    __syncthreads();
    const int size = call.block_tokens, block = call.position[token] / size;
    if (token > room.first && token > 0 && call.position[token - 1] / size == block) {
        return token;
    }
    int end = token;
    const int most = min(min(room.end, call.n_tokens), token + size);
    for (int base = token; base < most; base += ROUTE_BLOCK_THREADS) {
        const int t = base + threadIdx.x;
        end += __syncthreads_count(t < most && call.position[t] / size == block);
    }
    return end;
}

/* What the choice goes by: minus infinity for a NaN. */
static __device__ __forceinline__ float score_of(const struct call_moe_route &call, int64_t token,
                                                 int e) {
    const __nv_bfloat16 *logits = static_cast<const __nv_bfloat16 *>(call.logits);
    const float sigmoid = sigmoid_single(__bfloat162float(logits[token * call.logit_stride + e]));
    const float rank = __fadd_rn(sigmoid, call.bias ? call.bias[e] : 0.0f);
    return rank != rank ? -INFINITY : rank;
}

/* The A largest scores of a warp's token, as bits of `chosen`. */
static __device__ __forceinline__ void choose_alone(const struct call_moe_route &call, int token,
                                                    uint32_t *chosen) {
    const int lane = threadIdx.x % 32;
    uint32_t key[EACH], is_chosen[EACH], unused;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int e = lane + 32 * i;
        key[i] = e < call.n_experts ? key_of(score_of(call, token, e)) : (uint32_t)CLOSED;
        is_chosen[i] = 0;
    }
    for (int a = 0; a < call.n_active; a++) {
        const int expert = take_best(key, &unused);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            is_chosen[i] |= expert == lane + 32 * i;
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t bits = __ballot_sync(~0u, is_chosen[i]);
        if (lane == 0) {
            chosen[i] = bits;
        }
    }
}

/* What the tokens [token, end) give this thread's expert. */
static __device__ __forceinline__ float vote_of(const struct call_moe_route &call, int token,
                                                int end, struct block_room &room) {
    const int e = threadIdx.x, warp = e / 32, lane = e % 32;
    if (call.blocks == KERNEL_BLOCKS_LARGEST) {
        float vote = -INFINITY;
        for (int t = token; t < end && e < call.n_experts; t++) {
            vote = fmaxf(vote, score_of(call, t, e));
        }
        return vote;
    }
    float vote = 0;
    for (int first = token; first < end; first += BLOCK_WARPS) {
        if (first + warp < end) {
            choose_alone(call, first + warp, room.chosen[warp]);
        }
        __syncthreads();
        for (int i = 0; i < BLOCK_WARPS && first + i < end; i++) {
            if (room.chosen[i][warp] >> lane & 1) {
                const float score = score_of(call, first + i, e);
                vote = __fadd_rn(vote, score > -INFINITY ? score : 0.0f);
            }
        }
        __syncthreads();
    }
    return vote;
}

/* How many of the sorted votes are admitted: one thread, in their order. */
static __device__ int admitted_by_share(const struct call_moe_route &call, const float *sorted) {
    float sum = 0, part = 0;
#pragma unroll 16
    for (int i = 0; i < call.n_experts; i++) {
        sum = __fadd_rn(sum, sorted[i]);
    }
    const float most = __fmul_rn(call.block_share, sum);
    int n = 0;
    for (bool exceeds = false; n < call.n_experts && !exceeds; n++) {
        part = __fadd_rn(part, sorted[n]);
        exceeds = part > most;
    }
    return max(n, call.block_experts);
}

/* Sets room.admitted. */
static __device__ __forceinline__ void admit(const struct call_moe_route &call, float vote,
                                             struct block_room &room) {
    const int e = threadIdx.x, n = call.n_experts;
    room.votes[e] = vote;
    __syncthreads();
    int place = 0;
    for (int i = 0; i < n; i++) {
        const float other = room.votes[i];
        place += other > vote || (other == vote && i < e);
    }
    if (e < n) {
        room.sorted[place] = vote;
    }
    __syncthreads();
    if (e == 0) {
        room.keep = call.blocks == KERNEL_BLOCKS_SHARE ? admitted_by_share(call, room.sorted)
                                                       : call.block_experts;
    }
    __syncthreads();
    const uint32_t bits = __ballot_sync(~0u, e < n && place < room.keep);
    if (e % 32 == 0) {
        room.admitted[e / 32] = bits;
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(ROUTE_BLOCK_THREADS)
    block_route_kernel(const struct call_moe_route call) {
    __shared__ struct block_room room;
    dependencies_wait();
    dependents_launch();
    const int token = (int)blockIdx.x, end = block_end(call, token, room);
    if (end == token) {
        return;
    }
    admit(call, vote_of(call, token, end, room), room);
    for (int t = token + threadIdx.x / 32; t < end; t += BLOCK_WARPS) {
        route_token<false, true>(call, t, room.admitted);
    }
}

static bool is_bad_by_block(const struct call_moe_route *call) {
    return call->blocks != KERNEL_BLOCKS_NONE &&
           (call->router != KERNEL_ROUTER_SIGMOID || call->blocks > KERNEL_BLOCKS_SHARE ||
            call->n_requests < 0 || call->block_tokens < 1 ||
            call->block_experts < call->n_active || call->block_experts > call->n_experts);
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
                     call->n_experts / call->n_groups * call->n_groups_active < call->n_active)) ||
        is_bad_by_block(call)) {
        return cudaErrorInvalidValue;
    }
    if (call->n_tokens > 0 && call->blocks != KERNEL_BLOCKS_NONE) {
        launch(block_route_kernel, (unsigned)call->n_tokens, ROUTE_BLOCK_THREADS, 0, stream, *call);
    } else if (call->n_tokens > 0) {
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
    dependents_launch();
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
