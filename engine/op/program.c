#include "engine/op/program.h"

#include "engine/op/op.h"

int program_make(struct program *program, const struct graph *graph, struct err *err) {
    *program = (struct program){.graph = graph, .evict_op = graph->n_ops};
    uint32_t layer = 0;
    for (uint32_t segment = 0, op = 0; segment < graph->n_segments; segment++) {
        program->first_op[segment] = op;
        bool has_layers = false;
        for (; op < graph->n_ops && graph->ops[op].segment == segment; op++) {
            const unsigned facts = op_launch_of(&graph->ops[op])->facts;
            int status = op_check(graph, &graph->ops[op], err);
            if (status != 0) {
                return status;
            }
            program->op_layer[op] = layer;
            program->evict_op = facts & (OP_EVICTS | OP_JOINS) ? op : program->evict_op;
            has_layers = has_layers || (facts & OP_IS_LAYER);
        }
        program->first_op[segment + 1] = op;
        layer += has_layers ? graph->segments[segment].repeat : 0;
    }
    return 0;
}

/* Complete a instance whose operator, repetition and first row are set. */
void program_settle(const struct program *program, const struct placement *placement,
                    const struct step_shape *shape, struct op_instance *instance) {
    const struct graph *graph = program->graph;
    const struct op *op = &graph->ops[instance->op];
    instance->layer = program->op_layer[instance->op] + instance->repetition;
    instance->n_rows = shape->sym[op->rows] - instance->first_row;
    if (op->loop >= 0) {
        int64_t chunk = loop_chunk_rows(graph, op->loop, shape, placement->chunks);
        instance->n_rows = instance->n_rows < chunk ? instance->n_rows : chunk;
    }
}

void program_start(const struct program *program, const struct placement *placement,
                   const struct step_shape *shape, struct op_instance *instance) {
    *instance = (struct op_instance){0};
    program_settle(program, placement, shape, instance);
}

bool program_next(const struct program *program, const struct placement *placement,
                  const struct step_shape *shape, struct op_instance *instance) {
    const struct graph *graph = program->graph;
    uint32_t op = instance->op, segment = graph->ops[op].segment;
    int loop = graph->ops[op].loop;
    if (loop >= 0 && (int)op < graph->loops[loop].last_op) {
        instance->op = op + 1; /* the same chunk's next operator */
        program_settle(program, placement, shape, instance);
        return true;
    }
    int64_t done = instance->first_row + instance->n_rows;
    if (loop >= 0 && done < shape->sym[graph->loops[loop].rows]) {
        instance->op = (uint32_t)graph->loops[loop].first_op;
        instance->first_row = done;
        program_settle(program, placement, shape, instance);
        return true;
    }
    instance->first_row = 0;
    instance->op = op + 1;
    if (instance->op == program->first_op[segment + 1]) {
        instance->repetition++;
        if (instance->repetition < graph->segments[segment].repeat) {
            instance->op = program->first_op[segment];
        } else {
            instance->repetition = 0;
        }
    }
    if (instance->op == graph->n_ops) {
        return false;
    }
    program_settle(program, placement, shape, instance);
    return true;
}
