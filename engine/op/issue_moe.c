/* The calls of a mixture of experts. Which tensor an operator's first, second and so on is, the
 * graph builder says (add_sorted_moe_ffn). */
#include "engine/op/issue_impl.h"
#include "sim/model/ranks.h"

/* Experts and their weights, then the pairs in the order of their experts. */
int issue_moe_choose(const struct turn_of *t) {
    const struct model *m = t->model;
    const struct call_moe_route route = {
        .logits = rows_at(t, t->op->in[0]),
        .bias = weight(t, WEIGHT_EXPERT_BIAS),
        .expert = (int32_t *)(void *)output(t, 0),
        .weight = (float *)(void *)output(t, 1),
        .logit_stride = row_elements(t, t->op->in[0]),
        .n_tokens = (int32_t)t->turn->n_rows,
        .n_experts = (int32_t)model_routed_experts(m),
        .n_active = (int32_t)model_most_active(m),
        .n_groups = (int32_t)m->expert_groups,
        .n_groups_active = (int32_t)m->expert_groups_active,
        .normalised = m->norm_topk,
        .scale = (float)m->routed_scale,
        .router = m->router == ROUTER_SOFTMAX ? KERNEL_ROUTER_SOFTMAX : KERNEL_ROUTER_SIGMOID,
        .dtype = t->dtype,
    };
    const struct call_moe_sort sort = {
        .expert = route.expert,
        .start = (int32_t *)(void *)output(t, 2),
        .order = (int32_t *)(void *)output(t, 3),
        .place = (int32_t *)(void *)output(t, 4),
        .n_tokens = route.n_tokens,
        .n_active = route.n_active,
        .n_experts = (int32_t)t->op->experts,
        .first_expert = (int32_t)model_first_expert(m, t->issue->weights->layout.rank),
    };
    int status = t->table->moe_route(t->device, &route);
    return status == DEVICE_OK ? t->table->moe_sort(t->device, &sort) : status;
}

int issue_moe_gate_up(const struct turn_of *t) {
    const struct call_moe_gate_up call = {
        .x = rows_at(t, t->op->in[0]),
        .w = op_weight(t),
        .start = (const int32_t *)(const void *)input(t, 1),
        .order = (const int32_t *)(const void *)input(t, 2),
        .y = output(t, 0),
        .x_stride = row_elements(t, t->op->in[0]),
        .n_tokens = (int32_t)t->turn->n_rows,
        .n_active = (int32_t)model_most_active(t->model),
        .n_experts = (int32_t)t->op->experts,
        .n_channels = (int32_t)t->op->k,
        .n_hidden = (int32_t)t->op->n / 2,
        .dtype = t->dtype,
    };
    return t->table->moe_gate_up(t->device, &call);
}

int issue_moe_down(const struct turn_of *t) {
    const struct call_moe_down call = {
        .x = input(t, 0),
        .w = op_weight(t),
        .start = (const int32_t *)(const void *)input(t, 1),
        .y = output(t, 0),
        .n_tokens = (int32_t)t->turn->n_rows,
        .n_active = (int32_t)model_most_active(t->model),
        .n_experts = (int32_t)t->op->experts,
        .n_channels = (int32_t)t->op->n,
        .n_hidden = (int32_t)t->op->k,
        .dtype = t->dtype,
    };
    return t->table->moe_down(t->device, &call);
}

/* With four inputs, to what all tokens share, in place. */
int issue_moe_combine(const struct turn_of *t) {
    const struct call_moe_combine call = {
        .x = input(t, 0),
        .weight = (const float *)(const void *)input(t, 1),
        .place = (const int32_t *)(const void *)input(t, 2),
        .add = t->op->in[3] >= 0 ? rows_at(t, t->op->in[3]) : NULL,
        .y = rows_at(t, t->op->out[0]),
        .n_tokens = (int32_t)t->turn->n_rows,
        .n_active = (int32_t)model_most_active(t->model),
        .n_channels = (int32_t)t->model->hidden,
        .dtype = t->dtype,
    };
    return t->table->moe_combine(t->device, &call);
}
