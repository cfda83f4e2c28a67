/* What the paths of products with weights in fp8 share. */
#ifndef UNMASK_KERNELS_LINEAR_FP8_CUH
#define UNMASK_KERNELS_LINEAR_FP8_CUH

#include "kernels/fp8.h"
#include "kernels/kernels.h"

/* Channels of a step, which are also those whose products are added up on the tensor cores before
 * single precision takes over, and, by squares, those that share a scale. */
enum { FP8_STEP = 128 };
/* Tokens in bf16 up to which codes become bf16 within products; beyond, weights are expanded apart.
 */
enum { FP8_WIDE_MOST = 1024 };

/* What becomes of a product's sums. */
enum fp8_outcome {
    FP8_ROUNDED, /* y = x w' + add, in bf16 */
    FP8_GATED,   /* y = silu(x g') * (x u'), in bf16: w has n_outputs gates, then ups */
    FP8_SINGLE,  /* y = x w' in single precision */
    FP8_SUMMED,  /* the head's: y has a summary of each row and tile of FP8_SUMMED_OUTPUTS */
};
enum { FP8_SUMMED_OUTPUTS = 256 };

struct fp8_product {
    const void *x, *w;
    const float *w_scale;
    const void *add; /* NULL: nothing is added */
    void *y;
    uint8_t *codes;   /* FP8_GATED: y as rows of fp8, FP8_STEP numbers to a scale; or NULL */
    int64_t x_stride; /* bytes, or elements where x is in bf16 */
    int64_t y_stride;
    int32_t n_tokens, n_outputs, n_inputs;
    int32_t before; /* rows of the matrix before w */
    int32_t w_rows; /* that share a scale */
    bool squares;   /* scales are of FP8_STEP inputs; else of all of them */
    bool x_too;
    enum fp8_outcome outcome;
    bool statistics, rounded; /* FP8_SUMMED: as call_head has them */
};

/* False where a call is outside what calls.h promises. */
bool fp8_product_of(const struct call_linear *call, struct fp8_product *out);
bool fp8_product_of(const struct call_gate_up *call, struct fp8_product *out);

/* Takes the fastest path; invariant: one whose sums do not depend on the number of tokens. */
cudaError_t fp8_run(const struct fp8_product *product, bool invariant, cudaStream_t stream);

/* The paths; cudaErrorNotSupported where one does not take a shape or a device. mma: from sm_89 on,
 * and where inputs are in bf16 from sm_80 on, every shape. FP8_SUMMED: tiles alone, FP8_SINGLE: the
 * others. */
cudaError_t fp8_run_few(const struct fp8_product *product, cudaStream_t stream);
cudaError_t fp8_run_tiles(const struct fp8_product *product, cudaStream_t stream);
/* By tiles where each row of w and of x has one scale, as fp8_run_tiles has checked. */
cudaError_t fp8_run_channels(const struct fp8_product *product, cudaStream_t stream);
cudaError_t fp8_run_mma(const struct fp8_product *product, cudaStream_t stream);

/* y into codes, where these are wanted: for paths that do not write them themselves. */
cudaError_t fp8_codes(const struct fp8_product *product, cudaStream_t stream);

/* n_rows rows of weights from w on, of which `before` lie before them, in bf16. */
cudaError_t fp8_expand(const void *w, const struct call_fp8 *fp8, int32_t before, int32_t n_rows,
                       int32_t n_inputs, void *to, cudaStream_t stream);

#ifdef __CUDACC__
/* Scales of a row of w by squares of FP8_STEP rows, and where each row has one. */
template <bool SQUARES>
static __device__ __forceinline__ const float *fp8_scales_of(const struct fp8_product &p,
                                                             int64_t row) {
    const int64_t at = p.before + row;
    return p.w_scale + (SQUARES ? at / FP8_STEP * ((p.n_inputs + FP8_STEP - 1) / FP8_STEP) : at);
}

/* The same, of as many rows as share one. */
static __device__ __forceinline__ const float *fp8_scales_of(const struct fp8_product &p,
                                                             int64_t row) {
    const int64_t groups = p.squares ? (p.n_inputs + FP8_STEP - 1) / FP8_STEP : 1;
    return p.w_scale + (p.before + row) / p.w_rows * groups;
}

/* And of a row of x in fp8. */
static __device__ __forceinline__ const float *fp8_scales_of_input(const struct fp8_product &p,
                                                                   int64_t row) {
    return reinterpret_cast<const float *>(static_cast<const char *>(p.x) + row * p.x_stride +
                                           p.n_inputs);
}
#endif

#endif
