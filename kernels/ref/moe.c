/* Reference implementations of a mixture of experts: routing, sorting, the experts' products,
 * combining. */
#include <math.h>

#include "kernels/fp8.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/exponential.h"

/* What a choice goes by: a NaN is as good as nothing. */
static float comparable(float x) {
    return isnan(x) ? -INFINITY : x;
}

/* The largest of n ranks that are still open, which it closes; the lower one on a tie. */
static int32_t take_best(const float *rank, bool *is_open, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        if (is_open[i] && (!is_open[best] || rank[i] > rank[best])) {
            best = i;
        }
    }
    is_open[best] = false;
    return best;
}

/* Closes the experts of the groups that do not stay. */
static void close_groups(const struct call_moe_route *call, const float *rank, bool *is_open) {
    const int32_t size = call->n_experts / call->n_groups;
    float group_rank[MOE_MAX_GROUPS] = {0};
    bool group_open[MOE_MAX_GROUPS] = {false};
    for (int32_t g = 0; g < call->n_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int32_t e = g * size; e < (g + 1) * size; e++) {
            if (rank[e] > first) {
                second = first;
                first = rank[e];
            } else if (rank[e] > second) {
                second = rank[e];
            }
        }
        group_rank[g] = comparable(size > 1 ? first + second : first);
        group_open[g] = true;
    }
    for (int32_t i = 0; i < call->n_groups_active; i++) {
        take_best(group_rank, group_open, call->n_groups);
    }
    for (int32_t g = 0; g < call->n_groups; g++) {
        for (int32_t e = g * size; e < (g + 1) * size; e++) {
            is_open[e] = !group_open[g];
        }
    }
}

/* Unnormalised weights of all experts, and what the choice goes by. */
static void score_experts(const struct call_moe_route *call, int64_t token, double *score,
                          float *rank) {
    const bool is_softmax = call->router == KERNEL_ROUTER_SOFTMAX;
    double top = -INFINITY, sum = 0;
    for (int32_t e = 0; e < call->n_experts; e++) {
        const double logit = ref_load(call->logits, call->dtype, token * call->logit_stride + e);
        const float sigmoid = sigmoid_single((float)logit);
        const float bias = call->bias != NULL ? call->bias[e] : 0;
        score[e] = is_softmax ? logit : (double)sigmoid;
        rank[e] = comparable(is_softmax ? (float)logit : sigmoid + bias);
        top = fmax(top, logit);
    }
    for (int32_t e = 0; is_softmax && e < call->n_experts; e++) {
        score[e] = exp(score[e] - top);
        sum += score[e];
    }
    for (int32_t e = 0; is_softmax && e < call->n_experts; e++) {
        score[e] /= sum;
    }
}

void ref_moe_route(const struct call_moe_route *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        double score[MOE_MAX_EXPERTS] = {0}, sum = 0;
        float rank[MOE_MAX_EXPERTS] = {0};
        bool is_open[MOE_MAX_EXPERTS] = {false};
        score_experts(call, t, score, rank);
        for (int32_t e = 0; e < call->n_experts; e++) {
            is_open[e] = true;
        }
        if (call->router == KERNEL_ROUTER_SIGMOID && call->n_groups > 1) {
            close_groups(call, rank, is_open);
        }
        int32_t *expert = call->expert + t * call->n_active;
        for (int32_t a = 0; a < call->n_active; a++) {
            expert[a] = take_best(rank, is_open, call->n_experts);
            sum += score[expert[a]];
        }
        sum += call->router == KERNEL_ROUTER_SIGMOID ? 1e-20 : 0;
        for (int32_t a = 0; a < call->n_active; a++) {
            const double weight = score[expert[a]] / (call->normalised ? sum : 1);
            call->weight[t * call->n_active + a] = (float)(weight * (double)call->scale);
        }
    }
}

void ref_moe_sort(const struct call_moe_sort *call) {
    const int64_t n_pairs = (int64_t)call->n_tokens * call->n_active;
    int32_t next[MOE_MAX_EXPERTS] = {0};
    for (int64_t p = 0; p < n_pairs; p++) {
        const int64_t e = (int64_t)call->expert[p] - call->first_expert;
        if (e >= 0 && e < call->n_experts) {
            next[e]++;
        }
    }
    call->start[0] = 0;
    for (int32_t e = 0; e < call->n_experts; e++) {
        call->start[e + 1] = call->start[e] + next[e];
        next[e] = call->start[e];
    }
    for (int64_t p = 0; p < n_pairs; p++) {
        const int64_t e = (int64_t)call->expert[p] - call->first_expert;
        call->place[p] = -1;
        if (e >= 0 && e < call->n_experts) {
            call->place[p] = next[e]++;
            call->order[call->place[p]] = (int32_t)p;
        }
    }
}

void ref_moe_gate_up(const struct call_moe_gate_up *call) {
    const int64_t f = call->n_hidden;
    const struct ref_product p = {.x = call->x,
                                  .w = call->w,
                                  .stride = call->x_stride,
                                  .n_rows = 2 * f,
                                  .n_inputs = call->n_channels,
                                  .dtype = call->dtype,
                                  .fp8 = &call->fp8};
    for (int64_t e = 0; e < call->n_experts; e++) {
        for (int64_t i = call->start[e]; i < call->start[e + 1]; i++) {
            const int64_t token = call->order[i] / call->n_active;
            for (int64_t h = 0; h < f; h++) {
                const double gate = ref_dot(&p, token, e, h), up = ref_dot(&p, token, e, f + h);
                ref_store(call->y, call->dtype, i * f + h, gate / (1 + exp(-gate)) * up);
            }
        }
    }
}

void ref_moe_down(const struct call_moe_down *call) {
    const int64_t n = call->n_channels, f = call->n_hidden;
    const struct ref_product p = {.x = call->x,
                                  .w = call->w,
                                  .stride =
                                      call->fp8.x_too ? fp8_row_bytes(f, call->fp8.w_columns) : f,
                                  .n_rows = n,
                                  .n_inputs = f,
                                  .dtype = call->dtype,
                                  .fp8 = &call->fp8};
    for (int64_t e = 0; e < call->n_experts; e++) {
        for (int64_t i = call->start[e]; i < call->start[e + 1]; i++) {
            for (int64_t c = 0; c < n; c++) {
                ref_store(call->y, call->dtype, i * n + c, ref_dot(&p, i, e, c));
            }
        }
    }
}

void ref_moe_combine(const struct call_moe_combine *call) {
    const int64_t n = call->n_channels;
    for (int64_t t = 0; t < call->n_tokens; t++) {
        for (int64_t c = 0; c < n; c++) {
            double sum = call->add != NULL ? ref_load(call->add, call->dtype, t * n + c) : 0;
            for (int64_t p = t * call->n_active; p < (t + 1) * call->n_active; p++) {
                if (call->place[p] >= 0) {
                    sum += (double)call->weight[p] *
                           ref_load(call->x, call->dtype, call->place[p] * n + c);
                }
            }
            ref_store(call->y, call->dtype, t * n + c, sum);
        }
    }
}
