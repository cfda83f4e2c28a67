/* What lets one source of a rule be compiled as C and as CUDA with the same bits: functions for
 * both sides, and arithmetic of one rounding an operation. A compiler for the GPU would fuse
 * products and sums otherwise; the host's is told not to. */
#ifndef UNMASK_KERNELS_RULES_PORTABLE_H
#define UNMASK_KERNELS_RULES_PORTABLE_H

#ifdef __CUDACC__
#define RULE_FUNCTION static __host__ __device__ __forceinline__
#else
#define RULE_FUNCTION static inline
#endif

/* Of the host alone, and never a call. */
#define RULE_INLINE static inline __attribute__((always_inline))

/* Single precision, then double. */
#ifdef __CUDA_ARCH__
#define RULE_ADD(a, b)       __fadd_rn(a, b)
#define RULE_MULTIPLY(a, b)  __fmul_rn(a, b)
#define RULE_DIVIDE(a, b)    __fdiv_rn(a, b)
#define RULE_ADD2(a, b)      __dadd_rn(a, b)
#define RULE_MULTIPLY2(a, b) __dmul_rn(a, b)
#define RULE_DIVIDE2(a, b)   __ddiv_rn(a, b)
#else
#define RULE_ADD(a, b)       ((a) + (b))
#define RULE_MULTIPLY(a, b)  ((a) * (b))
#define RULE_DIVIDE(a, b)    ((a) / (b))
#define RULE_ADD2(a, b)      ((a) + (b))
#define RULE_MULTIPLY2(a, b) ((a) * (b))
#define RULE_DIVIDE2(a, b)   ((a) / (b))
#endif

#endif
