#include "engine/op/launch.h"

/* With two inputs, the residual stream and what a sublayer adds to it: both outputs are written.
 * With one, the residual is read as it is; the final norm takes the logit rows out of it. */
static int launch_norm(const struct launch *l) {
    bool adds = l->op->in[1] >= 0;
    bool picks = l->op->rows == SYM_LOGIT_ROWS;
    const struct call_norm call = {
        .x = rows_at(l, l->op->in[adds ? 1 : 0]),
        .weight = op_weight(l),
        .residual = adds ? rows_at(l, l->op->in[0]) : NULL,
        .rows = picks ? narrow(l, PACKED_ROWS) : NULL,
        .y = rows_at(l, l->op->out[adds ? 1 : 0]),
        .n_rows = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->model->hidden,
        .epsilon = l->issue->weights->constants.norm_epsilon,
        .dtype = l->dtype,
    };
    return l->table->norm(l->device, &call);
}

const struct op_launch op_launch_rmsnorm = {.launch = launch_norm, .sizes = OP_SIZES_PASS};
