/* Reference implementations of a mixture of experts: routing, sorting, the experts' products,
 * combining. */
#include <math.h>
#include <string.h>

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
            is_open[e] = is_open[e] && !group_open[g];
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

static bool has_open(const bool *is_open, int32_t n) {
    bool has = false;
    for (int32_t i = 0; i < n; i++) {
        has = has || is_open[i];
    }
    return has;
}

static void route_token(const struct call_moe_route *call, int64_t t, const bool *admitted) {
    double score[MOE_MAX_EXPERTS] = {0}, sum = 0;
    float rank[MOE_MAX_EXPERTS] = {0};
    bool is_open[MOE_MAX_EXPERTS] = {false}, is_left[MOE_MAX_EXPERTS] = {false};
    score_experts(call, t, score, rank);
    for (int32_t e = 0; e < call->n_experts; e++) {
        is_open[e] = is_left[e] = admitted[e];
        rank[e] = admitted[e] ? rank[e] : -INFINITY;
    }
    if (call->router == KERNEL_ROUTER_SIGMOID && call->n_groups > 1) {
        close_groups(call, rank, is_open);
    }
    int32_t *expert = call->expert + t * call->n_active;
    for (int32_t a = 0; a < call->n_active; a++) {
        const bool has = has_open(is_open, call->n_experts);
        expert[a] = take_best(rank, has ? is_open : is_left, call->n_experts);
        is_left[expert[a]] = false;
        sum += score[expert[a]];
    }
    sum += call->router == KERNEL_ROUTER_SIGMOID ? 1e-20 : 0;
    for (int32_t a = 0; a < call->n_active; a++) {
        const double weight = score[expert[a]] / (call->normalised ? sum : 1);
        call->weight[t * call->n_active + a] = (float)(weight * (double)call->scale);
    }
}

/* One past the last token of the block that token t is of. */
static int64_t block_end(const struct call_moe_route *call, int64_t t) {
    int64_t end = t + 1;
    for (int32_t r = 0; r < call->n_requests; r++) {
        const int64_t first = call->start[r] - call->first_token;
        const int64_t after = call->start[r + 1] - call->first_token;
        end = first <= t && t < after ? after : end;
    }
    end = end < call->n_tokens ? end : call->n_tokens;
    const int32_t block = call->position[t] / call->block_tokens;
    int64_t last = t + 1;
    while (last < end && call->position[last] / call->block_tokens == block) {
        last++;
    }
    return last;
}

/* What the tokens [t, end) give each expert. */
static void vote(const struct call_moe_route *call, int64_t t, int64_t end, float *votes) {
    double score[MOE_MAX_EXPERTS] = {0};
    float rank[MOE_MAX_EXPERTS] = {0};
    const bool is_share = call->blocks == KERNEL_BLOCKS_SHARE;
    for (int32_t e = 0; e < call->n_experts; e++) {
        votes[e] = is_share ? 0 : -INFINITY;
    }
    for (; t < end; t++) {
        bool is_open[MOE_MAX_EXPERTS] = {false};
        score_experts(call, t, score, rank);
        for (int32_t e = 0; e < call->n_experts; e++) {
            is_open[e] = true;
            votes[e] = is_share ? votes[e] : fmaxf(votes[e], rank[e]);
        }
        for (int32_t a = 0; is_share && a < call->n_active; a++) {
            const int32_t best = take_best(rank, is_open, call->n_experts);
            votes[best] += rank[best] > -INFINITY ? rank[best] : 0;
        }
    }
}

/* The experts that the block of the tokens [t, end) admits. */
static void admit(const struct call_moe_route *call, int64_t t, int64_t end, bool *admitted) {
    const int32_t n = call->n_experts;
    float votes[MOE_MAX_EXPERTS] = {0}, sum = 0, part = 0;
    int32_t order[MOE_MAX_EXPERTS] = {0}, keep = call->block_experts;
    bool is_open[MOE_MAX_EXPERTS] = {false};
    vote(call, t, end, votes);
    for (int32_t e = 0; e < n; e++) {
        is_open[e] = true;
        admitted[e] = false;
    }
    for (int32_t i = 0; i < n; i++) {
        order[i] = take_best(votes, is_open, n);
        sum += votes[order[i]];
    }
    bool exceeds = call->blocks != KERNEL_BLOCKS_SHARE;
    for (int32_t i = 0; i < n && !exceeds; i++) {
        part += votes[order[i]];
        exceeds = part > call->block_share * sum;
        keep = i >= keep ? i + 1 : keep;
    }
    for (int32_t i = 0; i < keep; i++) {
        admitted[order[i]] = true;
    }
}

void ref_moe_route(const struct call_moe_route *call) {
    bool admitted[MOE_MAX_EXPERTS];
    int64_t end = call->blocks == KERNEL_BLOCKS_NONE ? call->n_tokens : 0;
    memset(admitted, true, sizeof admitted);
    for (int64_t t = 0; t < call->n_tokens; t++) {
        if (t == end) {
            end = block_end(call, t);
            admit(call, t, end, admitted);
        }
        route_token(call, t, admitted);
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
                ref_store(call->y, call->dtype, i * f + h, ref_gated(call->gelu, gate, up));
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
