#include "engine/op/launch.h"

#include "sim/base/num.h"

const struct op_launch *const op_launches[OP_KIND_COUNT] = {
#define OP(id, file, name) [OP_##id] = &op_launch_##file,
#include "sim/op/ops.def"
#undef OP
};

unsigned op_facts(const struct graph *graph) {
    unsigned facts = 0;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        facts |= op_launch_of(&graph->ops[op])->facts;
    }
    return facts;
}

const struct op *op_with(const struct graph *graph, unsigned facts) {
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        if (op_launch_of(&graph->ops[op])->facts & facts) {
            return &graph->ops[op];
        }
    }
    return NULL;
}

int op_refuse(const struct op *op, const char *why, struct err *err) {
    return err_usage(err, "the engine does not run the operator '%s' (%s over %s)%s%s", op->name,
                     op_kind_names[op->kind], symbol_names[op->rows], why != NULL ? ": " : "",
                     why != NULL ? why : "");
}

int op_check(const struct graph *graph, const struct op *op, struct err *err) {
    const struct op_launch *how = op_launch_of(op);
    const uint64_t symbols = how->symbols != 0 ? how->symbols : OP_OVER_TOKENS;
    if (how->launch == NULL || !(symbols & OP_OVER(op->rows))) {
        return op_refuse(op, how->why_not, err);
    }
    return how->check != NULL ? how->check(graph, op, err) : 0;
}

struct launch launch_of(struct issue *issue, const struct turn *turn) {
    const struct graph *graph = issue->program->graph;
    const bool is_rest = turn->op >= issue->program->evict_op;
    return (struct launch){
        .issue = issue,
        .packed = is_rest ? issue->rest : issue->packed,
        .arrays = issue->room->arrays + (is_rest ? issue->packed->max_bytes : 0),
        .turn = turn,
        .cache_layer = issue->has_one_layer ? 0 : turn->layer,
        .op = &graph->ops[turn->op],
        .graph = graph,
        .model = graph->model,
        .table = issue->device->table,
        .device = issue->device->device,
        .dtype = issue->device->dtype,
    };
}

int issue_turn(struct issue *issue, const struct turn *turn) {
    const struct launch l = launch_of(issue, turn);
    return turn->n_rows > 0 ? op_launch_of(l.op)->launch(&l) : DEVICE_OK;
}

struct candidates issue_candidates(struct issue *issue, int tensor) {
    const struct size *row = &issue->program->graph->tensors[tensor].bytes;
    const int64_t n = issue->rest->n.n_logit_rows;
    int32_t *token = (int32_t *)(void *)tensor_at(issue, tensor);
    float *confidence = (float *)(void *)(token + n);
    const int64_t n_values = row->per / F32_BYTES - 2; /* besides those */
    float *margin = n_values >= 2 ? confidence + n : NULL;
    float *logit = n_values % 2 == 1 ? confidence + n_values * n : NULL;
    return (struct candidates){token, confidence, margin, margin != NULL ? margin + n : NULL,
                               logit};
}
