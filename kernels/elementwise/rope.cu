/* From the QKV product to attention's inputs: bias, QK norm, rotation, KV write, in one pass.
 * D / 16 of ROPE_LANES neighbouring threads hold a head, 16 elements each: of the R that rotate
 * thread i has 8 i .. 8 i + 7 of either half, so a rotation needs no exchange; of the channels
 * after R each thread has neighbours. */
#include "kernels/fp8.cuh"
#include "kernels/heads.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/launch_shapes.h"

/* odd: at a multiple of 4 bytes, else of 8. */
static __device__ __forceinline__ void store_codes(uint8_t *to, uint2 codes, bool odd) {
    if (odd) {
        reinterpret_cast<uint32_t *>(to)[0] = codes.x;
        reinterpret_cast<uint32_t *>(to)[1] = codes.y;
    } else {
        *reinterpret_cast<uint2 *>(to) = codes;
    }
}

/* A lane's two eights of numbers of a cached head, which starts a row of fp8 at `row`. */
template <int HEAD_SIZE>
static __device__ __forceinline__ void store_fp8(void *row, struct fp8_place place,
                                                 const float (&a)[8], const float (&b)[8],
                                                 int at_low, int at_high, bool holds, bool odd) {
    constexpr int LANES = ROPE_LANES(HEAD_SIZE);
    constexpr int GROUPS = (HEAD_SIZE + FP8_HEAD_GROUP - 1) / FP8_HEAD_GROUP;
    const float low = most_of_8(a), high = most_of_8(b);
    float scale[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const float of_low = holds && at_low / FP8_HEAD_GROUP == g ? low : 0;
        const float of_high = holds && at_high / FP8_HEAD_GROUP == g ? high : 0;
        scale[g] = e4m3_scale(lanes_max<LANES>(fmaxf(of_low, of_high)));
    }
    if (row && holds) {
        uint8_t *to = static_cast<uint8_t *>(row);
        float *scales = reinterpret_cast<float *>(to + place.scales);
        store_codes(to + place.codes + at_low,
                    e4m3x8_from_float(a, GROUPS > 1 && at_low >= FP8_HEAD_GROUP ? scale[GROUPS - 1]
                                                                                : scale[0]),
                    odd);
        store_codes(to + place.codes + at_high,
                    e4m3x8_from_float(b, GROUPS > 1 && at_high >= FP8_HEAD_GROUP ? scale[GROUPS - 1]
                                                                                 : scale[0]),
                    odd);
        if (threadIdx.x % LANES == 0) {
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                scales[g] = scale[g];
            }
        }
    }
}

template <int HEAD_SIZE, bool PARTIAL, bool FP8>
static __global__ void __launch_bounds__(ROPE_MOST_THREADS,
                                         PARTIAL || FP8 || HEAD_SIZE == 96 ? 3 : 4)
    rope_kernel(const struct call_rope call, int n_taken) {
    dependencies_wait();
    dependents_launch();
    constexpr int LANES = ROPE_LANES(HEAD_SIZE);
    constexpr bool ALL_HOLD = LANES * 16 == HEAD_SIZE;
    const int n_groups = blockDim.x / LANES;
    const int64_t token = blockIdx.x;
    const int lane = threadIdx.x % LANES;
    const bool holds = ALL_HOLD || lane * 16 < HEAD_SIZE;
    const int rotary = PARTIAL ? call.rotary_size : HEAD_SIZE;
    const bool turns = ALL_HOLD && !PARTIAL ? true : lane * 16 < rotary;
    const int at_low = turns ? lane * 8 : lane * 16;
    const int at_high = at_low + (turns ? rotary / 2 : 8);
    const int n_heads = call.n_heads + 2 * call.n_kv_heads;
    const int first = blockIdx.y * n_groups * ROPE_HEADS + threadIdx.x / LANES;
    struct bf16x8 low[ROPE_HEADS], high[ROPE_HEADS];
    if (!ALL_HOLD) {
#pragma unroll
        for (int i = 0; i < ROPE_HEADS; i++) {
            low[i] = high[i] = {};
        }
    }
#pragma unroll
    for (int i = 0; i < ROPE_HEADS; i++) {
        int head = first + i * n_groups;
        if (head < n_taken && holds) {
            const bool is_key =
                !FP8 && call.values_are_keys && head >= call.n_heads + call.n_kv_heads;
            const int from = is_key ? head - call.n_kv_heads : head;
            const int64_t at = (token * n_heads + from) * HEAD_SIZE;
            low[i] = bf16x8_load(call.qkv, at + at_low);
            high[i] = bf16x8_load(call.qkv, at + at_high);
        }
    }
    float cos_sin[16];
    const float4 *table = reinterpret_cast<const float4 *>(
        call.cos_sin + (int64_t)call.positions[token] * rotary + lane * 16);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 f = turns ? table[i] : make_float4(1, 0, 1, 0);
        cos_sin[4 * i] = f.x;
        cos_sin[4 * i + 1] = f.y;
        cos_sin[4 * i + 2] = f.z;
        cos_sin[4 * i + 3] = f.w;
    }
    const int64_t kv_row = call.kv_rows ? call.kv_rows[token] : token;
#pragma unroll
    for (int i = 0; i < ROPE_HEADS; i++) {
        const int head = first + i * n_groups;
        const bool is_query = head < call.n_heads;
        const bool is_value = head >= call.n_heads + call.n_kv_heads;
        float a[8], b[8];
        bf16x8_to_float(low[i], a);
        bf16x8_to_float(high[i], b);
        if (call.bias && head < n_taken && holds) {
            float bias[8];
            bf16x8_to_float(bf16x8_load(call.bias, head * HEAD_SIZE + at_low), bias);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                a[j] += bias[j];
            }
            bf16x8_to_float(bf16x8_load(call.bias, head * HEAD_SIZE + at_high), bias);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                b[j] += bias[j];
            }
        }
        const void *norm = is_value ? nullptr : is_query ? call.q_norm : call.k_norm;
        const bool norms = !FP8 && is_value && call.norm_values;
        if (call.q_norm || call.k_norm ||
            (!FP8 && call.norm_values)) { /* the same for every thread of the block */
            float squares = 0;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                squares += a[j] * a[j] + b[j] * b[j];
            }
#pragma unroll
            for (int step = LANES / 2; step > 0; step /= 2) {
                squares += __shfl_xor_sync(~0u, squares, step);
            }
            const float scale = rsqrtf(squares / HEAD_SIZE + call.epsilon);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                a[j] = norms ? a[j] * scale : a[j];
                b[j] = norms ? b[j] * scale : b[j];
            }
            if (norm && holds) {
                float w[8];
                bf16x8_to_float(bf16x8_load(norm, at_low), w);
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    a[j] = a[j] * scale * w[j];
                }
                bf16x8_to_float(bf16x8_load(norm, at_high), w);
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    b[j] = b[j] * scale * w[j];
                }
            }
        }
        if (!is_value) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float c = cos_sin[2 * j], s = cos_sin[2 * j + 1], x = a[j];
                a[j] = x * c - b[j] * s;
                b[j] = b[j] * c + x * s;
            }
        }
        if constexpr (FP8) {
            const int in_part = head - call.n_heads - (is_value ? call.n_kv_heads : 0);
            uint8_t *rows = static_cast<uint8_t *>(is_value ? call.v : call.k);
            store_fp8<HEAD_SIZE>(head < n_taken && !is_query && kv_row >= 0
                                     ? rows + kv_row * call.kv_stride
                                     : nullptr,
                                 fp8_paged(call.n_kv_heads, HEAD_SIZE, in_part), a, b, at_low,
                                 at_high, holds, call.kv_stride % 8 != 0);
        }
        if (head < n_taken && holds && (is_query || (!FP8 && kv_row >= 0))) {
            void *to = is_query ? call.q : is_value ? call.v : call.k;
            const int in_part = is_query   ? head
                                : is_value ? head - call.n_heads - call.n_kv_heads
                                           : head - call.n_heads;
            const int64_t row = is_query ? token * call.q_stride : kv_row * call.kv_stride;
            const int64_t at = row + in_part * HEAD_SIZE;
            bf16x8_store(to, at + at_low, bf16x8_from_float(a));
            bf16x8_store(to, at + at_high, bf16x8_from_float(b));
        }
    }
}

static constexpr bool is_wide_only(int size) {
    return size > 256;
}

/* Heads of a row that change or go elsewhere: all of them, or, where values lie in their places in
 * qkv already and stay as they are, queries and keys. */
static int heads_taken(const struct call_rope *call) {
    const int turned = call->n_heads + call->n_kv_heads, all = turned + call->n_kv_heads;
    const void *values =
        static_cast<const __nv_bfloat16 *>(call->qkv) + (int64_t)turned * call->head_size;
    const bool stay = call->v == values && call->kv_stride == (int64_t)all * call->head_size &&
                      !call->kv_rows && !call->kv_fp8 && !call->bias && !call->norm_values &&
                      !call->values_are_keys;
    return stay ? turned : all;
}

extern "C" cudaError_t kernel_rope(const struct call_rope *call, cudaStream_t stream) {
    const bool known_rotary = call->rotary_size >= 0 && call->rotary_size <= call->head_size &&
                              call->rotary_size % 16 == 0;
    if (call->dtype != KERNEL_BF16 || !is_wide_head_size(call->head_size) || !known_rotary ||
        (call->kv_fp8 &&
         (!is_head_size(call->head_size) || call->values_are_keys || call->norm_values)) ||
        call->n_tokens < 0 || call->n_heads < 0 || call->n_kv_heads < 0 ||
        call->n_heads + call->n_kv_heads == 0 || call->q_stride % 8 != 0 ||
        call->kv_stride % (call->kv_fp8 ? 4 : 8) != 0) {
        return cudaErrorInvalidValue;
    }
    if (call->n_tokens == 0) {
        return cudaSuccess;
    }
    const int n_heads = heads_taken(call);
    const int n_threads = rope_threads(call->head_size, n_heads);
    const int per_block = n_threads / ROPE_LANES(call->head_size) * ROPE_HEADS;
    const dim3 grid((unsigned)call->n_tokens, (unsigned)((n_heads + per_block - 1) / per_block));
    const bool partial = call->rotary_size > 0 && call->rotary_size < call->head_size;
    return by_wide_head_size(call->head_size, [&](auto head) {
        constexpr int D = decltype(head)::SIZE;
        constexpr int FP8_D = is_wide_only(D) ? 256 : D; /* of those that fp8 takes */
        auto kernel = call->kv_fp8 ? partial ? rope_kernel<FP8_D, true, true>
                                             : rope_kernel<FP8_D, false, true>
                      : partial ? rope_kernel<D, true, false>
                                   : rope_kernel<D, false, false>;
        launch(kernel, grid, (unsigned)n_threads, 0, stream, *call, n_heads);
        return cudaGetLastError();
    });
}
