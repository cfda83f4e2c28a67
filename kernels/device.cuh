/* What the kernels share on the device: bf16 vectors, asynchronous copies, tensor-core steps. */
#ifndef UNMASK_KERNELS_DEVICE_CUH
#define UNMASK_KERNELS_DEVICE_CUH

#include <cuda_bf16.h>
#include <stdint.h>

/* Eight bf16 in 16 bytes, the widest access of one thread. */
struct __align__(16) bf16x8 {
    __nv_bfloat162 pair[4];
};

static __device__ __forceinline__ void bf16x8_to_float(const struct bf16x8 &v, float *x) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 f = __bfloat1622float2(v.pair[i]);
        x[2 * i] = f.x;
        x[2 * i + 1] = f.y;
    }
}

static __device__ __forceinline__ struct bf16x8 bf16x8_from_float(const float *x) {
    struct bf16x8 v;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v.pair[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
    }
    return v;
}

/* Through uint4: nvcc 13.0 moves a struct of pairs as four accesses of four bytes. */
static __device__ __forceinline__ struct bf16x8 bf16x8_load(const void *base, int64_t element) {
    const uint4 raw =
        *reinterpret_cast<const uint4 *>(static_cast<const __nv_bfloat16 *>(base) + element);
    struct bf16x8 v;
    memcpy(&v, &raw, sizeof v);
    return v;
}

static __device__ __forceinline__ void bf16x8_store(void *base, int64_t element,
                                                    const struct bf16x8 &v) {
    uint4 raw;
    memcpy(&raw, &v, sizeof raw);
    *reinterpret_cast<uint4 *>(static_cast<__nv_bfloat16 *>(base) + element) = raw;
}

static __device__ __forceinline__ uint32_t bf16_pack(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
        x += __shfl_xor_sync(~0u, x, lane);
    }
    return x;
}

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* Copies 16 bytes, or writes 16 zero bytes when the source is out of bounds. */
static __device__ __forceinline__ void copy_async(uint32_t to, const void *from, bool in_bounds) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(in_bounds ? 16 : 0)
                 : "memory");
}

/* Copies four bytes. */
static __device__ __forceinline__ void copy_async_4(uint32_t to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ float2 shared_float2(uint32_t address) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(address)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int PENDING> static __device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

/* A tile row holds D bf16 as chunks of 16 bytes; the chunk is exclusive-ored with the row so that
 * the eight rows one ldmatrix phase reads lie in different banks. Rows of an odd multiple of 64
 * bytes begin in either half of the banks by turns, and two of them share a number. */
template <int D = 128>
static __device__ __forceinline__ uint32_t tile_address(uint32_t base, int row, int chunk) {
    return base + static_cast<uint32_t>(row * (D * 2) +
                                        ((chunk ^ (D % 64 == 0 ? row & 7 : row / 2 & 3)) << 4));
}

static __device__ __forceinline__ void matrix_load(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void matrix_load_transposed(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* c += a b for one 16 x 8 x 16 step. */
static __device__ __forceinline__ void matrix_multiply(float (&c)[4], const uint32_t (&a)[4],
                                                       uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 2^x on the special-function unit; 0 for -infinity. */
static __device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* silu(gate) * up; 0 where the exponential overflows. */
static __device__ __forceinline__ float swiglu(float gate, float up) {
    return __fdividef(gate, 1.0f + exp2_fast(-1.44269504088896341f * gate)) * up;
}

/* gelu(gate) * up by tanh: 0.5 (1 + tanh u) is 1 / (1 + exp(-2 u)). */
static __device__ __forceinline__ float geglu(float gate, float up) {
    const float twice = 2 * 0.79788456080286536f * (gate + 0.044715f * gate * gate * gate);
    return __fdividef(gate, 1.0f + exp2_fast(-1.44269504088896341f * twice)) * up;
}

static __device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* Among four neighbouring lanes, word j of lane l and word l of lane j change places. */
static __device__ __forceinline__ void quad_transpose(uint32_t (&word)[4], int lane) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
        const bool high = lane & bit;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (!(j & bit)) {
                const uint32_t sent = high ? word[j] : word[j | bit];
                const uint32_t got = __shfl_xor_sync(~0u, sent, bit);
                word[j] = high ? got : word[j];
                word[j | bit] = high ? word[j | bit] : got;
            }
        }
    }
}

#endif
