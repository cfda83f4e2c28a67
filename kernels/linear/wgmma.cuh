/* Warpgroup products (sm_90a): 64 rows by up to 256 columns by 16 of bf16 or 32 of fp8, one
 * warpgroup, asynchronous. The operand layouts are those of the PTX ISA manual, section wgmma,
 * 128-byte swizzle. */
#ifndef UNMASK_KERNELS_LINEAR_WGMMA_CUH
#define UNMASK_KERNELS_LINEAR_WGMMA_CUH

#include "kernels/hopper.cuh"

#if HOPPER_DEVICE

/* Operand whose rows of 64 elements of bf16, or 128 of fp8, run along the summed dimension: 8-row
 * groups 1024 bytes apart. The start of a further 16 elements, or 32 of fp8, is 32 bytes on. */
static __device__ __forceinline__ uint64_t operand_rows(uint32_t address) {
    return (uint64_t)((address & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 |
           1ull << 62;
}

/* Operand whose rows of 64 elements run across the summed dimension; further columns of 64 are
 * column_bytes on. The start of a further 16 rows is 2048 bytes on. */
static __device__ __forceinline__ uint64_t operand_columns(uint32_t address, int column_bytes) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(column_bytes >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

static __device__ __forceinline__ void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int PENDING> static __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(PENDING) : "memory");
}

/* An instruction's sums by their number: their places in its text, and the operands. */
/* clang-format off */
#define SUMS_4 "%0, %1, %2, %3"
#define SUMS_8 SUMS_4 ", %4, %5, %6, %7"
#define SUMS_16 SUMS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_32 SUMS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_48 SUMS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SUMS_64 SUMS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_80 SUMS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define SUMS_88 SUMS_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define SUMS_96 SUMS_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SUMS_104 SUMS_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define SUMS_112 SUMS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define SUMS_120 SUMS_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define SUMS_128 SUMS_112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define EIGHT(i) FOUR(i), FOUR(i + 4)
#define SIXTEEN(i) EIGHT(i), EIGHT(i + 8)
#define OPERANDS_4 FOUR(0)
#define OPERANDS_8 EIGHT(0)
#define OPERANDS_16 SIXTEEN(0)
#define OPERANDS_32 OPERANDS_16, SIXTEEN(16)
#define OPERANDS_48 OPERANDS_32, SIXTEEN(32)
#define OPERANDS_64 OPERANDS_48, SIXTEEN(48)
#define OPERANDS_80 OPERANDS_64, SIXTEEN(64)
#define OPERANDS_88 OPERANDS_80, EIGHT(80)
#define OPERANDS_96 OPERANDS_80, SIXTEEN(80)
#define OPERANDS_104 OPERANDS_96, EIGHT(96)
#define OPERANDS_112 OPERANDS_96, SIXTEEN(96)
#define OPERANDS_120 OPERANDS_112, EIGHT(112)
#define OPERANDS_128 OPERANDS_112, SIXTEEN(112)

/* The widths that kernels have: columns, sums a thread, and the places in the text of b and of
 * whether d is added. */
#define WGMMA_WIDTHS(X) \
    X(8, 4, 5, 6) X(16, 8, 9, 10) X(32, 16, 17, 18) X(64, 32, 33, 34) \
    X(96, 48, 49, 50) X(128, 64, 65, 66) X(160, 80, 81, 82) X(176, 88, 89, 90) \
    X(192, 96, 97, 98) X(208, 104, 105, 106) X(224, 112, 113, 114) X(240, 120, 121, 122) \
    X(256, 128, 129, 130)
/* clang-format on */

/* NAME<WIDTH>: d = a b (+ d when accumulate): 64 rows a warpgroup, both operands in shared memory,
 * each with its rows along the summed dimension. */
#define SHARED_PRODUCT(NAME, TYPES, LAYOUT, WIDTH, SUMS, B, P)                                     \
    template <>                                                                                    \
    __device__ __forceinline__ void NAME<WIDTH>(float(&d)[SUMS], uint64_t a, uint64_t b,           \
                                                int accumulate) {                                  \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\n"                              \
                     "wgmma.mma_async.sync.aligned.m64n" #WIDTH TYPES " {" SUMS_##SUMS             \
                     "}, %" #SUMS ", %" #B ", p, 1, 1" LAYOUT ";\n}\n"                             \
                     : OPERANDS_##SUMS                                                             \
                     : "l"(a), "l"(b), "r"(accumulate));                                           \
    }

/* Of bf16, 16 summed. */
template <int WIDTH>
static __device__ __forceinline__ void wgmma_m64k16(float (&d)[WIDTH / 2], uint64_t a, uint64_t b,
                                                    int accumulate);
#define BF16_PRODUCT(WIDTH, SUMS, B, P)                                                            \
    SHARED_PRODUCT(wgmma_m64k16, "k16.f32.bf16.bf16", ", 0, 0", WIDTH, SUMS, B, P)
WGMMA_WIDTHS(BF16_PRODUCT)

/* Of fp8 (e4m3), 32 summed. Sums keep about 14 bits, so that callers add few of them up here and
 * the rest in single precision. */
template <int WIDTH>
static __device__ __forceinline__ void wgmma_m64k32_fp8(float (&d)[WIDTH / 2], uint64_t a,
                                                        uint64_t b, int accumulate);
#define FP8_PRODUCT(WIDTH, SUMS, B, P)                                                             \
    SHARED_PRODUCT(wgmma_m64k32_fp8, "k32.f32.e4m3.e4m3", "", WIDTH, SUMS, B, P)
WGMMA_WIDTHS(FP8_PRODUCT)

/* The sums of 128 channels of fp8, a whole row of both operands, begun and committed. */
template <int WIDTH>
static __device__ __forceinline__ void wgmma_row_fp8(float (&sum)[WIDTH / 2], uint32_t a_rows,
                                                     uint32_t b_rows) {
    const uint64_t a = operand_rows(a_rows), b = operand_rows(b_rows);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 128 / 32; k++) {
        wgmma_m64k32_fp8<WIDTH>(sum, a + k * 2, b + k * 2, k > 0);
    }
    wgmma_commit();
}

/* Of bf16, a in registers: b with its rows across the summed dimension (64, 128 or 256 columns), */
#define REGISTERS_PRODUCT(NAME, ACROSS, WIDTH, SUMS, A1, A2, A3, B, P)                             \
    static __device__ __forceinline__ void NAME(float(&d)[SUMS], const uint32_t(&a)[4],            \
                                                uint64_t b, int accumulate) {                      \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\n"                              \
                     "wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16.f32.bf16.bf16 {" SUMS_##SUMS  \
                     "}, {%" #SUMS ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, " #ACROSS   \
                     ";\n}\n"                                                                      \
                     : OPERANDS_##SUMS                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));       \
    }
REGISTERS_PRODUCT(wgmma_m64k16_registers, 1, 64, 32, 33, 34, 35, 36, 37)
REGISTERS_PRODUCT(wgmma_m64k16_registers, 1, 128, 64, 65, 66, 67, 68, 69)
REGISTERS_PRODUCT(wgmma_m64k16_registers, 1, 256, 128, 129, 130, 131, 132, 133)
/* and along it. */
REGISTERS_PRODUCT(wgmma_m64k16_rows, 0, 8, 4, 5, 6, 7, 8, 9)
REGISTERS_PRODUCT(wgmma_m64k16_rows, 0, 16, 8, 9, 10, 11, 12, 13)
REGISTERS_PRODUCT(wgmma_m64k16_rows, 0, 32, 16, 17, 18, 19, 20, 21)
REGISTERS_PRODUCT(wgmma_m64k16_rows, 0, 64, 32, 33, 34, 35, 36, 37)
REGISTERS_PRODUCT(wgmma_m64k16_rows, 0, 128, 64, 65, 66, 67, 68, 69)

#endif
#endif
