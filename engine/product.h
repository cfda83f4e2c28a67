/* Products and attention in float32 on the CPU.
 *
 * An output element is one fixed sequence of operations over its own inputs, whatever the tiles
 * around it: its bits do not depend on what else is in the batch. Nothing allocates. */
#ifndef UNMASK_ENGINE_PRODUCT_H
#define UNMASK_ENGINE_PRODUCT_H

#include <stdint.h>

#include "kernels/calls.h"

/* y = x w': [T, K] times [N, K] transposed, rows of x and y that many elements apart. */
struct product {
    const float *x, *w;
    float *y;
    int64_t n_tokens, n_outputs, n_inputs;
    int64_t x_stride, y_stride;
};
void cpu_product(const struct product *product);

/* The calls of the kernels for float32; y may not be q. Scratch and host-known maxima are not read.
 * A request's keys count through its cache and then its own, so that the same keys in the same
 * order give the same bits in either call. */
void cpu_dense_attention(const struct call_dense_attention *call);
void cpu_block_attention(const struct call_block_attention *call);

#endif
