/* What ranks exchange: sums, what each of them has, and the best of their candidates. */
#include "engine/op/launch.h"

#include "sim/base/num.h"
#include "sim/model/ranks.h"

/* Rows of channels are added up in the graph's elements. Numbers about tokens are single precision,
 * padded to whole vectors. */
static int launch_all_reduce(const struct launch *l) {
    enum { VECTOR = 8 };
    const bool is_single = l->graph->tensors[l->op->out[0]].single;
    const int64_t width = l->graph->tensors[l->op->out[0]].bytes.per / F32_BYTES;
    const struct call_all_reduce call = {
        .x = is_single ? input(l, 0) : rows_at(l, l->op->in[0]),
        .y = is_single ? output(l, 0) : rows_at(l, l->op->out[0]),
        .n = is_single ? align_up(l->instance->n_rows * width, VECTOR)
                       : l->instance->n_rows * row_elements(l, l->op->out[0]),
        .dtype = is_single ? KERNEL_F32 : l->dtype};
    return l->table->all_reduce(l->device, &call);
}

static int launch_all_gather(const struct launch *l) {
    const struct call_all_gather call = {.x = input(l, 0),
                                         .y = output(l, 0),
                                         .bytes = l->instance->n_rows *
                                                  l->graph->tensors[l->op->in[0]].bytes.per};
    return l->table->all_gather(l->device, &call);
}

static int launch_combine(const struct launch *l) {
    const struct candidates to = launch_candidates(l, l->op->out[0]);
    const struct call_combine call = {.gathered = input(l, 0),
                                      .token = to.token,
                                      .confidence = to.confidence,
                                      .margin = to.margin,
                                      .entropy = to.entropy,
                                      .logit = to.logit,
                                      .n_ranks = (int32_t)model_ranks(l->model),
                                      .n_rows = (int32_t)l->instance->n_rows,
                                      .n_vocab = (int32_t)l->model->vocab};
    return l->table->combine(l->device, &call);
}

/* From the least that devices add up on to what a step's tokens have of a rank. */
static void add_exchange(struct points *points, const struct op *op) {
    enum { LEAST_BYTES = 32 };
    const struct graph *graph = points->graph;
    const int64_t max_bytes = points->bounds->max_tokens * graph->tensors[op->in[0]].bytes.per;
    struct calibration_point point = point_of(points, op);
    point.sizes[POINT_EXCHANGE_GPUS] = model_ranks(graph->model);
    if (points_have(points, &point)) {
        return;
    }
    for (int64_t bytes = LEAST_BYTES; bytes < max_bytes;
         bytes *= points->bounds->is_coarse ? 4 : 2) {
        point.sizes[POINT_EXCHANGE_BYTES] = bytes;
        points_add(points, &point);
    }
    point.sizes[POINT_EXCHANGE_BYTES] = align_up(max_bytes, LEAST_BYTES);
    points_add(points, &point);
    points_end_group(points);
}

const struct op_launch op_launch_all_reduce = {
    .launch = launch_all_reduce,
    .facts = OP_IS_EXCHANGE,
    .symbols = OP_OVER_TOKENS | OP_OVER(SYM_SELECT_ROWS) | OP_OVER(SYM_VALUE_ROWS),
    .sizes = OP_SIZES_OWN,
    .points = add_exchange,
};
const struct op_launch op_launch_all_gather = {
    .launch = launch_all_gather,
    .facts = OP_IS_EXCHANGE,
    .sizes = OP_SIZES_OWN,
    .points = add_exchange,
};
/* A candidate of each rank: the least of passes. */
const struct op_launch op_launch_combine = {.launch = launch_combine, .sizes = OP_SIZES_NONE};
