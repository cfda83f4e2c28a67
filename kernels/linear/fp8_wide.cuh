/* Products of weights in fp8 with inputs in bf16 by Hopper's tensor cores: codes become bf16, which
 * is exact, on their way into registers. For the paths of few tokens (fp8_few.cu) and of experts
 * (moe/moe_fp8.cu). */
#ifndef UNMASK_KERNELS_LINEAR_FP8_WIDE_CUH
#define UNMASK_KERNELS_LINEAR_FP8_WIDE_CUH

#include "kernels/linear/fp8.cuh"
#include "kernels/linear/wgmma.cuh"

#if HOPPER_DEVICE
/* Two neighbouring codes in bf16. */
static __device__ __forceinline__ uint32_t pair_expanded(uint32_t address) {
    uint32_t pair;
    asm volatile("{\n.reg .b16 codes, low, high;\n.reg .b32 halves;\n.reg .f32 first, second;\n"
                 "ld.shared.b16 codes, [%1];\n"
                 "cvt.rn.f16x2.e4m3x2 halves, codes;\n"
                 "mov.b32 {low, high}, halves;\n"
                 "cvt.f32.f16 first, low;\n"
                 "cvt.f32.f16 second, high;\n"
                 "cvt.rn.bf16x2.f32 %0, second, first;\n}\n"
                 : "=r"(pair)
                 : "r"(address)
                 : "memory");
    return pair;
}

/* A warpgroup's sums of a step, begun and committed: of 64 rows of codes from `weights` on by WIDTH
 * rows of inputs, 64 channels in half_bytes. Codes of 16 channels are one chunk of a row. WAITS:
 * for the first half, where there are no registers for both. */
template <int WIDTH, bool WAITS>
static __device__ __forceinline__ void fp8_sum_wide(float (&part)[WIDTH / 2], uint32_t weights,
                                                    uint32_t inputs, int half_bytes) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
    const uint32_t from = weights + row * FP8_STEP + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint64_t b = operand_rows(inputs + half * half_bytes);
        uint32_t a[4][4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t at = from + (((half * 4 + k) ^ (row & 7)) << 4);
            a[k][0] = pair_expanded(at);
            a[k][1] = pair_expanded(at + 8 * FP8_STEP);
            a[k][2] = pair_expanded(at + 8);
            a[k][3] = pair_expanded(at + 8 * FP8_STEP + 8);
        }
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            wgmma_m64k16_rows(part, a[k], b + k * 2, half + k > 0);
        }
        wgmma_commit();
        if (WAITS && half == 0) {
            wgmma_wait<0>();
        }
    }
}
#endif

#endif
