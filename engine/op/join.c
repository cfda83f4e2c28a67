/* After leading layers (BiCache): the residual streams of what goes on, copied together. */
#include "engine/op/launch.h"

/* Copies out of the leading layers' stream to the pool first: no copy reads what another of a step
 * writes. */
static int launch_join(const struct launch *l) {
    const struct issue *issue = l->issue;
    const int64_t row_bytes = row_elements(l, l->op->in[0]) * graph_element_bytes(l->graph);
    unsigned char *before = input(l, 0), *after = output(l, 0);
    int status = DEVICE_OK;
    for (int32_t i = 0; status == DEVICE_OK && i < issue->n_join_copies; i++) {
        const struct join_copy *copy = &issue->join_copies[i];
        unsigned char *pool = issue->room->pool + copy->pool_bytes;
        const unsigned char *from = copy->from_pool ? pool : before + copy->from_row * row_bytes;
        unsigned char *to = copy->to_pool ? pool : after + copy->to_row * row_bytes;
        status = l->table->copy(l->device, to, from, copy->n_rows * row_bytes);
    }
    return status;
}

const struct op_launch op_launch_join = {.launch = launch_join, .facts = OP_JOINS};
