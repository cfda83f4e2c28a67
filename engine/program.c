#include "engine/program.h"

#include <string.h>

#include "engine/weights.h"

/* The graph builder's names for what reads a weight. */
static const struct {
    const char *op;
    enum op_kind kind;
    enum weight_slot slot;
} readers[] = {
    {"embed", OP_EMBED, WEIGHT_EMBEDDING},
    {"attention norm", OP_RMSNORM, WEIGHT_ATTENTION_NORM},
    {"qkv projection", OP_LINEAR, WEIGHT_QKV},
    {"output projection", OP_LINEAR, WEIGHT_OUTPUT},
    {"ffn norm", OP_RMSNORM, WEIGHT_FFN_NORM},
    {"gate and up", OP_LINEAR, WEIGHT_GATE_UP},
    {"gate and up", OP_GATE_UP, WEIGHT_GATE_UP},
    {"down", OP_LINEAR, WEIGHT_DOWN},
    {"final norm", OP_RMSNORM, WEIGHT_FINAL_NORM},
    {"output head", OP_LINEAR, WEIGHT_HEAD},
    {"output head", OP_HEAD, WEIGHT_HEAD},
};

/* Operators without a matrix; the rotation's small vectors are found by the model's facts. */
static bool runs_without_weight(enum op_kind kind) {
    return kind == OP_ROPE || kind == OP_ATTENTION_FULL || kind == OP_ATTENTION_BLOCK ||
           kind == OP_SELECT || kind == OP_PACK || kind == OP_SWIGLU || kind == OP_ADD ||
           kind == OP_SAMPLE || kind == OP_COMMIT;
}

static bool runs_over(const struct op *op) {
    return op->kind == OP_SELECT ? op->rows == SYM_SELECT_ROWS
           : op->kind == OP_PACK ? op->rows == SYM_PACK_ROWS
                                 : op->rows == SYM_TOKENS || op->rows == SYM_LOGIT_ROWS;
}

static int bind(struct program *program, uint32_t op, struct err *err) {
    const struct op *o = &program->graph->ops[op];
    program->weight[op] = -1;
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (readers[i].kind == o->kind && strcmp(readers[i].op, o->name) == 0) {
            program->weight[op] = (int)readers[i].slot;
        }
    }
    if (!runs_over(o) || (program->weight[op] < 0 && !runs_without_weight(o->kind))) {
        return err_usage(err, "the engine does not run the operator '%s' (%s over %s)", o->name,
                         op_kind_names[o->kind], symbol_names[o->rows]);
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
    *program = (struct program){.graph = graph};
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
            if (graph->ops[op].kind == OP_ATTENTION_FULL) {
                program->rotated[segment] = graph->ops[op].in[0];
                has_layers = true;
            }
        }
        program->first_op[segment + 1] = op;
        layer += has_layers ? graph->segments[segment].repeat : 0;
    }
    return 0;
}

static bool touches_logits(const struct graph *graph, uint32_t op) {
    const struct op *o = &graph->ops[op];
    for (int i = 0; i < OP_MAX_TENSORS; i++) {
        if ((o->in[i] >= 0 && graph->tensors[o->in[i]].logits) ||
            (o->out[i] >= 0 && graph->tensors[o->out[i]].logits)) {
            return true;
        }
    }
    return false;
}

/* Complete a turn whose operator, repetition and first row are set. */
static void settle(const struct program *program, const struct placement *placement,
                   const struct step_shape *shape, struct turn *turn) {
    const struct graph *graph = program->graph;
    turn->layer = program->op_layer[turn->op] + turn->repetition;
    turn->n_rows = shape->sym[graph->ops[turn->op].rows] - turn->first_row;
    if (touches_logits(graph, turn->op) && placement->logit_chunk_rows > 0 &&
        turn->n_rows > placement->logit_chunk_rows) {
        turn->n_rows = placement->logit_chunk_rows;
    }
}

void program_start(const struct program *program, const struct placement *placement,
                   const struct step_shape *shape, struct turn *turn) {
    *turn = (struct turn){0};
    settle(program, placement, shape, turn);
}

bool program_next(const struct program *program, const struct placement *placement,
                  const struct step_shape *shape, struct turn *turn) {
    const struct graph *graph = program->graph;
    uint32_t op = turn->op, segment = graph->ops[op].segment;
    bool in_chunk = touches_logits(graph, op);
    if (in_chunk && op + 1 < graph->n_ops && touches_logits(graph, op + 1)) {
        turn->op = op + 1; /* the same chunk's next operator */
        settle(program, placement, shape, turn);
        return true;
    }
    int64_t done = turn->first_row + turn->n_rows;
    if (in_chunk && done < shape->sym[graph->ops[op].rows]) {
        while (turn->op > 0 && touches_logits(graph, turn->op - 1)) {
            turn->op--;
        }
        turn->first_row = done;
        settle(program, placement, shape, turn);
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
    settle(program, placement, shape, turn);
    return true;
}

static bool lists(const int list[OP_MAX_TENSORS], int tensor) {
    for (int i = 0; i < OP_MAX_TENSORS && list[i] >= 0; i++) {
        if (list[i] == tensor) {
            return true;
        }
    }
    return false;
}

bool program_made_in_chunks(const struct program *program, int tensor) {
    const struct graph *graph = program->graph;
    bool made = false;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        made = made || (touches_logits(graph, op) && lists(graph->ops[op].out, tensor));
    }
    return made && graph->tensors[tensor].home == HOME_WORKSPACE;
}

bool program_feeds_chunks(const struct program *program, int tensor) {
    const struct graph *graph = program->graph;
    bool read = false;
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        read = read || (touches_logits(graph, op) && lists(graph->ops[op].in, tensor));
    }
    return read && !program_made_in_chunks(program, tensor) &&
           graph->tensors[tensor].home == HOME_WORKSPACE;
}

int64_t tensor_row_elements(const struct graph *graph, int tensor) {
    return graph->tensors[tensor].logits ? graph->model->vocab
                                         : graph->tensors[tensor].bytes.per / graph->element_bytes;
}
