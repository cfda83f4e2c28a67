/* What the ranks that hold a model together exchange. */
#include "sim/model/ranks.h"
#include "sim/step/graph.h"

/* A sum takes the place of what it is made of. */
static struct op_work reduce_work(const struct graph *graph, const struct op *op,
                                  const struct op_amount *amount) {
    return (struct op_work){.row_bytes =
                                2 * amount->rows * (double)graph->tensors[op->out[0]].bytes.per};
}

const struct op_type op_type_all_reduce = {
    .family = FAMILY_EXCHANGE,
    .table = PROFILE_ALL_REDUCE,
    .work = reduce_work,
};

const struct op_type op_type_all_gather = {
    .family = FAMILY_EXCHANGE,
    .table = PROFILE_ALL_GATHER,
    .work = op_pass_work,
};

const struct op_type op_type_combine = {
    .work = op_pass_work,
};
