#include "engine/op/launch.h"
#include "kernels/fp8.h"

/* The input of the positions that a step decides on, where it lies. */
static int launch_conditioned(const struct launch *l) {
    const struct call_condition call = {
        .rows = narrow(l, PACKED_ROWS),
        .y = output(l, 0),
        .n_rows = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->model->hidden,
        .epsilon = l->issue->weights->constants.norm_epsilon,
        .dtype = l->dtype,
    };
    return l->table->condition(l->device, &call);
}

static bool is_codes(const struct launch *l, int tensor) {
    return tensor >= 0 && number_is_fp8(l->graph->tensors[tensor].type);
}

/* With two inputs, the residual stream and what a sublayer adds to it: both are written. With one,
 * or where a product has added the other, the residual is read as it is; the final norm takes the
 * logit rows out of it, and where features are kept others take the rows that run. What products
 * read in fp8 comes last. */
static int launch_norm(const struct launch *l) {
    if (l->op->weight == WEIGHT_NONE) {
        return launch_conditioned(l);
    }
    const bool is_kept = l->op->weight == WEIGHT_CONDITIONING_NORM;
    const bool adds = l->op->in[1] >= 0 && !is_added(l->issue, l->instance->op);
    const int *outs = l->op->out + (l->op->in[1] >= 0 ? 1 : 0);
    const int codes = is_codes(l, outs[0]) ? outs[0] : is_codes(l, outs[1]) ? outs[1] : -1;
    const int32_t *rows = l->op->picks >= 0               ? picks_in(l, l->op->picks).stream_rows
                          : is_kept                       ? narrow(l, PACKED_ROW_PLACES)
                          : l->op->rows == SYM_LOGIT_ROWS ? narrow(l, PACKED_ROWS)
                          : l->op->rows == SYM_PROJECTED_VALUES ? narrow(l, PACKED_VALUE_ROWS)
                                                                : NULL;
    const struct call_norm call = {
        .x = is_kept ? l->issue->room->expected : rows_at(l, l->op->in[adds ? 1 : 0]),
        .weight = op_weight(l),
        .residual = adds ? rows_at(l, l->op->in[0]) : NULL,
        .rows = rows,
        .y = outs[0] != codes ? rows_at(l, outs[0]) : NULL,
        .n_rows = (int32_t)l->instance->n_rows,
        .n_channels = (int32_t)l->model->hidden,
        .epsilon = l->issue->weights->constants.norm_epsilon,
        .dtype = l->dtype,
        .codes = codes >= 0 ? rows_at(l, codes) : NULL,
        .group = codes >= 0 ? (int32_t)number_scale_columns(l->graph->tensors[codes].type,
                                                            l->model->hidden)
                            : 0,
    };
    return l->table->norm(l->device, &call);
}

const struct op_launch op_launch_rmsnorm = {.launch = launch_norm, .sizes = OP_SIZES_PASS};
