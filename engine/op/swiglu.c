#include "engine/op/launch.h"

static int launch_swiglu(const struct launch *l) {
    const struct call_swiglu call = {
        .gate_up = rows_at(l, l->op->in[0]),
        .y = rows_at(l, l->op->out[0]),
        .y_stride = row_elements(l, l->op->out[0]),
        .n_tokens = (int32_t)l->instance->n_rows,
        .n_hidden = (int32_t)row_elements(l, l->op->in[0]) / 2,
        .dtype = l->dtype,
        .gelu = l->model->gelu,
    };
    return l->table->swiglu(l->device, &call);
}

const struct op_launch op_launch_swiglu = {
    .launch = launch_swiglu, .sizes = OP_SIZES_PASS, .wears = true};
