/* OpenBLAS, for the products of the CPU: loaded when one is asked for, and by nothing else, because
 * it takes memory and starts threads as it is loaded. In Fortran's calling convention, whose names
 * no other library has (GSL brings a CBLAS of its own). */
#ifndef UNMASK_KERNELS_REF_CPU_BLAS_H
#define UNMASK_KERNELS_REF_CPU_BLAS_H

#include <stdbool.h>
#include <stddef.h>

typedef void blas_product(const char *transpose_a, const char *transpose_b, const int *m,
                          const int *n, const int *k, const float *alpha, const float *a,
                          const int *lda, const float *b, const int *ldb, const float *beta,
                          float *c, const int *ldc);

/* Loads it, once, with one thread unless OPENBLAS_NUM_THREADS says how many, and sees that the
 * memory is there which another thread's products take: without it OpenBLAS ends the program or
 * waits for ever. False: `text` says why, with the package. */
bool blas_start(char *text, size_t size);

/* c = alpha op(a) op(b) + beta c, in order of columns; starts it if it was not started. */
extern blas_product *blas_sgemm;

#endif
