#include "engine/op/launch.h"

static int launch_add(const struct launch *l) {
    const struct call_add call = {.a = rows_at(l, l->op->in[0]),
                                  .b = rows_at(l, l->op->in[1]),
                                  .y = rows_at(l, l->op->out[0]),
                                  .n = l->instance->n_rows * row_elements(l, l->op->out[0]),
                                  .dtype = l->dtype};
    return l->table->add(l->device, &call);
}

const struct op_launch op_launch_add = {.launch = launch_add, .sizes = OP_SIZES_PASS};
