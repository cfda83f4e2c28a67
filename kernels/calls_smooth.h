/* The arguments of iteration smoothing's kernels (dInfer's IterSmooth, arXiv 2510.08666 and its
 * released code): a step's prediction for a masked position becomes an embedding, which is added to
 * the mask's in the next step. A place is a row of the state kept between steps; step[i] is how
 * many steps a row's request has done. Shapes and conventions as in calls.h. */
#ifndef UNMASK_KERNELS_CALLS_SMOOTH_H
#define UNMASK_KERNELS_CALLS_SMOOTH_H

#include "kernels/calls.h"

/* y[i] = softmax of row i of the logits; y may be the logits. A row in which a logit is no number,
 * or is +infinity, or all are -infinity, becomes NaN. Where V is no multiple of 8 the last bits of
 * a row may change with its place in the call. */
struct call_softmax {
    const void *logits; /* [N, V] */
    void *y;            /* the same */
    int32_t n_rows, n_vocab;
    enum kernel_dtype dtype;
};

/* kept[places[i]] = weight x[i], rounded once, with weight = min(weight_init + weight_growth
 * step[i], weight_most) in double and rounded to single precision; a place < 0: nothing happens.
 * Places are apart. C a multiple of 8. */
struct call_keep_expected {
    const void *x;                /* [N, C] */
    const int32_t *places, *step; /* [N] */
    void *kept;                   /* [places, C] */
    int32_t n_rows, n_channels;
    double weight_init, weight_growth, weight_most;
    enum kernel_dtype dtype;
};

/* y[t] += kept[places[t]] where token t's place is >= 0 and its position holds a mask. C a multiple
 * of 8. */
struct call_add_expected {
    const void *kept;      /* [places, C] */
    const int32_t *places; /* [T] */
    const int64_t *at;     /* [T], where in canvas a token's position is */
    const int32_t *canvas;
    void *y; /* [T, C] */
    int32_t n_tokens, n_channels, mask_token;
    enum kernel_dtype dtype;
};

/* What requests are decided by in this step, and what their rows come to in the next: threshold[r]
 * = max(1 - threshold_decay step[first_row[r]] in double and rounded to single precision,
 * least[r]); then every step[i] is one more. */
struct call_next_step {
    int32_t *step;            /* [N] */
    const int32_t *first_row; /* [B] */
    const float *least;       /* [B] */
    float *threshold;         /* [B] */
    int32_t n_rows, n_requests;
    double threshold_decay;
};

#endif
