/* The arguments of a mixture of experts: which experts each token goes to, its tokens in the order
 * of their experts, and the experts' two products, over all experts in one call. The rules and
 * shapes of calls.h hold here, too; E experts, A of them active per token, F an expert's width. A
 * pair is a token and one of its active experts: pair t A + a is token t's expert a. */
#ifndef UNMASK_KERNELS_CALLS_MOE_H
#define UNMASK_KERNELS_CALLS_MOE_H

#include "kernels/calls.h"

/* E is at most MOE_MAX_EXPERTS, A at most MOE_MAX_ACTIVE, groups at most MOE_MAX_GROUPS. */
enum { MOE_MAX_EXPERTS = 256, MOE_MAX_ACTIVE = 16, MOE_MAX_GROUPS = 32 };

enum kernel_router {
    KERNEL_ROUTER_SOFTMAX, /* LLaDA-MoE: the A largest softmax probabilities over all experts */
    KERNEL_ROUTER_SIGMOID, /* LLaDA2.0: sigmoid scores, chosen within the best groups */
};

/* From router logits to experts and their weights; computed in single precision. E is a multiple of
 * the groups, and the active groups have A experts or more. The same experts on any device.
 * Softmax: the choice goes by the logits; weights are the probabilities, divided by their sum when
 * `normalised`. Bias and groups are not read.
 * Sigmoid: the choice goes by score + bias: a group's rank is the sum of its two largest, the
 * n_groups_active best groups stay, and of these the A largest; weights are the scores alone (no
 * bias), divided by their sum (plus 1e-20) when `normalised`.
 * All weights are multiplied by `scale`. In the order of the choice, the larger one first, the
 * lower expert, or group, on a tie; a NaN is the last choice.
 */
struct call_moe_route {
    const void *logits; /* [T, E], rows logit_stride apart */
    const float *bias;  /* [E] or NULL */
    int32_t *expert;    /* [T, A] */
    float *weight;      /* [T, A] */
    int64_t logit_stride;
    int32_t n_tokens, n_experts, n_active;
    int32_t n_groups, n_groups_active; /* 1 and 1 where there are none */
    bool normalised;
    float scale;
    enum kernel_router router;
    enum kernel_dtype dtype;
};

/* The pairs in the order of their experts, of one expert in the order of their tokens: a counting
 * sort, the same on any device. Pairs whose expert is outside [first_expert, first_expert + E) are
 * another rank's: place -1, and not counted. */
struct call_moe_sort {
    const int32_t *expert; /* [T, A] */
    int32_t *start; /* [E + 1], where each expert's pairs begin; start[E]: how many there are */
    int32_t *order; /* [T A], the pair at each place */
    int32_t *place; /* [T A], the place of each pair, or -1 */
    int32_t n_tokens, n_active, n_experts, first_expert;
};

/* y[i] = silu(x[t] g') * (x[t] u') for the pair order[i] of token t = order[i] / A, where w holds
 * for each expert its F gate rows g, then its F up rows u. C and F multiples of 8. y is not x. */
struct call_moe_gate_up {
    const void *x;        /* [T, C], rows x_stride apart */
    const void *w;        /* [E, 2 F, C] */
    const int32_t *start; /* [E + 1] */
    const int32_t *order; /* [T A] */
    void *y;              /* [T A, F], by place */
    int64_t x_stride;
    int32_t n_tokens, n_active, n_experts, n_channels, n_hidden;
    enum kernel_dtype dtype;
};

/* y[i] = x[i] w[e]' for place i of expert e. */
struct call_moe_down {
    const void *x;        /* [T A, F], by place */
    const void *w;        /* [E, C, F] */
    const int32_t *start; /* [E + 1] */
    void *y;              /* [T A, C], by place */
    int32_t n_tokens, n_active, n_experts, n_channels, n_hidden;
    enum kernel_dtype dtype;
};

/* y[t] = add[t] + sum over a of weight[t, a] x[place[t, a]], summed in single precision in the
 * order of a, places of -1 left out, and rounded once. */
struct call_moe_combine {
    const void *x;        /* [T A, C], by place */
    const float *weight;  /* [T, A] */
    const int32_t *place; /* [T, A] */
    const void *add;      /* [T, C] or NULL; may be y */
    void *y;              /* [T, C] */
    int32_t n_tokens, n_active, n_channels;
    enum kernel_dtype dtype;
};

#endif
