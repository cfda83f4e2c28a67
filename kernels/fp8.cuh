/* FP8 (e4m3) on the device: kernels/fp8.h's conversions, eight numbers at a time. */
#ifndef UNMASK_KERNELS_FP8_CUH
#define UNMASK_KERNELS_FP8_CUH

#include <cuda_fp8.h>

#include "kernels/device.cuh"
#include "kernels/fp8.h"

/* Eight codes' values. */
static __device__ __forceinline__ void e4m3x8_to_float(uint2 codes, float *x) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t word = i < 2 ? codes.x : codes.y;
        const __half2_raw two = __nv_cvt_fp8x2_to_halfraw2(
            static_cast<__nv_fp8x2_storage_t>(word >> i % 2 * 16), __NV_E4M3);
        const float2 f = __half22float2(__half2(two));
        x[2 * i] = f.x;
        x[2 * i + 1] = f.y;
    }
}

static __device__ __forceinline__ uint8_t e4m3_of(float x) {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

/* The codes of eight numbers by a scale. */
static __device__ __forceinline__ uint2 e4m3x8_from_float(const float *x, float scale) {
    uint32_t word[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float *four = x + 4 * i;
        const uint32_t low = __nv_cvt_float2_to_fp8x2(
            make_float2(__fdiv_rn(four[0], scale), __fdiv_rn(four[1], scale)), __NV_SATFINITE,
            __NV_E4M3);
        const uint32_t high = __nv_cvt_float2_to_fp8x2(
            make_float2(__fdiv_rn(four[2], scale), __fdiv_rn(four[3], scale)), __NV_SATFINITE,
            __NV_E4M3);
        word[i] = low | high << 16;
    }
    return make_uint2(word[0], word[1]);
}

/* The largest of eight numbers' sizes; a NaN is left out. */
static __device__ __forceinline__ float most_of_8(const float *x) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        most = fmaxf(most, fabsf(x[i]));
    }
    return most;
}

/* Over LANES neighbouring lanes, a power of two; all of a warp's take part. */
template <int LANES> static __device__ __forceinline__ float lanes_max(float x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    }
    return x;
}

static __device__ __forceinline__ float largest_of(const struct bf16x8 &v) {
    float x[8];
    bf16x8_to_float(v, x);
    return most_of_8(x);
}

/* Divides by a scale as IEEE does: by its reciprocal, put right by what that leaves (Markstein, IBM
 * Journal of Research and Development 34, 1990), where nothing on the way can be too large or too
 * small; the division itself takes three times as long. */
struct divisor {
    float scale, reciprocal;
    bool moderate;
};

static __device__ __forceinline__ struct divisor divisor_of(float scale) {
    return {scale, __frcp_rn(scale), scale > 0x1p-60f && scale < 0x1p60f};
}

static __device__ __forceinline__ float divide(float x, const struct divisor &by) {
    const float guess = x * by.reciprocal;
    const float over = fmaf(guess, by.scale, -x); /* this way round -0 stays -0 */
    return fmaf(-over, by.reciprocal, guess);
}

/* Stores 128 numbers that share a scale, of which four neighbouring lanes hold the columns 8 g + 2
 * (lane % 4) and the next; most: the largest of a lane's. Lanes trade groups of columns. */
static __device__ __forceinline__ void quad_store_codes(const float (&x)[32], float most,
                                                        uint8_t *codes, float *scale, bool valid) {
    const struct divisor by = divisor_of(e4m3_scale(lanes_max<4>(most)));
    const int lane = threadIdx.x % 32;
    uint32_t two[16];
    if (by.moderate) { /* hardly ever not: in one piece, without branches */
#pragma unroll
        for (int i = 0; i < 16; i++) {
            two[i] = __nv_cvt_float2_to_fp8x2(
                make_float2(divide(x[2 * i], by), divide(x[2 * i + 1], by)), __NV_SATFINITE,
                __NV_E4M3);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            two[i] = __nv_cvt_float2_to_fp8x2(
                make_float2(__fdiv_rn(x[2 * i], by.scale), __fdiv_rn(x[2 * i + 1], by.scale)),
                __NV_SATFINITE, __NV_E4M3);
        }
    }
#pragma unroll
    for (int part = 0; part < 2; part++) {
        uint32_t word[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            word[j] = two[part * 8 + j] | two[part * 8 + j + 4] << 16;
        }
        quad_transpose(word, lane);
        if (valid) {
            uint8_t *to = codes + (part * 8 + lane % 4) * 8;
            *reinterpret_cast<uint2 *>(to) = make_uint2(__byte_perm(word[0], word[1], 0x5410),
                                                        __byte_perm(word[2], word[3], 0x5410));
            *reinterpret_cast<uint2 *>(to + 32) = make_uint2(__byte_perm(word[0], word[1], 0x7632),
                                                             __byte_perm(word[2], word[3], 0x7632));
        }
    }
    if (lane % 4 == 0 && valid) {
        *scale = by.scale;
    }
}

static __device__ __forceinline__ uint2 codes_of(const struct bf16x8 &v, const struct divisor &by) {
    float x[8];
    uint32_t pair[4];
    bf16x8_to_float(v, x);
    if (by.moderate) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] = divide(x[i], by);
        }
    } else {
        for (int i = 0; i < 8; i++) {
            x[i] = __fdiv_rn(x[i], by.scale);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pair[i] = __nv_cvt_float2_to_fp8x2(make_float2(x[2 * i], x[2 * i + 1]), __NV_SATFINITE,
                                           __NV_E4M3);
    }
    return make_uint2(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16);
}

/* Half a warp writes a head of `size` numbers, a multiple of 8, from element `at` of x to a cache's
 * place. All of the warp's lanes take part, those of a half that has no head with holds false. */
enum { FP8_HEAD_LANES = FP8_HEAD_GROUP / 8 };

static __device__ __forceinline__ void fp8_head_store(const void *x, int64_t at, int size,
                                                      void *cache, struct fp8_place place,
                                                      bool holds) {
    uint8_t *to = static_cast<uint8_t *>(cache);
    const int lane = threadIdx.x % FP8_HEAD_LANES;
    for (int first = 0; first < size; first += FP8_HEAD_GROUP) {
        const int i = first + lane * 8;
        float numbers[8] = {};
        if (holds && i < size) {
            bf16x8_to_float(bf16x8_load(x, at + i), numbers);
        }
        const float scale = e4m3_scale(lanes_max<FP8_HEAD_LANES>(most_of_8(numbers)));
        if (holds && i < size) {
            *reinterpret_cast<uint2 *>(to + place.codes + i) = e4m3x8_from_float(numbers, scale);
        }
        if (holds && lane == 0) {
            reinterpret_cast<float *>(to + place.scales)[first / FP8_HEAD_GROUP] = scale;
        }
    }
}

/* A chunk of 16 bytes of shared memory on its way from fp8: eight codes and their scale, which the
 * thread that asked for them makes eight bf16 of in place once they are there. */
static __device__ __forceinline__ void copy_async_4(uint32_t to, const void *from, bool in_bounds) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from),
                 "r"(in_bounds ? 4 : 0)
                 : "memory");
}

/* odd: codes lie at a multiple of 4 bytes, else of 8. */
static __device__ __forceinline__ void fp8_copy_async(uint32_t to, const void *codes,
                                                      const void *scale, bool in_bounds,
                                                      bool odd = false) {
    if (odd) {
        copy_async_4(to, codes, in_bounds);
        copy_async_4(to + 4, static_cast<const uint8_t *>(codes) + 4, in_bounds);
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(to), "l"(codes),
                     "r"(in_bounds ? 8 : 0)
                     : "memory");
    }
    copy_async_4(to + 8, scale, in_bounds);
}

static __device__ __forceinline__ void fp8_expand(uint32_t at) {
    uint2 codes;
    float scale, x[8];
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n"
                 : "=r"(codes.x), "=r"(codes.y)
                 : "r"(at)
                 : "memory");
    asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(scale) : "r"(at + 8) : "memory");
    e4m3x8_to_float(codes, x);
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        word[i] = bf16_pack(x[2 * i] * scale, x[2 * i + 1] * scale);
    }
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(at), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
}

#endif
