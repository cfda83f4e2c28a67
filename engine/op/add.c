#include "engine/op/launch.h"

static int launch_add(const struct launch *l) {
    const struct call_add call = {.a = rows_at(l, l->op->in[0]),
                                  .b = rows_at(l, l->op->in[1]),
                                  .y = rows_at(l, l->op->out[0]),
                                  .n = l->turn->n_rows * row_elements(l, l->op->out[0]),
                                  .dtype = l->dtype};
    return l->table->add(l->device, &call);
}

static void add_points(struct points *points, const struct op *op) {
    points_add_pass(points, op, PASS_ADD, points->graph->model->hidden, points->bounds->max_tokens,
                    trial_fill_rows);
}

const struct op_launch op_launch_add = {.launch = launch_add, .points = add_points};
