#include "engine/op/launch.h"

/* With two inputs, the residual stream and what a sublayer adds to it: both outputs are written.
 * With one, the residual is read as it is; the final norm takes the logit rows out of it,
 * and where features are kept others take the rows that run. */
static int launch_norm(const struct launch *l) {
    bool adds = l->op->in[1] >= 0;
    const int32_t *rows = l->op->picks >= 0               ? picks_in(l, l->op->picks).stream_rows
                          : l->op->rows == SYM_LOGIT_ROWS ? narrow(l, PACKED_ROWS)
                          : l->op->rows == SYM_PROJECTED_VALUES ? narrow(l, PACKED_VALUE_ROWS)
                                                                : NULL;
    const struct call_norm call = {
        .x = rows_at(l, l->op->in[adds ? 1 : 0]),
        .weight = op_weight(l),
        .residual = adds ? rows_at(l, l->op->in[0]) : NULL,
        .rows = rows,
        .y = rows_at(l, l->op->out[adds ? 1 : 0]),
        .n_rows = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->model->hidden,
        .epsilon = l->issue->weights->constants.norm_epsilon,
        .dtype = l->dtype,
    };
    return l->table->norm(l->device, &call);
}

const struct op_launch op_launch_rmsnorm = {.launch = launch_norm, .sizes = OP_SIZES_PASS};
