/* The inputs of products, quantised to fp8. */
#include "engine/op/launch.h"
#include "kernels/fp8.h"

_Static_assert((int)FP8_ROW_ALIGN == (int)FP8_INPUT_ALIGN, "the graph plans the kernels' rows");

static int launch_cast(const struct launch *l) {
    const int from = l->op->in[0], to = l->op->out[0];
    const int64_t rows = l->op->n; /* in each of the tensors' */
    const struct call_quantise call = {
        .x = rows_at(l, from),
        .y = rows_at(l, to),
        .x_stride = rows > 1 ? l->op->k : row_elements(l, from),
        .n_rows = (int32_t)(rows * l->instance->n_rows),
        .n_channels = (int32_t)l->op->k,
        .group = (int32_t)number_scale_columns(l->graph->tensors[to].type, l->op->k),
        .dtype = l->dtype,
    };
    return l->table->quantise(l->device, &call);
}

static int check(const struct graph *graph, const struct op *op, struct err *err) {
    return number_is_fp8(graph->tensors[op->out[0]].type) && op->k % 4 == 0
               ? 0
               : op_refuse(op, "it makes rows of fp8 alone, of multiples of 4 numbers", err);
}

const struct op_launch op_launch_cast = {
    .launch = launch_cast, .check = check, .sizes = OP_SIZES_NONE};
