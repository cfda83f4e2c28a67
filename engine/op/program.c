#include "engine/op/program.h"

#include "engine/op/op.h"

/* The segment of layers with a window, when one of those that see everything follows. */
static bool is_local(const struct graph *graph, uint32_t segment) {
    return segment + 1 < graph->n_segments && graph->segments[segment + 1].global;
}

/* The layer of a segment's repetition, where its first is `first`. */
static uint32_t layer_of(const struct graph *graph, uint32_t segment, uint32_t first,
                         uint32_t repetition) {
    const uint32_t every = graph->model->global_every;
    return graph->segments[segment].global ? repetition * every + every - 1
           : is_local(graph, segment)      ? repetition + repetition / (every - 1)
                                           : first + repetition;
}

/* After a repetition of one of both segments of layers: which runs next, and which of its
 * repetitions. Returns false after the last layer. */
static bool next_layer(const struct graph *graph, uint32_t *segment, uint32_t *repetition) {
    const uint32_t every = graph->model->global_every;
    const bool was_global = graph->segments[*segment].global;
    const uint32_t next = layer_of(graph, *segment, 0, *repetition) + 1,
                   local = was_global ? *segment - 1 : *segment;
    const bool is_global = next % every == every - 1;
    *segment = local + is_global;
    *repetition = is_global ? next / every : next - next / every;
    return next < graph->model->layers;
}

static int n_readers(const struct graph *graph, int tensor) {
    int n = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        for (int j = 0; j < OP_MAX_TENSORS && graph->ops[i].in[j] >= 0; j++) {
            n += graph->ops[i].in[j] == tensor;
        }
    }
    return n;
}

/* A sum, or a norm with one before it, that follows. After weights in fp8 by squares, whose tiles
 * ask for what they add at their end, not a norm's: waiting takes more (kernels/lab). */
static int added_to(const struct graph *graph, uint32_t i) {
    const struct op *op = &graph->ops[i], *sum = op + 1;
    const bool squares =
        storage_weight(&graph->storage, (enum weight_slot)op->weight) == NUMBER_FP8;
    if (op->kind != OP_LINEAR || i + 1 == graph->n_ops || (squares && sum->kind == OP_RMSNORM) ||
        sum->segment != op->segment || (sum->kind != OP_ADD && sum->kind != OP_RMSNORM) ||
        sum->in[1] != op->out[0] || sum->in[0] != sum->out[0] || sum->rows != op->rows ||
        op->picks >= 0 || sum->picks >= 0) {
        return -1;
    }
    const struct tensor *stream = &graph->tensors[sum->in[0]], *part = &graph->tensors[op->out[0]];
    return n_readers(graph, op->out[0]) == 1 && stream->bytes.per == part->bytes.per &&
                   stream->bytes.symbol == part->bytes.symbol
               ? sum->in[0]
               : -1;
}

int program_make(struct program *program, const struct graph *graph, struct err *err) {
    *program = (struct program){
        .graph = graph, .global_kind = model_of_kind(graph->model, true), .evict_op = graph->n_ops};
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
            program->added_to[op] = added_to(graph, op);
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
    instance->layer =
        layer_of(graph, op->segment, program->op_layer[instance->op], instance->repetition);
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
    const bool ends = instance->op == program->first_op[segment + 1];
    if (ends && (graph->segments[segment].global || is_local(graph, segment))) {
        const uint32_t past = segment + (graph->segments[segment].global ? 1 : 2);
        const bool more = next_layer(graph, &segment, &instance->repetition);
        instance->op = program->first_op[more ? segment : past];
        instance->repetition = more ? instance->repetition : 0;
    } else if (ends) {
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
