/* Gates and ups, and the activation between them. */
#include "engine/op/launch.h"

static int launch_gate_up(const struct launch *l) {
    const struct call_gate_up call = {
        .x = rows_at(l, l->op->in[0]),
        .w = op_weight(l),
        .y = rows_at(l, l->op->out[0]),
        .x_stride = row_elements(l, l->op->in[0]),
        .y_stride = row_elements(l, l->op->out[0]),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->op->k,
        .n_hidden = (int32_t)l->op->n / 2,
        .dtype = l->dtype,
        .fp8 = op_fp8(l),
        .gelu = l->model->gelu,
        .codes = l->op->out[1] >= 0 ? rows_at(l, l->op->out[1]) : NULL,
    };
    return l->table->gate_up(l->device, &call);
}

/* On a device without a kernel for both, this is a product followed by an activation. */
static bool is_chosen(const struct launch *l) {
    const struct call_linear product = {
        .w = op_weight(l),
        .x_stride = row_elements(l, l->op->in[0]),
        .y_stride = l->op->n,
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_outputs = (int32_t)l->op->n,
        .n_inputs = (int32_t)l->op->k,
        .dtype = l->dtype,
    };
    return l->table->linear_chosen(l->device, &product);
}

const struct op_launch op_launch_gate_up = {
    .launch = launch_gate_up,
    .facts = OP_IS_PRODUCT,
    .is_chosen = is_chosen,
    .sizes = OP_SIZES_PRODUCT,
    .weightiness = OP_HEAVY,
};
