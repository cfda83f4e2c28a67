#include "sim/step/eager.h"

/* Rates, of operators' descriptors too:
 * experiments/gpu/results/2026-11-22-h200-released/{fast,cache}-ops.csv, 16 requests; bytes below
 * over the sum of their kernels' times, over 132.
 *
 * Norm: to float32 6, square 8, mean 4, scale 8, to bf16 6, times weight 2; 448 us in a refresh of
 * Fast-dLLM. Rotation: to float32 6, times cosine 8, negated half 4, concatenation 8, times sine 8,
 * add 12, to bf16 6; 712 us of fresh keys, 678 us of cached ones (18.6 and 19.5; 19 is between).
 * SwiGLU: activation 4, product 6; memory binds it. Residual add: 6. Joins: read and write; 197.7
 * us of the prefix cache's reuse at width 32 and 143.3 us at 256, which is 0.402 us of a cached row
 * of all 16 requests and 0.157 us of a fresh one; 104.5 us of dLLM-Cache's. Picks: 17.3 us of 64
 * rows a request. Similarity: two norms 4, two divisions 8, product 6, sum 2; 162.5 us of 256 rows.
 * The float64 softmax reads a row three times, which is 1 MB and too long for the caches, and
 * writes it. The softmax in bf16 keeps its row: it reads and writes it once. dLLM-Cache's slice of
 * the logits is copied (4) and raised to exponentials (4). */
const struct eager_pass eager_passes[EAGER_KINDS] = {
    [EAGER_JOIN_CACHED] = {4, 2, 4.9},   [EAGER_JOIN_FRESH] = {4, 2, 12.6},
    [EAGER_JOIN_TOKENS] = {4, 2, 9.7},   [EAGER_PICK] = {4, 2, 7.3},
    [EAGER_CAST_DOUBLE] = {10, 8, 17.9}, [EAGER_SOFTMAX_DOUBLE] = {32, 16, 24.6},
    [EAGER_SLICE] = {8, 2, 12.9},
};
