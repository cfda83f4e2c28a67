#include "engine/op/op.h"

const struct op_launch *const op_launches[OP_KIND_COUNT] = {
#define OP(id, file, name) [OP_##id] = &op_launch_##file,
#include "sim/step/ops.def"
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
    uint64_t symbols = how->symbols != 0 ? how->symbols : OP_OVER_TOKENS;
    symbols |= op_facts(graph) & OP_PICKS ? OP_OVER_STREAM : 0;
    symbols |= op_facts(graph) & OP_JOINS ? OP_OVER(SYM_FIRST_TOKENS) : 0;
    if (how->launch == NULL || !(symbols & OP_OVER(op->rows))) {
        return op_refuse(op, how->why_not, err);
    }
    return how->check != NULL ? how->check(graph, op, err) : 0;
}
