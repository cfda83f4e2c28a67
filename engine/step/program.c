#include "engine/step/program.h"

#include "engine/weights/weights.h"

/* Operators without a matrix; the small vectors of rotation and router are found by the model's
 * facts. */
static bool runs_without_weight(enum op_kind kind) {
    return kind == OP_ROPE || kind == OP_ATTENTION_FULL || kind == OP_ATTENTION_BLOCK ||
           kind == OP_ATTENTION_PREFILL || kind == OP_IMPORTANCE || kind == OP_EVICT ||
           kind == OP_SELECT || kind == OP_PACK || kind == OP_SWIGLU || kind == OP_ADD ||
           kind == OP_SAMPLE || kind == OP_CREDIT || kind == OP_COMMIT || kind == OP_MOE_CHOOSE ||
           kind == OP_MOE_COMBINE || kind == OP_ALL_REDUCE || kind == OP_ALL_GATHER ||
           kind == OP_COMBINE || kind == OP_SOFTMAX || kind == OP_KEEP_EXPECTED ||
           kind == OP_ADD_EXPECTED;
}

static bool runs_over(const struct op *op) {
    bool of_candidates = op->kind == OP_ALL_REDUCE && op->rows == SYM_SELECT_ROWS;
    return op->kind == OP_SELECT || of_candidates ? op->rows == SYM_SELECT_ROWS
           : op->kind == OP_PACK                  ? op->rows == SYM_PACK_ROWS
                                 : op->rows == SYM_TOKENS || op->rows == SYM_KEPT_TOKENS ||
                                       op->rows == SYM_LOGIT_ROWS;
}

/* Probabilities that runtimes hold in another width are theirs. */
static bool holds_elements(const struct graph *graph, int tensor) {
    return graph->tensors[tensor].bytes.per == graph->model->vocab * graph->element_bytes;
}

static int bind(struct program *program, uint32_t op, struct err *err) {
    const struct op *o = &program->graph->ops[op];
    bool is_other_runtimes = o->kind == OP_MOE_ROUTE || o->kind == OP_MOE_LINEAR;
    bool is_wider = o->kind == OP_SOFTMAX && !holds_elements(program->graph, o->out[0]);
    if (!runs_over(o) || is_wider || is_other_runtimes ||
        (o->weight == WEIGHT_NONE && !runs_without_weight(o->kind))) {
        return err_usage(err, "the engine does not run the operator '%s' (%s over %s)", o->name,
                         op_kind_names[o->kind], symbol_names[o->rows]);
    }
    if (o->kind == OP_CREDIT && o->out[2] >= 0) {
        return err_usage(err, "the engine keeps lists of credit, the step graph a matrix: set "
                              "decoder.form = list, which decides alike");
    }
    if (o->kind == OP_SELECT && o->out[1] < 0) {
        return err_usage(err,
                         "the step graph is not built for the engine: '%s' has no place for the "
                         "tokens it keeps",
                         o->name);
    }
    return 0;
}

int program_make(struct program *program, const struct graph *graph, struct err *err) {
    *program = (struct program){.graph = graph, .evict_op = graph->n_ops};
    uint32_t layer = 0;
    for (uint32_t segment = 0, op = 0; segment < graph->n_segments; segment++) {
        program->first_op[segment] = op;
        bool has_layers = false;
        for (; op < graph->n_ops && graph->ops[op].segment == segment; op++) {
            int status = bind(program, op, err);
            if (status != 0) {
                return status;
            }
            program->op_layer[op] = layer;
            if (graph->ops[op].kind == OP_EVICT) {
                program->evict_op = op;
            }
            if (graph->ops[op].kind == OP_ATTENTION_FULL ||
                graph->ops[op].kind == OP_ATTENTION_PREFILL) {
                program->rotated[segment] = graph->ops[op].in[0];
                has_layers = true;
            }
        }
        program->first_op[segment + 1] = op;
        layer += has_layers ? graph->segments[segment].repeat : 0;
    }
    return 0;
}

/* Complete a turn whose operator, repetition and first row are set. */
void program_settle(const struct program *program, const struct placement *placement,
                    const struct step_shape *shape, struct turn *turn) {
    const struct graph *graph = program->graph;
    const struct op *op = &graph->ops[turn->op];
    turn->layer = program->op_layer[turn->op] + turn->repetition;
    turn->n_rows = shape->sym[op->rows] - turn->first_row;
    if (op->loop >= 0) {
        int64_t chunk = loop_chunk_rows(graph, op->loop, shape, placement->chunks);
        turn->n_rows = turn->n_rows < chunk ? turn->n_rows : chunk;
    }
}

void program_start(const struct program *program, const struct placement *placement,
                   const struct step_shape *shape, struct turn *turn) {
    *turn = (struct turn){0};
    program_settle(program, placement, shape, turn);
}

bool program_next(const struct program *program, const struct placement *placement,
                  const struct step_shape *shape, struct turn *turn) {
    const struct graph *graph = program->graph;
    uint32_t op = turn->op, segment = graph->ops[op].segment;
    int loop = graph->ops[op].loop;
    if (loop >= 0 && (int)op < graph->loops[loop].last_op) {
        turn->op = op + 1; /* the same chunk's next operator */
        program_settle(program, placement, shape, turn);
        return true;
    }
    int64_t done = turn->first_row + turn->n_rows;
    if (loop >= 0 && done < shape->sym[graph->loops[loop].rows]) {
        turn->op = (uint32_t)graph->loops[loop].first_op;
        turn->first_row = done;
        program_settle(program, placement, shape, turn);
        return true;
    }
    turn->first_row = 0;
    turn->op = op + 1;
    if (turn->op == program->first_op[segment + 1]) {
        turn->repetition++;
        if (turn->repetition < graph->segments[segment].repeat) {
            turn->op = program->first_op[segment];
        } else {
            turn->repetition = 0;
        }
    }
    if (turn->op == graph->n_ops) {
        return false;
    }
    program_settle(program, placement, shape, turn);
    return true;
}

int64_t tensor_row_elements(const struct graph *graph, int tensor) {
    return tensor_holds_logits(graph, tensor)
               ? graph->model->vocab
               : graph->tensors[tensor].bytes.per / graph->element_bytes;
}
