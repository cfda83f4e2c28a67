/* Which cached rows are kept (Sparse-dLLM, dLLM-Serve), and which have changed (dLLM-Cache). */
#include "sim/step/graph.h"

const struct op_type op_type_select = {
    .pass = PASS_SELECT,
    .wide = WIDE_KV,
    .work = op_pass_work,
};

const struct op_type op_type_pack = {
    .pass = PASS_PACK,
    .wide = WIDE_KV,
    .work = op_pass_work,
};

/* In its row the choice among the rows that it compares; copying those is the next operator's. */
const struct op_type op_type_similarity = {
    .pass = PASS_SIMILARITY,
    .wide = WIDE_KV,
    .work = op_pass_work,
    .eager = {20, 6, 15.6},
};

/* The picked rows and their values, which are read and written; of the product's row, into which
 * the values go, no more than these. */
static struct op_work pick_work(const struct graph *graph, const struct op *op,
                                const struct op_amount *amount) {
    int64_t bytes = graph->tensors[op->out[0]].bytes.per;
    for (int i = 1; i <= 2; i++) {
        bytes += 2 * graph->tensors[op->in[i]].bytes.per;
    }
    return (struct op_work){.row_bytes = amount->rows * (double)bytes};
}

const struct op_type op_type_pick = {
    .pass = PASS_PICK,
    .wide = WIDE_HIDDEN,
    .work = pick_work,
};

const struct op_type op_type_keep_feature = {
    .pass = PASS_KEEP_FEATURE,
    .wide = WIDE_HIDDEN,
    .work = op_pass_work,
};

/* It moves as much as any sum of two hidden states. */
const struct op_type op_type_add_feature = {
    .memory = MEMORY_SUM,
    .pass = PASS_ADD_FEATURE,
    .pass_instead = PASS_ADD,
    .wide = WIDE_HIDDEN,
    .work = op_pass_work,
};
