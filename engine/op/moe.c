/* A mixture of experts. Which tensor an operator's first, second and so on is, the graph builder
 * says (add_sorted_moe_ffn). */
#include "engine/op/launch.h"
#include "sim/model/ranks.h"

static enum kernel_block_routing blocks_of(const struct model *model) {
    return model->block_routing == BLOCK_ROUTING_LARGEST ? KERNEL_BLOCKS_LARGEST
           : model->block_routing == BLOCK_ROUTING_SHARE ? KERNEL_BLOCKS_SHARE
                                                         : KERNEL_BLOCKS_NONE;
}

/* Experts and their weights, then the pairs in the order of their experts. */
static int launch_moe_choose(const struct launch *l) {
    const struct model *m = l->model;
    const struct call_moe_route route = {
        .logits = rows_at(l, l->op->in[0]),
        .bias = weight(l, WEIGHT_EXPERT_BIAS),
        .expert = (int32_t *)(void *)output(l, 0),
        .weight = (float *)(void *)output(l, 1),
        .logit_stride = row_elements(l, l->op->in[0]),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_experts = (int32_t)model_routed_experts(m),
        .n_active = (int32_t)model_most_active(m),
        .n_groups = (int32_t)m->expert_groups,
        .n_groups_active = (int32_t)m->expert_groups_active,
        .normalised = m->norm_topk,
        .scale = (float)m->routed_scale,
        .router = m->router == ROUTER_SOFTMAX ? KERNEL_ROUTER_SOFTMAX : KERNEL_ROUTER_SIGMOID,
        .dtype = l->dtype,
        .blocks = blocks_of(m),
        .position = narrow(l, PACKED_POSITIONS) + l->instance->first_row,
        .start = narrow(l, PACKED_START),
        .first_token = (int32_t)l->instance->first_row,
        .n_requests = counts(l)->n_plain + counts(l)->n_select + counts(l)->n_block,
        .block_tokens = (int32_t)m->block_tokens,
        .block_experts = (int32_t)m->block_experts,
        .block_share = (float)m->block_expert_share,
    };
    const struct call_moe_sort sort = {
        .expert = route.expert,
        .start = (int32_t *)(void *)output(l, 2),
        .order = (int32_t *)(void *)output(l, 3),
        .place = (int32_t *)(void *)output(l, 4),
        .n_tokens = route.n_tokens,
        .n_active = route.n_active,
        .n_experts = (int32_t)l->op->experts,
        .first_expert = (int32_t)model_first_expert(m, l->issue->weights->layout.rank),
    };
    int status = l->table->moe_route(l->device, &route);
    return status == DEVICE_OK ? l->table->moe_sort(l->device, &sort) : status;
}

int op_count_experts(const struct engine_device *device, const unsigned char *starts_at,
                     uint32_t experts, uint32_t *out) {
    int32_t starts[MOE_MAX_EXPERTS + 1] = {0};
    ASSERT(experts <= MOE_MAX_EXPERTS);
    int status = device->table->download(device->device, starts, starts_at,
                                         (experts + 1) * (int64_t)sizeof *starts);
    *out = 0;
    for (uint32_t e = 0; e < experts; e++) {
        *out += starts[e + 1] > starts[e];
    }
    return status;
}

static int launch_moe_gate_up(const struct launch *l) {
    const struct call_moe_gate_up call = {
        .x = rows_at(l, l->op->in[0]),
        .w = op_weight(l),
        .start = (const int32_t *)(const void *)input(l, 1),
        .order = (const int32_t *)(const void *)input(l, 2),
        .y = output(l, 0),
        .x_stride = row_elements(l, l->op->in[0]),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_active = (int32_t)model_most_active(l->model),
        .n_experts = (int32_t)l->op->experts,
        .n_channels = (int32_t)l->op->k,
        .n_hidden = (int32_t)l->op->n / 2,
        .dtype = l->dtype,
        .fp8 = op_fp8(l),
        .gelu = l->model->gelu,
    };
    return l->table->moe_gate_up(l->device, &call);
}

static int launch_moe_down(const struct launch *l) {
    const struct call_moe_down call = {
        .x = input(l, 0),
        .w = op_weight(l),
        .start = (const int32_t *)(const void *)input(l, 1),
        .y = output(l, 0),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_active = (int32_t)model_most_active(l->model),
        .n_experts = (int32_t)l->op->experts,
        .n_channels = (int32_t)l->op->n,
        .n_hidden = (int32_t)l->op->k,
        .dtype = l->dtype,
        .fp8 = op_fp8(l),
    };
    return l->table->moe_down(l->device, &call);
}

/* With four inputs, to what all tokens share, in place. */
static int launch_moe_combine(const struct launch *l) {
    const struct call_moe_combine call = {
        .x = input(l, 0),
        .weight = (const float *)(const void *)input(l, 1),
        .place = (const int32_t *)(const void *)input(l, 2),
        .add = l->op->in[3] >= 0 ? rows_at(l, l->op->in[3]) : NULL,
        .y = rows_at(l, l->op->out[0]),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_active = (int32_t)model_most_active(l->model),
        .n_channels = (int32_t)l->model->hidden,
        .dtype = l->dtype,
    };
    return l->table->moe_combine(l->device, &call);
}

const struct op_launch op_launch_moe_choose = {
    .launch = launch_moe_choose, .facts = OP_CHOOSES_EXPERTS, .sizes = OP_SIZES_PASS};
const struct op_launch op_launch_moe_gate_up = {
    .launch = launch_moe_gate_up,
    .sizes = OP_SIZES_PRODUCT,
    .n_measured = 2, /* and what they come back to */
    .weightiness = OP_HEAVY,
    .reads_indices = true,
};
/* Measured with gates and ups. */
const struct op_launch op_launch_moe_down = {
    .launch = launch_moe_down,
    .sizes = OP_SIZES_NONE,
};
const struct op_launch op_launch_moe_combine = {
    .launch = launch_moe_combine, .sizes = OP_SIZES_PASS, .reads_indices = true};
