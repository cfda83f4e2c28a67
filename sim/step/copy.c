/* Copies: rows gathered together, numbers in another width. */
#include "sim/step/graph.h"

/* A copy reads what it writes, however wide the tensor it reads from; its source is cached. */
static struct op_work gather_work(const struct graph *graph, const struct op *op,
                                  const struct op_amount *amount) {
    double bytes = amount->rows * (double)graph->tensors[op->out[0]].bytes.per;
    return (struct op_work){.row_bytes = bytes, .cached_bytes = bytes};
}

const struct op_type op_type_gather = {
    .work = gather_work,
};

const struct op_type op_type_cast = {
    .memory = MEMORY_CAST,
    .work = op_pass_work,
};
