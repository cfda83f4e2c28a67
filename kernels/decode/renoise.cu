/* Canvases of random tokens: what their decoder reads off logits, and what the next step's input is
 * made of. */
#include <float.h>

#include "kernels/device.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launches.h"
#include "kernels/rules/draw_rule.h"
#include "kernels/rules/keyed.h"

static __global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    softcap_kernel(const struct call_softcap call, int64_t n) {
    dependencies_wait();
    dependents_launch();
    const int64_t at = ((int64_t)blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x) * 8;
    __nv_bfloat16 *logits = static_cast<__nv_bfloat16 *>(call.logits);
    if (at + 8 <= n) {
        float x[8];
        bf16x8_to_float(bf16x8_load(logits, at), x);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            x[j] = call.cap * tanhf(x[j] / call.cap);
        }
        bf16x8_store(logits, at, bf16x8_from_float(x));
    } else {
        for (int64_t i = at; i < n; i++) {
            logits[i] = __float2bfloat16(call.cap * tanhf(__bfloat162float(logits[i]) / call.cap));
        }
    }
}

static const float LOG2_E = 1.44269504088896341f;

/* What a thread, then a block, knows of a row: the most likely token and its logit, the drawn one
 * and its noisy logit, and sums of e^x and x e^x, with x logits less the largest over the
 * temperature. */
struct row_read {
    double drawn_at;
    float largest, sum, weighed;
    int token, drawn;
};

/* The sums relative to a number that is larger by `by` temperatures. */
static __device__ __forceinline__ void relate(struct row_read &r, float by) {
    const float shrink = exp2_fast(-by * LOG2_E);
    r.weighed = r.sum > 0 ? shrink * (r.weighed - by * r.sum) : r.weighed;
    r.sum = r.sum > 0 ? r.sum * shrink : r.sum;
}

template <class X>
static __device__ __forceinline__ bool is_ahead(X x, int token, X other, int of_other) {
    return x > other || (x == other && token < of_other);
}

static __device__ __forceinline__ struct row_read row_merge(struct row_read a, struct row_read b,
                                                            float inverse) {
    const bool behind = is_ahead(b.largest, b.token, a.largest, a.token);
    const bool draws = is_ahead(b.drawn_at, b.drawn, a.drawn_at, a.drawn);
    if (behind) {
        relate(a, (b.largest - a.largest) * inverse);
    } else if (b.largest < a.largest) {
        relate(b, (a.largest - b.largest) * inverse);
    }
    return {
        draws ? b.drawn_at : a.drawn_at, behind ? b.largest : a.largest, a.sum + b.sum,
        a.weighed + b.weighed,           behind ? b.token : a.token,     draws ? b.drawn : a.drawn};
}

static __device__ __forceinline__ struct row_read row_of_lane(struct row_read r, int lane) {
    return {__shfl_xor_sync(~0u, r.drawn_at, lane), __shfl_xor_sync(~0u, r.largest, lane),
            __shfl_xor_sync(~0u, r.sum, lane),      __shfl_xor_sync(~0u, r.weighed, lane),
            __shfl_xor_sync(~0u, r.token, lane),    __shfl_xor_sync(~0u, r.drawn, lane)};
}

/* Token i in the sums. */
static __device__ __forceinline__ void add_weight(struct row_read &r, float logit, float inverse) {
    const float below = (logit - r.largest) * inverse;
    const float e = logit == -INFINITY ? 0 : exp2_fast(below * LOG2_E);
    r.sum += e;
    r.weighed += e > 0 ? e * below : 0;
}

/* Token i, if its noise may lift it above `most`, which some token has reached: noise is -log(-log
 * u), and -log u is no less than 1 - u, so that few need the logarithms. */
static __device__ __forceinline__ void add_draw(struct row_read &r, float logit, int i,
                                                uint64_t of_others, double t, float inverse,
                                                uint64_t key, float most) {
    enum { ONE = 1 << 24 };
    const int rest =
        ONE - 2 * (int)(keyed_bits(key, of_others + i) >> 41) - 1; /* 1 - u, times it */
    const float reach = exp2_fast((logit * inverse - most) * LOG2_E);
    if ((float)rest > reach * (1.01f * ONE)) {
        return;
    }
    const double noisy = (double)logit / t + (double)keyed_noise(key, of_others + i);
    if (noisy > r.drawn_at) {
        r.drawn_at = noisy;
        r.drawn = i;
    }
}

/* What was found of a row; by one thread. */
static __device__ __forceinline__ void write_row(const struct call_renoise &call, int64_t row,
                                                 const struct row_read &r) {
    if (call.part) {
        call.part[row] = {r.drawn_at,
                          r.largest,
                          r.sum,
                          r.weighed,
                          call.first_token + r.token,
                          call.first_token + r.drawn};
    } else {
        call.token[row] = r.token;
        call.drawn[row] = r.drawn;
        call.entropy[row] = logf(r.sum) - r.weighed / r.sum;
    }
}

/* A block a row, EACH logits a load. */
template <int EACH>
static __global__ void __launch_bounds__(RENOISE_THREADS)
    renoise_kernel(const struct call_renoise call) {
    dependencies_wait();
    dependents_launch();
    __shared__ struct row_read of_warp[RENOISE_THREADS / 32];
    const int64_t row = blockIdx.x;
    const __nv_bfloat16 *logits =
        static_cast<const __nv_bfloat16 *>(call.logits) + row * call.n_vocab;
    const double t = (double)call.by[row].temperature;
    const float inverse = (float)(1 / t);
    const uint64_t key = call.key[row];
    const uint64_t of_others = (uint64_t)call.first_token; /* tokens of the ranks before */
    struct row_read mine = {-INFINITY, -INFINITY, 0, 0, 0, 0};
    float most = -INFINITY; /* of the warp */
    for (int base = 0; base < call.n_vocab; base += RENOISE_THREADS * EACH) {
        const int first = base + threadIdx.x * EACH;
        const double before = mine.drawn_at;
        if (first < call.n_vocab) {
            float x[EACH];
            if constexpr (EACH == 8) {
                bf16x8_to_float(bf16x8_load(logits, first), x);
            } else {
                x[0] = __bfloat162float(logits[first]);
            }
            const float largest = mine.largest;
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                mine.token = x[j] > mine.largest ? first + j : mine.token;
                mine.largest = x[j] > mine.largest ? x[j] : mine.largest;
            }
            if (mine.largest > largest) {
                relate(mine, (mine.largest - largest) * inverse);
            }
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                add_weight(mine, x[j], inverse);
                add_draw(mine, x[j], first + j, of_others, t, inverse, key, most);
            }
        }
        if (__any_sync(~0u, mine.drawn_at > before)) {
            most = __double2float_rd(mine.drawn_at);
#pragma unroll
            for (int other = 16; other > 0; other /= 2) {
                most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
            }
        }
    }
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
        mine = row_merge(mine, row_of_lane(mine, other), inverse);
    }
    if (lane == 0) {
        of_warp[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < RENOISE_THREADS / 32; warp++) {
            mine = row_merge(mine, of_warp[warp], inverse);
        }
        write_row(call, row, mine);
    }
}

/* A thread a row. */
static __global__ void __launch_bounds__(RANKS_COMBINE_THREADS)
    renoise_combine_kernel(const struct call_renoise_combine call) {
    const int row = blockIdx.x * RANKS_COMBINE_THREADS + threadIdx.x;
    if (row >= call.n_rows) {
        return;
    }
    const float inverse = 1 / call.by[row].temperature;
    struct row_read all = {-INFINITY, -INFINITY, 0, 0, 0, 0};
    for (int rank = 0; rank < call.n_ranks; rank++) {
        const struct renoise_part p = call.parts[(int64_t)rank * call.n_rows + row];
        const struct row_read r = {p.drawn_at,       (float)p.largest, (float)p.sum,
                                   (float)p.weighed, p.token,          p.drawn};
        all = rank == 0 ? r : row_merge(all, r, inverse);
    }
    call.token[row] = all.token;
    call.drawn[row] = all.drawn;
    call.entropy[row] = logf(all.sum) - all.weighed / all.sum;
    call.confidence[row] = isnan(call.confidence[row]) ? NAN : 1 / all.sum;
}

/* A block a row. */
static __global__ void __launch_bounds__(CONDITION_THREADS)
    condition_kernel(const struct call_condition call) {
    dependencies_wait();
    dependents_launch();
    __shared__ float of_warp[CONDITION_THREADS / 32];
    const int64_t n = call.n_channels, x_row = blockIdx.x * n, y_row = call.rows[blockIdx.x] * n;
    float squares = 0, s[8], x[8];
    for (int i = threadIdx.x * 8; i < n; i += CONDITION_THREADS * 8) {
        bf16x8_to_float(bf16x8_load(call.y, y_row + i), s);
        if (call.x) {
            bf16x8_to_float(bf16x8_load(call.x, x_row + i), x);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            squares += s[j] * s[j];
            s[j] += call.x ? x[j] : 0;
        }
        if (call.x) {
            bf16x8_store(call.y, y_row + i, bf16x8_from_float(s));
        }
    }
    if (call.x) {
        return;
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = squares;
    }
    __syncthreads();
    float all = 0;
#pragma unroll
    for (int i = 0; i < CONDITION_THREADS / 32; i++) {
        all += of_warp[i];
    }
    const float scale = rsqrtf(all / (float)n + call.epsilon);
    for (int i = threadIdx.x * 8; i < n; i += CONDITION_THREADS * 8) {
        bf16x8_to_float(bf16x8_load(call.y, y_row + i), s);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            s[j] *= scale;
        }
        bf16x8_store(call.y, y_row + i, bf16x8_from_float(s));
    }
}

extern "C" cudaError_t kernel_softcap(const struct call_softcap *call, cudaStream_t stream) {
    const int64_t n = (int64_t)call->n_rows * call->n_vocab;
    const int64_t n_blocks = (n + ELEMENTWISE_THREADS * 8 - 1) / (ELEMENTWISE_THREADS * 8);
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_vocab <= 0 || !(call->cap > 0) ||
        n_blocks > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    if (n > 0) {
        launch(softcap_kernel, (unsigned)n_blocks, ELEMENTWISE_THREADS, 0, stream, *call, n);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_renoise(const struct call_renoise *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_vocab <= 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        launch(call->n_vocab % 8 == 0 ? renoise_kernel<8> : renoise_kernel<1>,
               (unsigned)call->n_rows, RENOISE_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_renoise_combine(const struct call_renoise_combine *call,
                                              cudaStream_t stream) {
    if (call->n_rows < 0 || call->n_ranks < 1 || call->n_ranks > CALL_MAX_RANKS) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        renoise_combine_kernel<<<(unsigned)((call->n_rows + RANKS_COMBINE_THREADS - 1) /
                                            RANKS_COMBINE_THREADS),
                                 RANKS_COMBINE_THREADS, 0, stream>>>(*call);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_condition(const struct call_condition *call, cudaStream_t stream) {
    if (call->dtype != KERNEL_BF16 || call->n_rows < 0 || call->n_channels <= 0 ||
        call->n_channels % 8 != 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_rows > 0) {
        launch(condition_kernel, (unsigned)call->n_rows, CONDITION_THREADS, 0, stream, *call);
    }
    return cudaGetLastError();
}
