/* Which cached rows are kept (Sparse-dLLM, dLLM-Serve), and which have changed (dLLM-Cache). */
#include "sim/graph/graph.h"

static int64_t kv_channels(const struct graph *graph) {
    return (int64_t)graph->model->kv_heads * graph->model->head_dim;
}

static struct op_pass select_pass(const struct graph *graph, const struct op *op) {
    (void)op;
    return (struct op_pass){PASS_SELECT, kv_channels(graph)};
}

const struct op_type op_type_select = {
    .pass = select_pass,
    .work = op_pass_work,
};

static struct op_pass pack_pass(const struct graph *graph, const struct op *op) {
    (void)op;
    return (struct op_pass){PASS_PACK, kv_channels(graph)};
}

const struct op_type op_type_pack = {
    .pass = pack_pass,
    .work = op_pass_work,
};

const struct op_type op_type_similarity = {
    .work = op_pass_work,
    .eager = {20, 6, 15.6},
};
